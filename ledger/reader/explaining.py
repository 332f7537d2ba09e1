"""An explanation of a job (`core.explain`), with the records of the log that are its evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ledger.core.explain import Explanation, Origin, explain
from ledger.core.failures import Failure
from ledger.core.model.periodic_savepoints import parse
from ledger.core.model.recovery import RecoveryEntry
from ledger.reader.publication_lag import differs
from ledger.reader.reading import HistoryRecord, Source, result_of
from ledger.reader.watching import Watch
from ledger.util.times import utc


@dataclass(frozen=True, slots=True)
class RegisterEvidence:
    """A register and its record: position, writer and time. offset: None = the record is no longer in the log. time_s:
    append time. ce_time_s, skew: as in HistoryRecord."""

    register: str
    offset: int | None
    time_s: float | None
    actor: str
    source: str
    epoch: int | None
    text: str = ""
    without_effect: bool = False
    ordinary: bool = True
    ce_time_s: float | None = None
    skew: str = ""


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanation of one job. published_state: of its published entry, "" = it has none. as_of: all records of the
    partition below this offset are published. end: offset behind the job's last record; if as_of is smaller, the
    projector is behind. failures: newest first. periodic: the policy of periodic savepoints in words, "" = none.
    instance: the runner instance that holds the newest attempt, "" = unknown. differs: fields in which the published
    entry differs from the folded one."""

    job_id: str
    state: str
    in_recovery_set: bool
    rule: int
    rule_text: str
    reason: str
    because: tuple[RegisterEvidence, ...]
    waits_for: str
    restore_points: tuple[Origin, ...]
    remarks: tuple[RegisterEvidence, ...]
    partition: int
    published_state: str
    as_of: int
    end: int
    failures: tuple[Failure, ...]
    periodic: str = ""
    instance: str = ""
    differs: tuple[str, ...] = ()
    namespace: str = ""
    name: str = ""


def explained(source: Source, job_id: str) -> Explained:
    with Watch(source, job_id, recovery=True) as watch:
        watch.read()
    job, published = watch.job(), watch.published_entry()
    due_at, due = _due(watch.log.entry(), published)
    fold_says: Explanation = explain(job, source.keep, due_at, due, _stalled_since(watch.log.entry(), published))
    holds = {record.register: record for record in watch.log.history() if not record.tombstone}
    return Explained(
        job_id, fold_says.state, fold_says.in_recovery_set, fold_says.rule, fold_says.rule_text, fold_says.reason,
        tuple(_evidence(name, holds) for name in fold_says.because), fold_says.waits_for, fold_says.restore_points,
        tuple(_evidence(r.register, holds, r.text, r.without_effect, r.ordinary) for r in fold_says.remarks),
        watch.log.partition, str(published.state) if published else "", watch.published_as_of(),
        _end(watch.log.history()), fold_says.failures, _periodic(watch.log.entry(), published),
        _instance(watch.log.entry()),
        differs(published, _at_home(watch.log.entry(), watch.log.partition)), *_names(watch),
    )  # fmt: skip


def _names(watch: Watch) -> tuple[str, str]:
    """Namespace and name, as far as the log holds them."""
    retired = result_of(watch.job())
    known = watch.log.entry() or (retired.result if retired else None)
    return ("", "") if known is None else (known.namespace, known.name)


def _at_home(folded: RecoveryEntry | None, partition: int) -> RecoveryEntry | None:
    return None if folded is None else replace(folded, partition=partition)


def _due(folded: RecoveryEntry | None, published: RecoveryEntry | None) -> tuple[str, bool]:
    """The leader's stamps, if they are for the same start as the folded entry."""
    if folded is None or published is None or published.start_key != folded.start_key or published.due_at is None:
        return "", False
    return utc(published.due_at), published.due


def _stalled_since(folded: RecoveryEntry | None, published: RecoveryEntry | None) -> str:
    if folded is None or published is None or published.progress_key != folded.progress_key or not published.stalled:
        return ""
    return utc(published.stalls_at or 0.0)


def _periodic(folded: RecoveryEntry | None, published: RecoveryEntry | None) -> str:
    """The savepoint policy, the open request, and the time of the next request, in words."""
    if folded is None or folded.savepoint_policy is None:
        return ""
    policy = folded.savepoint_policy
    kept = f"the newest {policy.keep_max} are kept" if policy.keep_max else "all are kept"
    fold_says = f"every {policy.interval_s:g} s, {kept}"
    if any(parse(ask) is not None for ask in folded.asks):
        fold_says += "; one is requested and not complete yet"
    if published is None or published.savepoint_key != folded.savepoint_key or published.savepoint_at is None:
        return fold_says
    return f"{fold_says}; the next request {'is due' if published.savepoint_due else f'at {utc(published.savepoint_at)}'}"


def _instance(folded: RecoveryEntry | None) -> str:
    return "" if folded is None or folded.retiring else folded.instance


def _evidence(
    register: str, holds: dict[str, HistoryRecord], text: str = "", without_effect: bool = False, ordinary: bool = True
) -> RegisterEvidence:  # fmt: skip
    record = holds.get(register)
    if record is None:
        return RegisterEvidence(register, None, None, "", "", None, text, without_effect, ordinary)
    return RegisterEvidence(
        register, record.offset, record.time_s, record.actor, record.source, record.epoch, text, without_effect, ordinary,
        record.ce_time_s, record.skew,
    )  # fmt: skip


def _end(records: Iterable[HistoryRecord]) -> int:
    return max((record.offset + 1 for record in records), default=0)
