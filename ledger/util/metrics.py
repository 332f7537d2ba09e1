"""The catalogue of metrics: every name that a process of the ledger exports, with its kind, labels and meaning.

Metrics use base units, timestamps instead of ages, and labels with a bounded number of values: none has a job as a
label. Source: the naming rules of Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    help: str


#: Label values, in order -> value of the metric. Labels without a current value are omitted.
Samples = Mapping[tuple[str, ...], float]
#: Returns the current values of all metrics of a process.
Measure = Callable[[], Mapping[Metric, Samples]]

_LABELS = ("topic", "partition")
HEADROOM = Metric(
    "ledger_archive_headroom_seconds", "gauge", _LABELS,
    "Seconds until compaction may remove the oldest record that is not archived. The whole lag if all are archived.",
)  # fmt: skip
OLDEST_WAITING = Metric(
    "ledger_archive_oldest_waiting_timestamp_seconds", "gauge", _LABELS,
    "Append time of the oldest record that is not archived. No value if all are.",
)  # fmt: skip
LAST_LOOK = Metric(
    "ledger_archive_headroom_timestamp_seconds", "gauge", (),
    "Time of the last successful headroom query. The exported headroom is extrapolated from it.",
)  # fmt: skip
SEALED_OFFSET = Metric("ledger_archive_sealed_offset", "gauge", _LABELS, "First offset that is not in the archive.")
END_OFFSET = Metric("ledger_archive_end_offset", "gauge", _LABELS, "End of the partition, open transactions included.")
SEALED_RECORDS = Metric("ledger_archive_sealed_records_total", "counter", _LABELS, "Records that this process has sealed.")
NEWEST_SEALED = Metric(
    "ledger_archive_last_timestamp_seconds", "gauge", _LABELS, "Append time of the newest record sealed."
)
ANCHOR_SEQUENCE = Metric(
    "ledger_archive_anchor_sequence", "gauge", _LABELS, "Sequence number of the manifest that was anchored last."
)
ANCHOR_TIME = Metric(
    "ledger_archive_anchor_timestamp_seconds", "gauge", _LABELS, "Time of the last anchor, by the broker's clock."
)
CHORE_FAILURES = Metric(
    "ledger_archive_chore_failures", "gauge", ("chore",), "Consecutive failures of a background task of the archiver."
)
CATALOGUE = (
    HEADROOM, OLDEST_WAITING, LAST_LOOK, SEALED_OFFSET, END_OFFSET, SEALED_RECORDS, NEWEST_SEALED, ANCHOR_SEQUENCE,
    ANCHOR_TIME, CHORE_FAILURES,
)  # fmt: skip
