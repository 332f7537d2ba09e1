"""`python -m ledger.adapters.spark`: makes the class archive of a Spark driver, so that later drivers start faster."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from ledger.adapters.java.class_archives import end, kill, make_archive
from ledger.adapters.java.provision import bring
from ledger.adapters.spark.session import spark_archive, start_session

_PATIENCE_S = 120.0


def warm_up(options: Sequence[str]) -> None:
    """Starts a Spark driver, uses it (some rows, one task in Python, a stream that calls Python back), and ends it.
    options: of its JVM."""
    with tempfile.TemporaryDirectory(prefix="jobledger-exercise-") as folder:
        spark = start_session(Path(folder), slots=2, java_options=options)
        gateway = SparkContext._gateway
        assert gateway is not None
        try:
            _use(spark, folder)
            spark.stop()
            gateway.proc.stdin.close()  # which ends the JVM
            end(gateway.proc, _PATIENCE_S)
        finally:
            kill(gateway.proc)


def _use(spark: SparkSession, folder: str) -> None:
    rows = spark.range(1000)
    rows.selectExpr("id % 7 AS key").groupBy("key").count().collect()
    rows.repartition(2).rdd.mapPartitions(lambda some: [len(list(some))]).collect()
    rows.write.parquet(f"{folder}/rows")
    stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows")

    def seen(batch: DataFrame, _number: int) -> None:
        batch.collect()

    query = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", f"{folder}/offsets")
    query.foreachBatch(seen).start().awaitTermination(int(_PATIENCE_S))


def main() -> int:
    """Returns 0, or the exit code of the failure. Idempotent: if the archive exists, no JVM is started."""
    return bring(lambda progress: make_archive(spark_archive(), progress, warm_up))


if __name__ == "__main__":
    sys.exit(main())
