"""The rules of the audit of `ledger.events`. Pure, and standard library only: no clock, no I/O.

Pass every record of the topic to `Rules.judge`, each partition in offset order. Call `Rules.tick` regularly once there
is nothing more to read. An id of a finding is computed from the records only, so every reader gets the same ids.

Memory is bounded. The rules keep five tables of at most `memory_max` entries each: event ids, sources, sources with a
missing number, retired jobs, and jobs with recent attempts. A full table drops its oldest entry, and `Rules.forgotten`
counts it. If the count is not zero, a resend of a very old event may be reported, and a missing number, or a late
record of a job retired long ago, may be missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from consumers.keys import Key
from consumers.memory import Table, digest

#: Most ranges of missing numbers that are kept for one source in one partition. Older ranges are dropped.
GAPS_MAX = 100
_SHOWN_CHARS = 200
#: The key of a tombstone without meaning and without headers. All other keys of the ledger itself are judged, such as
#: claims of leaders.
_NOOP = "~noop"

#: Rule -> what it finds.
RULES: Mapping[str, str] = {
    "result": "a record for a job that already has a result",
    "reason": "a change without a reason",
    "restarts": "many attempts of a job in a short time",
    "actor": "an actor that is not on the list",
    "sequence": "a missing or duplicate sequence number of a source",
    "identity": "an event id that was used again for another key or value",
    "headers": "a record whose headers do not name its writer",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of the rules. actors: patterns (`*@host`) of permitted actors; empty: anybody. restarts_max: this many
    attempts of one job within restarts_window_s seconds are a finding. gap_grace_s: seconds to wait for a missing
    number. gap_window_s: the topic's min.compaction.lag in seconds; older missing numbers may have been compacted away
    and are not reported. memory_max: most entries of each table."""

    actors: tuple[str, ...] = ()
    restarts_max: int = 5
    restarts_window_s: float = 600.0
    gap_grace_s: float = 10.0
    gap_window_s: float = 86_400.0
    memory_max: int = 200_000


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that the rules judge. time_s: append time, in seconds since the epoch. value: the raw bytes. fields: the
    decoded value; None for a tombstone or an unreadable value. headers: if a name occurs several times, the first."""

    topic: str
    partition: int
    offset: int
    time_s: float
    key: Key
    raw_key: bytes
    value: bytes | None
    fields: Mapping[str, Any] | None
    headers: Mapping[str, str]

    @property
    def place(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @property
    def event(self) -> str:
        return self.headers.get("ce_id", "")


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of a rule by an event. id: the same for every copy of a resent record."""

    id: str
    rule: str
    job: str
    event: str
    place: str
    time: str
    what: str


@dataclass(slots=True)
class _Run:
    """A range of missing numbers, first to last. before_s: append time of the record before them; None if unknown.
    shown_by: the record after the gap, as shortened by `_kept`; None once the grace period is over."""

    first: int
    last: int
    before_s: float | None
    shown_by: Seen | None


@dataclass(slots=True)
class _Line:
    """One source in one partition. high: its highest number. floor: numbers up to this one are no longer tracked."""

    high: int = 0
    high_s: float | None = None
    floor: int = 0
    runs: list[_Run] = field(default_factory=list)


@dataclass(slots=True)
class _Partition:
    offset: int
    begin_s: float | None


