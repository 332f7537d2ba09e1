"""What an auditor wants to be told of `ledger.events`. Pure, and standard library only: no clock, no I/O.

Feed every record of the topic to `Rules.judge`, each partition in the order of its offsets, and call `Rules.tick` now and
then once there is nothing more to read. The same records give findings with the same ids, whoever reads them and how often:
all that an id is made of stands in the records.

Memory is bounded. What is remembered is in tables of `memory_max` entries each (event ids, sources, those of them of which
a number is missing, retired jobs, jobs with recent attempts); of a full table the oldest entry is forgotten.
`Rules.forgotten` counts these: where it is not zero, a resend of something very old may be told, and a late record of a job
that was retired long ago, or a number that is missing, may not.
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

#: Runs of missing numbers that are kept for one source in one partition; older ones are not waited for any more.
GAPS_MAX = 100
_SHOWN_CHARS = 200
#: The key of a tombstone that says nothing, and has no headers. All others of the ledger's own keys are judged: a claim
#: says who leads.
_NOOP = "~noop"

#: Rule -> what it finds.
RULES: Mapping[str, str] = {
    "result": "a record for a job that has a result",
    "reason": "a change without a reason",
    "restarts": "many attempts of a job in a short time",
    "actor": "an actor outside the list",
    "sequence": "a number of a source that is missing, or there twice",
    "identity": "an event id that was used again for something else",
    "headers": "a record whose headers do not say who wrote it",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """actors: patterns (`*@host`) of who may write; empty: anybody. restarts_max attempts of one job within
    restarts_window_s are a finding. gap_grace_s: how long a missing number may still come. gap_window_s: the topic's
    min.compaction.lag: of what is older, nobody can tell whether it is missing or was compacted away. memory_max: entries
    of each table."""

    actors: tuple[str, ...] = ()
    restarts_max: int = 5
    restarts_window_s: float = 600.0
    gap_grace_s: float = 10.0
    gap_window_s: float = 86_400.0
    memory_max: int = 200_000


@dataclass(frozen=True, slots=True)
class Seen:
    """One record. time_s: append time, seconds since the epoch. fields: what the value says, None: a tombstone, or nobody
    can read it. value: the raw bytes. headers: of several of one name the first."""

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
    """id: the same for the same finding, whichever copy of a resent record it was found in."""

    id: str
    rule: str
    job: str
    event: str
    place: str
    time: str
    what: str


@dataclass(slots=True)
class _Run:
    """Numbers from first to last that have not come. before_s: append time of the record before them, None: unknown.
    shown_by: the record that shows it, as `_kept` leaves it; None: settled, they had time enough to come."""

    first: int
    last: int
    before_s: float | None
    shown_by: Seen | None


@dataclass(slots=True)
class _Line:
    """One source in one partition. high: its highest number. floor: nothing is known of this number and those below."""

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
        # Job -> key -> place of its results: there may be two, and one of them may expire alone.
        self._retired: Table[bytes, dict[bytes, str]] = Table("retired jobs", limit, forgotten)
        self._attempts: Table[bytes, list[tuple[int, float]]] = Table("attempts", limit, forgotten)
        self._waiting: Table[tuple[bytes, int], _Line] = Table("gaps", limit, forgotten)  # for a number that is missing

    def judge(self, seen: Seen, now_s: float) -> list[Finding]:
        """now_s: the time at which it is read. Idempotent: a record at or below an offset that was judged says nothing new,
        and neither does a resend (the same event id and the same bytes).

        Order: of one partition, by offset."""
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
        """What the passing of time shows, once all is read: numbers that have not come. now_s: by the same kind of clock as
        the append times."""
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
        """Each attempt that is one too many is a finding of its own: the id of one that stands for the whole burst would
        depend on which of its records are still there."""
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
            # The first record of a source that is not its number 1: what was before it is known only where the topic
            # begins.
            line = _Line(high_s=None if self.forgotten["sources"] else partition.begin_s)
        if number > line.high:
            if number > line.high + 1:
                line.runs.append(_Run(line.high + 1, number - 1, line.high_s, _kept(seen)))
            line.high, line.high_s = number, seen.time_s
        elif number > line.floor and not _fill(line, number):
            detail = f"{source} {number}"
            yield _finding(seen, "sequence", f"number {number} of {source[:_SHOWN_CHARS]} is there again", detail)
        if len(line.runs) > GAPS_MAX:
            oldest = line.runs.pop(0)
            line.floor = oldest.last
            if oldest.shown_by is not None and self._is_young(oldest, now_s):  # it might have been told
                self.forgotten["gaps"] += 1
        self._lines.put(key, line)
        if any(run.shown_by is not None for run in line.runs):
            self._waiting.put(key, line)

    def _settle(self, reached_s: float, now_s: float, partition: int | None = None) -> Iterator[Finding]:
        """Tells of the numbers that had time enough to come. Those settled stay known: they may come later still."""
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
        """Whether compaction can't have taken those numbers."""
        return run.before_s is not None and now_s - run.before_s <= self._settings.gap_window_s


def _kept(seen: Seen) -> Seen:
    """What is needed of a record that shows a gap, which may be of any size."""
    headers = {name: _bounded(seen.headers.get(name, "")) for name in ("ce_id", "ce_source")}
    return replace(seen, raw_key=b"", value=None, fields=None, headers=headers)


def _bounded(text: str) -> str:
    """Of what is longer than anybody's, the beginning and a digest."""
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]} {digest(text).hex()}"


def _gap(run: _Run, shown_by: Seen) -> Finding:
    source = shown_by.headers["ce_source"]
    numbers = f"{run.first}" if run.first == run.last else f"{run.first} to {run.last}"
    what = f"number {numbers} of {source[:_SHOWN_CHARS]} is missing in partition {shown_by.partition}"
    detail = f"{source} {shown_by.partition} {run.first} {run.last}"
    return _finding(shown_by, "sequence", what, detail, whose=False)


def _fill(line: _Line, number: int) -> bool:
    """Takes a number that was missing off the list; False if it was not missing."""
    for index, run in enumerate(line.runs):
        if run.first <= number <= run.last:
            halves = [(run.first, number - 1), (number + 1, run.last)]
            line.runs[index : index + 1] = [_Run(a, b, run.before_s, run.shown_by) for a, b in halves if a <= b]
            return True
    return False


def _finding(seen: Seen, rule: str, what: str, detail: str = "", whose: bool = True) -> Finding:
    """detail: what tells it from other findings of this rule on the same event. whose: whether it is about this event."""
    about = [seen.key.job, seen.event or seen.place] if whose else []
    if whose and not seen.key.job:  # it is about no job, but about what that key says
        what = f"{seen.key.register[:_SHOWN_CHARS]}: {what}"
    time = datetime.fromtimestamp(seen.time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    made = digest(rule, *about, detail).hex()
    return Finding(made, rule, seen.key.job, seen.event, seen.place, time, what)


def _sequence(seen: Seen) -> int | None:
    text = seen.headers.get("ce_sequence", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) else None
