"""What a reader of `ledger.recovery` needs of many records: the claims, and of each key the last record that takes effect.

Readers fold a topic of history into as many entries as there are jobs (`published`). Where the history is long, tasks
beside the reader reduce it first: `Published` comes to the same entries from what is left
(tests/core/model/test_latest.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ledger.core.model.published import ROLE, RecordView, epoch_of, headers_of
from ledger.core.model.registers import NOOP_KEY, parse_claim

_NOOP = NOOP_KEY.encode()
R = TypeVar("R", bound=RecordView)


def latest_effective(records: Iterable[R], claimed: Mapping[int, int]) -> list[R]:
    """The claims among the records, and the last record of each key that readers take, in offset order within partitions.

    records: consecutive ones, each partition in offset order. claimed: partition -> highest epoch claimed before them.
    The epoch filter comes first and the last record of a key second: a stale leader's record must not hide a good one.
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
    """Partition -> highest epoch that a leader has claimed, by `claimed` and the records after it."""
    highest = dict(claimed)
    for record in records:
        _claim(highest, record)
    return highest


def _claim(highest: dict[int, int], record: RecordView) -> None:
    claim, partition = parse_claim(record.key()), record.partition()
    if claim is not None and claim[0] == ROLE and record.value() is not None:
        highest[partition] = max(highest.get(partition, 0), claim[1])
