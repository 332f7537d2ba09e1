"""The catalogue of metrics: every name that a process of the ledger exports, with its kind, labels and meaning.

Base units, times as timestamps and not as ages, and no label without a bound: a metric of each job is not one of them.
Source: the naming rules of Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    help: str


#: Values of the labels, in order -> value. What has no value now is left out.
Samples = Mapping[tuple[str, ...], float]
#: All that a process exports, as it is at this moment.
Measure = Callable[[], Mapping[Metric, Samples]]

_PLACE = ("topic", "partition")
HEADROOM = Metric(
    "ledger_archive_headroom_seconds", "gauge", _PLACE,
    "Until compaction may take the oldest record that is not archived, 0 or less: it may have; the whole lag if all are.",
)  # fmt: skip
OLDEST_WAITING = Metric(
    "ledger_archive_oldest_waiting_timestamp_seconds", "gauge", _PLACE,
    "Append time of the oldest record that is not archived; nothing if all are.",
)  # fmt: skip
LAST_LOOK = Metric(
    "ledger_archive_headroom_timestamp_seconds", "gauge", (),
    "When the headroom was last asked for with success; what is said of it is reckoned on from there.",
)  # fmt: skip
SEALED_OFFSET = Metric("ledger_archive_sealed_offset", "gauge", _PLACE, "First offset that is not in the archive.")
END_OFFSET = Metric("ledger_archive_end_offset", "gauge", _PLACE, "End of the partition, open transactions included.")
SEALED_RECORDS = Metric("ledger_archive_sealed_records_total", "counter", _PLACE, "Records that this process has sealed.")
NEWEST_SEALED = Metric("ledger_archive_last_timestamp_seconds", "gauge", _PLACE, "Append time of the newest of them.")
ANCHOR_SEQUENCE = Metric(
    "ledger_archive_anchor_sequence", "gauge", _PLACE, "Number of the manifest that was anchored last in the topic."
)
ANCHOR_TIME = Metric(
    "ledger_archive_anchor_timestamp_seconds", "gauge", _PLACE, "When it was anchored, by the broker's clock."
)
CHORE_FAILURES = Metric(
    "ledger_archive_chore_failures", "gauge", ("chore",), "How often a chore of this process has failed in a row."
)
CATALOGUE = (
    HEADROOM, OLDEST_WAITING, LAST_LOOK, SEALED_OFFSET, END_OFFSET, SEALED_RECORDS, NEWEST_SEALED, ANCHOR_SEQUENCE,
    ANCHOR_TIME, CHORE_FAILURES,
)  # fmt: skip
