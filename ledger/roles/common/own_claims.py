"""The claims of one leader, kept for as long as it leads.

A claim is written once and never removed. Where somebody tombstones it nevertheless, its epoch would look unclaimed once
the cleaner has been there, so the leader writes the same record again: same key, value and headers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.ports import Event, Record


class OwnClaims:
    def __init__(self, claims: Sequence[Event] = ()) -> None:
        """claims: as they were committed, one a partition."""
        self._claims = {(claim.partition, claim.key): claim for claim in claims}
        self._gone: dict[int, Event] = {}
        self.again: set[int] = set()  # partitions where a claim was written again

    def note(self, record: Record) -> None:
        """Looks at a record of the topic: the tombstone of one of these claims?"""
        claim = self._claims.get((record.partition(), record.key() or b""))
        if claim is not None and record.value() is None:
            self._gone[claim.partition] = claim

    def take(self) -> list[Event]:
        """The claims that are to be written again; not twice."""
        gone, self._gone = list(self._gone.values()), {}
        self.again |= {claim.partition for claim in gone}
        return gone
