"""Removals from an archive after sealing, as notes of its chain record them: records expired, or values were redacted.

The list of leaves stays as it was sealed. So the offset and hash of each removed record remain (a stub), and every
root, anchor and proof stays valid. A record may be missing only if such a note says so; otherwise the archive is
broken. Source: docs/decisions/0035.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.segments import Leaf, Segment
from ledger.ports import Record
from ledger.reader.expiry_gaps import Expired, ExpiredJob

EXPIRED, REDACTED = "expired", "redacted"
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """Removed records of one object. why: EXPIRED or REDACTED. offsets: ranges of sealed records, first and last of
    each. records: how many they are. reason: of a redaction.

    The other fields are those of an expiry. namespace: of the records. until_ms: records that were superseded before
    that moment (milliseconds since the epoch) are gone. below: the offset behind the last older record. jobs: those of
    this namespace that lost records in this partition in the same run, from any object; None: the note is older than
    this field."""

    why: str
    offsets: Ranges
    records: int
    namespace: str = ""
    until_ms: int = 0
    below: int = 0
    reason: str = ""
    jobs: tuple[ExpiredJob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The part of a note about one object. records: the object's name in a manifest, or in the note of a joined run.
    object: the object to read in place of the old one. gone: the records that this rewrite removed. by, at: who removed
    them, and when (RFC 3339). sequence: the number of the note's manifest."""

    records: str
    object: str
    object_sha256: str
    gone: tuple[Gone, ...]
    by: str
    at: str
    sequence: int


class Said(NamedTuple):
    """The removal of one record, and the note that records the removal."""

    gone: Gone
    note: Rewritten


class Absences:
    """Finds the removal of a single record in notes."""

    def __init__(self, rewritten: Iterable[Rewritten]) -> None:
        found: dict[str, list[tuple[int, int, Said]]] = {EXPIRED: [], REDACTED: []}
        for note in rewritten:
            for gone in note.gone:
                found[gone.why] += [(first, last, Said(gone, note)) for first, last in gone.offsets]
        self._spans = {why: sorted(spans, key=lambda span: span[:2]) for why, spans in found.items()}
        self._firsts = {why: [span[0] for span in spans] for why, spans in self._spans.items()}

    def __bool__(self) -> bool:
        return any(self._spans.values())

    def expired(self, offset: int) -> Said | None:
        return self._said(EXPIRED, offset)

    def redacted(self, offset: int) -> Said | None:
        return self._said(REDACTED, offset)

    def _said(self, why: str, offset: int) -> Said | None:
        at = bisect_right(self._firsts[why], offset) - 1
        span = self._spans[why][at] if at >= 0 else None
        return span[2] if span is not None and offset <= span[1] else None


def with_stubs(found: Sequence[Leaf], sealed: Sequence[Leaf] | None, absences: Absences) -> list[Leaf]:
    """The leaves that were found, plus the sealed leaves of records that have expired according to notes. sealed: None
    if the sealed leaves are not available."""
    if not absences or sealed is None:
        return list(found)
    there = {leaf.offset for leaf in found}
    stubs = [leaf for leaf in sealed if leaf.offset not in there and absences.expired(leaf.offset)]
    return sorted([*found, *stubs], key=lambda leaf: leaf.offset) if stubs else list(found)


def ranges(offsets: Collection[int], sealed: Iterable[int]) -> Ranges:
    """The offsets as runs of first and last. sealed: the offsets of all records around, in order. An offset without a
    record does not end a run."""
    found: list[list[int]] = []
    run = False
    for offset in sealed:
        if offset not in offsets:
            run = False
        elif run:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
            run = True
    return tuple((first, last) for first, last in found)


