"""The leaders of both roles over time, from their claims in the log. The claim of the highest epoch decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ledger.core.model.facts import LeaderClaimed
from ledger.core.model.registers import parse_claim
from ledger.ports import Record
from ledger.reader.reading import Source, Tail

NOBODY: Mapping[str, str] = {}
_ONE = 0  # a leader claims every partition of its topic in one transaction, so one partition names all leaders
_POLLS_MAX = 10


class Claim(NamedTuple):
    """A claim of leadership. since: append time, seconds since the epoch. reason: why the writer became leader. reaches:
    runner -> the instance that answered a reconciler; empty for other roles."""

    role: str
    epoch: int
    writer: str
    since: float
    reason: str
    reaches: Mapping[str, str] = NOBODY


def read_claims(source: Source) -> list[Claim]:
    """Every claim of each role, newest first."""
    found: dict[tuple[str, int], Claim] = {}
    with _tail(source) as tail:
        for records in tail.to_end():
            for claim, _ in _claims(source, records):
                found.setdefault((claim.role, claim.epoch), claim)
    return sorted(found.values(), key=lambda claim: (claim.role, -claim.epoch))


class ClaimFollower:
    """Follows the newest claim of each role. Reads each record of the log once. Raises: as `ports.Reader`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tail = _tail(source)
        try:
            self._ends = self._tail.high_watermarks()
        except BaseException:
            self._tail.close()
            raise
        self._newest: dict[str, tuple[Claim, bool]] = {}

    def newest(self, role: str) -> tuple[Claim, bool] | None:
        """The newest claim that was read so far, and whether it was appended after this follower was made; None = no claim
        was read. Does not wait."""
        for _ in range(_POLLS_MAX):
            records = self._tail.more(0)
            for claim, record in _claims(self._source, records):
                known = self._newest.get(claim.role)
                if known is None or claim.epoch > known[0].epoch:
                    is_new = record.offset() >= self._ends.get((record.topic(), record.partition()), 0)
                    self._newest[claim.role] = (claim, is_new)
            if not records:
                break
        return self._newest.get(role)

    def close(self) -> None:
        self._tail.close()


def _tail(source: Source) -> Tail:
    return Tail(source, [source.topics.events, source.topics.recovery], _ONE)


def _claims(source: Source, records: Iterable[Record]) -> Iterator[tuple[Claim, Record]]:
    for record in records:
        claim, value = parse_claim(record.key()), record.value()
        if claim is not None and value is not None:
            yield _claim(source, *claim, value, record.timestamp()[1] / 1000), record


def _claim(source: Source, role: str, epoch: int, value: bytes, since: float) -> Claim:
    try:
        fact = source.codec.decode(LeaderClaimed, value)
    except ValueError:
        return Claim(role, epoch, "", since, "the record can't be read")
    return Claim(role, epoch, fact.writer, since, fact.reason, fact.reaches)