class Rules:
    """The state of all rules for one topic."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.forgotten: Counter[str] = Counter()
        limit, forgotten = settings.memory_max, self.forgotten
        self._partitions: dict[int, _Partition] = {}
        self._ids: Table[bytes, bytes] = Table("event ids", limit, forgotten)
        self._lines: Table[tuple[bytes, int], _Line] = Table("sources", limit, forgotten)
        # Job -> key -> position of its results. There may be two, and one of them may expire before the other.
        self._retired: Table[bytes, dict[bytes, str]] = Table("retired jobs", limit, forgotten)
        self._attempts: Table[bytes, list[tuple[int, float]]] = Table("attempts", limit, forgotten)
        self._waiting: Table[tuple[bytes, int], _Line] = Table("gaps", limit, forgotten)  # sources with a missing number

    def judge(self, seen: Seen, now_s: float) -> list[Finding]:
        """The findings that this record causes. now_s: the time of reading, in seconds since the epoch. Idempotent: a
        record at or below a judged offset causes no finding, and neither does a resend (the same event id and the same
        bytes).

        Order: within a partition, by offset.
        """
        known = self._partitions.get(seen.partition)
        if known is not None and seen.offset <= known.offset:
            return []
        if known is None:
            begin_s = seen.time_s if seen.offset == 0 else None
            self._partitions[seen.partition] = known = _Partition(seen.offset, begin_s)
        known.offset = seen.offset
        found = list(self._settle(seen.time_s, now_s, seen.partition))
        if seen.key.register == _NOOP:
            return found + list(self._number(seen, known, now_s))
        if seen.event:
            before, content = self._ids.get(digest(seen.event)), digest(seen.raw_key, seen.value)
            if before == content:
                return found
            self._ids.put(digest(seen.event), content)
            if before is not None:
                what = "the event id was used before, for another key or value"
                found.append(_finding(seen, "identity", what, seen.place))
        found += self._headers(seen)
        found += self._actor(seen)
        found += self._number(seen, known, now_s)
        found += self._result(seen)
        found += self._reason(seen)
        return found + list(self._restarts(seen))

    def tick(self, now_s: float) -> list[Finding]:
        """The findings about missing numbers whose grace period is over. Call it once all records are read. now_s: by
        the same kind of clock as the append times."""
        return list(self._settle(now_s, now_s))

    # -- the rules -----------------------------------------------------------------------------------------------------

    def _headers(self, seen: Seen) -> Iterator[Finding]:
        names = ("ce_id", "ce_source", "ce_sequence")
        missing = [n for n in names if not seen.headers.get(n)]
        if not missing and _sequence(seen) is None:
            missing = ["ce_sequence"]
        if missing:
            yield _finding(seen, "headers", f"the headers do not say {', '.join(missing)}")

    def _actor(self, seen: Seen) -> Iterator[Finding]:
        actor = seen.headers.get("ledger_actor", "")
        if self._settings.actors and not any(fnmatchcase(actor, pattern) for pattern in self._settings.actors):
            yield _finding(seen, "actor", f"written by {actor[:_SHOWN_CHARS] or 'nobody'}, who is not on the list")

    def _result(self, seen: Seen) -> Iterator[Finding]:
        job = digest(seen.key.job)
        places = self._retired.get(job) or {}
        if seen.key.register == "result":
            result = digest(seen.raw_key)
            if seen.value is not None and result not in places:
                self._retired.put(job, {**places, result: seen.place})
            elif seen.value is None and places.pop(result, None) is not None and not places:
                self._retired.drop(job)
        elif seen.value is not None and places:
            yield _finding(seen, "result", f"{seen.key.register} of a job whose result is at {next(iter(places.values()))}")

    def _reason(self, seen: Seen) -> Iterator[Finding]:
        if seen.key.register == "intent" and seen.fields is not None and not str(seen.fields.get("reason", "")).strip():
            yield _finding(seen, "reason", f"{seen.fields.get('kind', 'a change')} without a reason")

    def _restarts(self, seen: Seen) -> Iterator[Finding]:
        """Each excess attempt is a finding of its own. The id of one finding for the whole burst would depend on which
        of its records still exist."""
        if seen.key.register != "attempt" or seen.value is None:
            return
        job, limit = digest(seen.key.job), self._settings.restarts_max
        recent = self._attempts.get(job) or []
        if any(n == seen.key.n for n, _ in recent):
            return  # another leader's record of the same attempt
        recent = [*recent, (seen.key.n, seen.time_s)][-limit:]
        self._attempts.put(job, recent)
        if len(recent) == limit and (took_s := seen.time_s - recent[0][1]) <= self._settings.restarts_window_s:
            yield _finding(seen, "restarts", f"attempt {seen.key.n} is the {limit}th within {took_s:.0f} s")

    def _number(self, seen: Seen, partition: _Partition, now_s: float) -> Iterator[Finding]:
        source, number = seen.headers.get("ce_source", ""), _sequence(seen)
        if not source or number is None:
            return
        key = digest(source), seen.partition
        line = self._lines.get(key)
        if line is None:
            # If the first record of a source is not its number 1, earlier records are known to be missing only if the
            # topic was read from offset 0.
            line = _Line(high_s=None if self.forgotten["sources"] else partition.begin_s)
        if number > line.high:
            if number > line.high + 1:
                line.runs.append(_Run(line.high + 1, number - 1, line.high_s, _kept(seen)))
            line.high, line.high_s = number, seen.time_s
        elif number > line.floor and not _fill(line, number):
            detail = f"{source} {number}"
            yield _finding(seen, "sequence", f"number {number} of {source[:_SHOWN_CHARS]} appears again", detail)
        if len(line.runs) > GAPS_MAX:
            oldest = line.runs.pop(0)
            line.floor = oldest.last
            if oldest.shown_by is not None and self._is_young(oldest, now_s):  # it might have been reported
                self.forgotten["gaps"] += 1
        self._lines.put(key, line)
        if any(run.shown_by is not None for run in line.runs):
            self._waiting.put(key, line)

    def _settle(self, reached_s: float, now_s: float, partition: int | None = None) -> Iterator[Finding]:
        """The findings about gaps whose grace period is over. Their numbers stay known, because they may still
        arrive."""
        for key, line in self._waiting.items():
            if partition is not None and key[1] != partition:
                continue
            for run in line.runs:
                shown_by = run.shown_by
                if shown_by is None or reached_s < shown_by.time_s + self._settings.gap_grace_s:
                    continue
                run.shown_by = None
                if self._is_young(run, now_s):
                    yield _gap(run, shown_by)
            if all(run.shown_by is None for run in line.runs):
                self._waiting.drop(key)

    def _is_young(self, run: _Run, now_s: float) -> bool:
        """Whether these numbers are too young to have been compacted away."""
        return run.before_s is not None and now_s - run.before_s <= self._settings.gap_window_s


def _kept(seen: Seen) -> Seen:
    """The record after a gap without its large parts, because records may be of any size."""
    headers = {name: _bounded(seen.headers.get(name, "")) for name in ("ce_id", "ce_source")}
    return replace(seen, raw_key=b"", value=None, fields=None, headers=headers)


def _bounded(text: str) -> str:
    """The text; if it is longer than any legal one, its beginning and a digest."""
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} {digest(text).hex()}"


def _gap(run: _Run, shown_by: Seen) -> Finding:
    source = shown_by.headers["ce_source"]
    numbers = f"{run.first}" if run.first == run.last else f"{run.first} to {run.last}"
    what = f"number {numbers} of {source[:_SHOWN_CHARS]} is missing in partition {shown_by.partition}"
    detail = f"{source} {shown_by.partition} {run.first} {run.last}"
    return _finding(shown_by, "sequence", what, detail, whose=False)


def _fill(line: _Line, number: int) -> bool:
    """Removes a number from the missing ones. Returns False if it was not missing."""
    for index, run in enumerate(line.runs):
        if run.first <= number <= run.last:
            halves = [(run.first, number - 1), (number + 1, run.last)]
            line.runs[index : index + 1] = [_Run(a, b, run.before_s, run.shown_by) for a, b in halves if a <= b]
            return True
    return False


def _finding(seen: Seen, rule: str, what: str, detail: str = "", whose: bool = True) -> Finding:
    """A finding about a record. detail: distinguishes it from other findings of this rule on the same event. whose:
    whether the finding is about this event, so that its id includes the event."""
    about = [seen.key.job, seen.event or seen.place] if whose else []
    if whose and not seen.key.job:  # it is about no job, so the text names the key
        what = f"{seen.key.register[:_SHOWN_CHARS]}: {what}"
    time = datetime.fromtimestamp(seen.time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    made = digest(rule, *about, detail).hex()
    return Finding(made, rule, seen.key.job, seen.event, seen.place, time, what)


def _sequence(seen: Seen) -> int | None:
    text = seen.headers.get("ce_sequence", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) else None
