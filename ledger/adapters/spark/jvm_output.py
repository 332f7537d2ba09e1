"""Copies the output of a Spark driver's JVM to the log of this process, line by line.

Log4j could write JSON itself. But then lines would be missing that the JVM prints before log4j is configured, and lines
that Python workers print through the JVM."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from functools import partial
from typing import BinaryIO

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

log = logging.getLogger("spark")
LINE_BYTES_MAX = 16_384  # a longer line is logged in pieces
_LEVELS = {
    "TRACE": logging.DEBUG, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}  # fmt: skip
#: The pattern of Spark's own log4j settings: 25/01/31 12:00:00 WARN TaskSetManager: Lost task 0.0 …
_RECORD = re.compile(rf"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ({'|'.join(_LEVELS)}) (\S+): (.*)")
#: Lines that belong to the record before them: a stack trace, and the exception that heads it.
_GOES_ON = re.compile(r"\s|Caused by: |[\w.$]+(Exception|Error|Throwable)\b")


def launch(settings: Mapping[str, str]) -> None:
    """Starts the driver's JVM with these Spark settings, unless this process has one already. Later sessions use it.

    Raises: PySparkRuntimeError if the JVM ended at once; its last lines are in the log."""
    if SparkContext._gateway is not None:
        return
    read, write = os.pipe()
    threading.Thread(target=follow, args=(os.fdopen(read, "rb"),), name="spark-output", daemon=True).start()
    try:
        gateway = launch_gateway(SparkConf().setAll(list(settings.items())), {"stdout": write, "stderr": write})  # type: ignore[no-untyped-call]
    finally:
        os.close(write)  # the JVM has its own copy; only the JVM must keep the pipe open
    SparkContext._ensure_initialized(gateway=gateway)


def follow(printed: BinaryIO) -> None:
    """Logs each line until the stream ends. A stack trace gets the level of its record; other lines without a level are
    warnings."""
    level = logging.WARNING
    with printed:
        for raw in iter(partial(printed.readline, LINE_BYTES_MAX), b""):
            line = raw.decode(errors="replace").rstrip()
            record = _RECORD.fullmatch(line)
            if record is not None:
                level = _LEVELS[record[1]]
                log.log(level, "%s", record[3], extra={"class": record[2]})
            elif line:
                level = level if _GOES_ON.match(line) else logging.WARNING
                log.log(level, "%s", line)
