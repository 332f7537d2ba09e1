"""The claims of one leader, for as long as it leads.

A claim is written once and never removed. If somebody tombstones it, its epoch would look unclaimed after log compaction.
The leader therefore writes the same record again: same key, value and headers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.ports import Event, Record


class OwnClaims:
    def __init__(self, claims: Sequence[Event] = ()) -> None:
        """claims: the committed ones, one for each partition."""
        self._claims = {(claim.partition, claim.key): claim for claim in claims}
        self._gone: dict[int, Event] = {}
        self.again: set[int] = set()  # partitions where a claim was written again

    def note(self, record: Record) -> None:
        """Notes a record if it is the tombstone of one of this leader's claims. record: of the topic of the claims."""
        claim = self._claims.get((record.partition(), record.key() or b""))
        if claim is not None and record.value() is None:
            self._gone[claim.partition] = claim

    def take(self) -> list[Event]:
        """Returns the tombstoned claims to write again, each once."""
        gone, self._gone = list(self._gone.values()), {}
        self.again |= {claim.partition for claim in gone}
        return gone