def body_of(rewritten: Sequence[Rewritten], by: str, at: str) -> dict[str, Any]:
    """The body of one note about some objects. It lists the jobs once, beside the objects, so that programs that do not
    know this list can still read the rest."""
    objects = [
        {"records": one.records, "object": one.object, "object_sha256": one.object_sha256,
         "gone": [_plain(gone) for gone in one.gone]}
        for one in rewritten
    ]  # fmt: skip
    jobs = {gone.namespace: gone.jobs for one in rewritten for gone in one.gone if gone.jobs is not None}
    body: dict[str, Any] = {"objects": objects, "by": by, "at": at}
    if jobs:
        body["jobs"] = {name: {job_id: numbers for job_id, *numbers in taken} for name, taken in jobs.items()}
    return body


def _plain(gone: Gone) -> dict[str, Any]:
    plain = asdict(replace(gone, jobs=None))
    del plain["jobs"]
    return plain


def redacted_before(segment: Segment, records: Sequence[Record], by: str, at: str) -> dict[str, Any] | None:
    """The body of a note about values of a segment that were redacted before it was sealed, as in a bundle; None if
    there are no such values."""
    offsets = {record.offset() for record in records if isinstance(record, RedactedRecord)}
    if not offsets:
        return None
    spans = ranges(offsets, [record.offset() for record in records])
    gone = Gone(REDACTED, spans, len(offsets), reason="redacted before this was made; a note of the archive says why")
    return body_of([Rewritten(segment.records, segment.records, segment.records_sha256, (gone,), by, at, -1)], by, at)


def rewritten_of(body: Mapping[str, Any], sequence: int) -> Iterator[Rewritten]:
    """The inverse of `body_of`. Raises: KeyError, TypeError, ValueError if it is not such a body."""
    by, at = str(body["by"]), str(body["at"])
    by_namespace = body.get("jobs", {})
    if not isinstance(by_namespace, dict):
        raise TypeError("jobs must be listed by namespace")
    jobs = {str(name): taken_of(taken) for name, taken in by_namespace.items()}
    for one in body["objects"]:
        names = one["records"], one["object"], one["object_sha256"]
        if any(type(name) is not str for name in names):
            raise TypeError("names of objects must be text")
        yield Rewritten(*names, tuple(_gone(plain, jobs) for plain in one["gone"]), by, at, sequence)


def expired_of(found: Iterable[Gone]) -> list[Expired]:
    """The removals by retention, as readers of the past need them: one per run and namespace, not one per object."""
    made: dict[tuple[str, int, int, tuple[ExpiredJob, ...] | None], int] = {}
    for gone in found:
        key = gone.namespace, gone.until_ms, gone.below, gone.jobs
        made[key] = made.get(key, 0) + gone.records
    return [
        Expired(namespace, until_ms / 1000, below, jobs, records)
        for (namespace, until_ms, below, jobs), records in made.items()
    ]


def taken_of(plain: Mapping[str, Sequence[int]]) -> tuple[ExpiredJob, ...]:
    """The expired jobs of a mapping: job id -> [first, since_ms, below]. Raises: TypeError, ValueError for any other
    value."""
    if not isinstance(plain, Mapping):
        raise TypeError("jobs must be listed by id")
    made = tuple(ExpiredJob(job_id, *numbers) for job_id, numbers in plain.items())
    if any(type(number) is not int or not -1 <= number < 2**63 for _, *numbers in made for number in numbers):
        raise ValueError("not the positions of an expired job")
    return made


def _gone(plain: Mapping[str, Any], jobs: Mapping[str, tuple[ExpiredJob, ...]]) -> Gone:
    made = Gone(**plain)
    spans = tuple((first, last) for first, last in made.offsets)
    numbers = [made.records, made.until_ms, made.below, *(number for span in spans for number in span)]
    if made.why not in (EXPIRED, REDACTED) or any(type(number) is not int for number in numbers):
        raise ValueError("neither an expiry nor a redaction")
    taken = jobs.get(str(made.namespace)) if made.why == EXPIRED else None
    return Gone(made.why, spans, made.records, str(made.namespace), made.until_ms, made.below, str(made.reason), taken)
