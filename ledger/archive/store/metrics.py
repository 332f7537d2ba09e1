"""The metrics of an archiver."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.archive.store.compaction_margin import Reckoned
from ledger.ports import TopicPartition
from ledger.util import metrics
from ledger.util.metrics import Metric, Samples


def measured(
    now: Reckoned, now_s: float, passed_s: float, records: Mapping[TopicPartition, int],
    newest_s: Mapping[TopicPartition, float], failing: Mapping[str, int],
    anchored: Mapping[TopicPartition, tuple[int, float]],
) -> Mapping[Metric, Samples]:  # fmt: skip
    """The samples of each metric of an archiver. now_s: seconds since the epoch. passed_s: seconds since the last look
    at the headroom. records, newest_s, failing: as `Archiver`. anchored: as `Anchoring.anchored`."""
    found = {_labels((one.topic, one.partition)): one for one in now.found}
    return {
        metrics.HEADROOM: {at: one.lag_s if one.headroom_s is None else one.headroom_s for at, one in found.items()},
        metrics.OLDEST_WAITING: {at: now_s - one.oldest_s for at, one in found.items() if one.oldest_s is not None},
        metrics.LAST_LOOK: {(): now_s - passed_s} if found else {},
        metrics.SEALED_OFFSET: {at: float(one.sealed) for at, one in found.items()},
        metrics.END_OFFSET: {at: float(one.end) for at, one in found.items()},
        metrics.SEALED_RECORDS: {_labels(tp): float(count) for tp, count in records.items()},
        metrics.NEWEST_SEALED: {_labels(tp): time_s for tp, time_s in newest_s.items()},
        metrics.ANCHOR_SEQUENCE: {_labels(tp): float(sequence) for tp, (sequence, _) in anchored.items()},
        metrics.ANCHOR_TIME: {_labels(tp): time_s for tp, (_, time_s) in anchored.items()},
        metrics.CHORE_FAILURES: {(name,): float(times) for name, times in failing.items()},
    }


def _labels(tp: TopicPartition) -> tuple[str, str]:
    return tp[0], str(tp[1])
