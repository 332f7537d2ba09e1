"""What the JVM of a Spark driver prints, line by line in the log of this process.

Log4j could write JSON itself, but not what the JVM prints before log4j is set up, nor what Python workers print through it.
"""

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
LINE_BYTES_MAX = 16_384  # a longer one is told in pieces
_LEVELS = {
    "TRACE": logging.DEBUG, "DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}  # fmt: skip
#: The pattern of Spark's own log4j settings: 25/01/31 12:00:00 WARN TaskSetManager: Lost task 0.0 …
_RECORD = re.compile(rf"\d\d/\d\d/\d\d \d\d:\d\d:\d\d ({'|'.join(_LEVELS)}) (\S+): (.*)")
#: What belongs to the record before it: a stack trace, and the exception that heads it.
_GOES_ON = re.compile(r"\s|Caused by: |[\w.$]+(Exception|Error|Throwable)\b")


def launch(settings: Mapping[str, str]) -> None:
    """Starts the driver's JVM with these settings of Spark, unless this process has one. Sessions use it from then on.

    Raises: PySparkRuntimeError: it ended at once; its last words are in the log."""
    if SparkContext._gateway is not None:
        return
    read, write = os.pipe()
    threading.Thread(target=follow, args=(os.fdopen(read, "rb"),), name="spark-output", daemon=True).start()
    try:
        gateway = launch_gateway(SparkConf().setAll(list(settings.items())), {"stdout": write, "stderr": write})  # type: ignore[no-untyped-call]
    finally:
        os.close(write)  # the JVM has its own: it alone keeps the pipe open
    SparkContext._ensure_initialized(gateway=gateway)


def follow(printed: BinaryIO) -> None:
    """Logs each line until the end. A stack trace has the level of its record; other lines without one
    are warnings."""
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
