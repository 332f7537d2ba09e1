"""The Spark session of a role: one small driver on this machine, with the Kafka connector."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from ledger.adapters.java.class_archives import class_archive, sharing
from ledger.adapters.java.jars import spark_connector, spark_jars
from ledger.adapters.java.java import java_home
from ledger.adapters.spark.jvm_output import launch
from ledger.adapters.spark.scratch import claim_scratch


def start_session(
    folder: Path, *, slots: int = 4, driver_memory_mb: int = 1024, name: str = "jobledger-reconciler",
    daemon: str = "pyspark.daemon", java_options: Sequence[str] | None = None, settings: Mapping[str, str] | None = None,
) -> SparkSession:  # fmt: skip
    """The Spark session of this process. The first call starts the JVM.

    folder: Spark writes only to this folder, and the JVM resolves relative paths in it. slots: tasks (for a reconciler:
    groups of actions) that may run at once. daemon: the module of the process that forks Python workers. java_options:
    for the driver's JVM; None = map the class archive if it exists. settings: Spark settings by name; they override
    those of this function.

    Raises: ConfigError if there is no Java that Spark runs on."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable  # else Spark may use another
    scratch = claim_scratch(folder / "local").resolve()
    temporary = scratch / "tmp"
    temporary.mkdir()
    options = [*(sharing(spark_archive()) if java_options is None else java_options), f"-Djava.io.tmpdir={temporary}"]
    # Spark creates `artifacts` in its JVM's working directory (SparkFileUtils.createTempDir takes the name for a root).
    # No query starts if that can't be written, and a service may run in /.
    options.append(f"-Duser.dir={scratch}")
    own = {
        "spark.master": f"local[{slots}]",
        "spark.app.name": name,
        "spark.jars": ",".join(str(jar) for jar in spark_connector()),
        "spark.driver.memory": f"{driver_memory_mb}m",
        "spark.driver.defaultJavaOptions": " ".join(f'"{option}"' for option in options),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "5",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.minBatchesToRetain": "5",
        "spark.sql.streaming.stopTimeout": "5s",
        "spark.sql.streaming.pollingDelay": "100ms",  # the default of 10 ms costs a fifth of a core at an idle topic
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": daemon,
        "spark.log.level": "WARN",
    }
    merged = {**own, **(settings or {})}
    builder = SparkSession.builder
    for key, value in merged.items():
        builder = builder.config(key, value)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    launch(merged)
    return builder.getOrCreate()


def spark_archive() -> Path:
    """The path of a Spark driver's class archive, whether or not it exists. Raises: ConfigError without Java."""
    return class_archive("spark", spark_jars())
