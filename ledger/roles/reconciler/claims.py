"""The claims of reconcilers, as one reconciler reads them from `ledger.events`."""

from __future__ import annotations

from collections.abc import Callable

from ledger.core.model.facts import LeaderClaimed
from ledger.core.model.registers import parse_claim
from ledger.ports import Marks, Reader
from ledger.roles.common.own_claims import OwnClaims
from ledger.roles.reconciler.instances import NO_CLAIM

ROLE = "reconciler"


class ClaimReader:
    """Reads the claims of reconcilers from offset 0 on.

    decode: the value of a claim. highest: the highest epoch claimed so far, 0 = none. predecessor: the claim of that epoch.
    own: the claims of this term; set them once they are committed.
    """

    def __init__(
        self, reader: Reader, decode: Callable[[type[LeaderClaimed], bytes], LeaderClaimed], records_max: int
    ) -> None:
        self.reader, self._decode, self._records_max = reader, decode, records_max
        self.highest, self.predecessor, self.own = 0, NO_CLAIM, OwnClaims()

    def read(self, timeout_s: float) -> None:
        """Reads one poll's records. Raises: Unreachable, TemporaryError of the reader."""
        for record in self.reader.poll(self._records_max, timeout_s):
            claim = parse_claim(record.key())
            if claim is None or claim[0] != ROLE:
                continue
            self.own.note(record)
            if claim[1] > self.highest:
                self.highest, self.predecessor = claim[1], self._decoded(record.value())

    def ends(self) -> Marks:
        """The high watermark of each partition."""
        return self.reader.high_watermarks()

    def _decoded(self, value: bytes | None) -> LeaderClaimed:
        """Only the epoch, in the key, has effect. The value is for people, so an unreadable one is no error."""
        try:
            return self._decode(LeaderClaimed, value or b"")
        except ValueError:
            return NO_CLAIM
