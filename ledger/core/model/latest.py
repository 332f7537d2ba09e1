"""Reduces records of `ledger.recovery` to the claims and the last effective record of each key.

`Published` computes the same entries from the reduced records (tests/core/model/test_latest.py). Spark tasks reduce a long
history this way before the reader applies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ledger.core.model.published import ROLE, RecordView, epoch_of, headers_of
from ledger.core.model.registers import NOOP_KEY, parse_claim

_NOOP = NOOP_KEY.encode()
R = TypeVar("R", bound=RecordView)


def latest_effective(records: Iterable[R], claimed: Mapping[int, int]) -> list[R]:
    """The claims, and the last record of each key that passes the epoch filter, in offset order within each partition.

    records: consecutive ones, each partition in offset order. claimed: partition -> highest epoch claimed before them.
    The filter comes before the choice of the last record: a stale leader's record must not hide a good one.
    """
    highest = dict(claimed)
    claims: list[R] = []
    last: dict[tuple[int, bytes], R] = {}
    for record in records:
        key, partition = record.key(), record.partition()
        if key is None or key == _NOOP:
            continue
        if parse_claim(key) is not None:
            claims.append(record)
            _claim(highest, record)
        elif 0 < epoch_of(headers_of(record)) == highest.get(partition, 0):
            last[partition, key] = record
    return sorted([*claims, *last.values()], key=lambda record: (record.partition(), record.offset()))


def highest_claimed(records: Iterable[RecordView], claimed: Mapping[int, int]) -> dict[int, int]:
    """Partition -> highest epoch claimed. claimed: the highest epochs claimed before these records."""
    highest = dict(claimed)
    for record in records:
        _claim(highest, record)
    return highest


def _claim(highest: dict[int, int], record: RecordView) -> None:
    claim, partition = parse_claim(record.key()), record.partition()
    if claim is not None and claim[0] == ROLE and record.value() is not None:
        highest[partition] = max(highest.get(partition, 0), claim[1])
