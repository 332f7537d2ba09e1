"""Who has led: the claims of both roles, as they stand in the log. The one with the highest epoch is law."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ledger.core.model.facts import LeaderClaimed
from ledger.core.model.registers import parse_claim
from ledger.ports import Record
from ledger.reader.reading import Source, Tail

NOBODY: Mapping[str, str] = {}
_ONE = 0  # a leader claims every partition of its topic in one transaction: to know who claimed, one of them will do
_POLLS_MAX = 10


class Claim(NamedTuple):
    """since: append time in seconds since the epoch. reason: why leadership came to the writer. reaches: runner -> instance
    of it that answered the writer; of reconcilers alone."""

    role: str
    epoch: int
    writer: str
    since: float
    reason: str
    reaches: Mapping[str, str] = NOBODY


def read_claims(source: Source) -> list[Claim]:
    """Every claim of each role, the newest first. A role claims where it writes, under a key that is never tombstoned."""
    found: dict[tuple[str, int], Claim] = {}
    with _tail(source) as tail:
        for records in tail.to_end():
            for claim, _ in _claims(source, records):
                found.setdefault((claim.role, claim.epoch), claim)
    return sorted(found.values(), key=lambda claim: (claim.role, -claim.epoch))


class ClaimFollower:
    """The newest claim of each role, now and from now on: each record of the log is read once.

    Raises: what a `ports.Reader` raises.
    """

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
        """As far as the log was read without waiting, and whether it was claimed after this follower was made.
        None: no claim was seen yet."""
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
