"""Output of Spark's JVM appears in the log of the role, in its format."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.adapters.spark import jvm_output

PRINTED = b"""Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
25/01/31 12:00:00 INFO SparkContext: Running
25/01/31 12:00:01 ERROR Executor: Exception in task 0.0
java.lang.RuntimeException: no
\tat Some.method(Some.java:1)
Setting Spark log level to "WARN".

25/01/31 12:00:02 WARN TaskSetManager: Lost task 0.0 \xff
"""
ROLE = """
import sys
from pathlib import Path
from ledger.app import logs
from ledger.config.settings import LogSection
logs.configure(LogSection(format="json"), process="reconciler-1")
from ledger.adapters.spark.session import start_session
spark = start_session(Path(sys.argv[1]), slots=1)
assert spark.conf.get("spark.app.name") == "jobledger-reconciler"
spark._jvm.java.lang.System.err.println("printed by the JVM")
spark.stop()
"""


def test_each_line_is_a_record_and_a_stack_trace_has_the_level_of_its_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "spark")
    jvm_output.follow(io.BytesIO(PRINTED))
    assert [(record.levelname, record.getMessage(), getattr(record, "class", "")) for record in caplog.records] == [
        ("WARNING", "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties", ""),
        ("INFO", "Running", "SparkContext"),
        ("ERROR", "Exception in task 0.0", "Executor"),
        ("ERROR", "java.lang.RuntimeException: no", ""),
        ("ERROR", "\tat Some.method(Some.java:1)", ""),
        ("WARNING", 'Setting Spark log level to "WARN".', ""),
        ("WARNING", "Lost task 0.0 \ufffd", "TaskSetManager"),
    ]


def test_a_line_without_end_is_told_in_pieces(caplog: pytest.LogCaptureFixture) -> None:
    jvm_output.follow(io.BytesIO(b"x" * (jvm_output.LINE_BYTES_MAX + 1)))
    assert [len(record.getMessage()) for record in caplog.records] == [jvm_output.LINE_BYTES_MAX, 1]


@pytest.mark.spark
def test_a_role_prints_nothing_but_json(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", ROLE, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""
    told = [json.loads(line) for line in run.stderr.splitlines()]
    assert "printed by the JVM" in [line["event"] for line in told]
    assert {line["process"] for line in told} == {"reconciler-1"}
