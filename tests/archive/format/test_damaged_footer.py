"""A wrong bit in the footer of a Parquet file: reading raises an error. pyarrow's column metadata would abort the
process."""

from __future__ import annotations

import signal
from multiprocessing import get_context

from ledger.archive.format import parquet
from tests.support.archives.given import TOPIC, read_out, records

EVERY = 61  # bits: 1 in 100 of them once aborted the process
MAGIC = 8  # bytes at the end: the length of the footer, and the kind of file


def read_damaged(data: bytes) -> None:
    footer = int.from_bytes(data[-MAGIC:-4], "little") + MAGIC
    refused = 0
    for bit in range(8 * (len(data) - footer), 8 * len(data), EVERY):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            parquet.Opened(bytes(damaged), len(data)).records(TOPIC, 0)
            parquet.picked(bytes(damaged), TOPIC, 0, 0, len(data), [b"job-"], len(data))
        except ValueError:
            refused += 1
    assert refused, "none of the changed bits was noticed"


def test_a_damaged_footer_ends_no_process() -> None:
    process = get_context("spawn").Process(target=read_damaged, args=(parquet.encode(records(40), read_out),))
    process.start()
    process.join()
    assert process.exitcode == 0, f"the process ended with {process.exitcode} ({-signal.SIGABRT}: aborted)"
