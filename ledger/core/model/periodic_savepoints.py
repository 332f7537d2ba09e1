"""The name of a periodic savepoint request: `periodic-<attempt>-<id>-<try>` (decision 27).

`<attempt>-<id>` is the newest savepoint before the request, 0-0 if there was none. Every leader therefore writes the
same register, and any later savepoint answers the request. An unanswered request is repeated with a higher `try`, each
time after twice as long.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ledger.core.model.facts import SavepointPolicy
from ledger.core.model.policies import SECONDS_MAX
from ledger.core.model.registers import CHECKPOINT_ID_MAX, NUMBER_MAX

TRIES_MAX = 20  # the last one waits a million intervals
_UUID = re.compile(r"periodic-(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]?)\Z")
CheckpointId = tuple[int, int]  # attempt, id within the attempt
NO_SAVEPOINT: CheckpointId = (0, 0)


class Periodic(NamedTuple):
    """A periodic savepoint request. after: (attempt, id) of the newest savepoint before the request. tries: the number
    of earlier requests after the same savepoint."""

    after: CheckpointId
    tries: int

    @property
    def uuid(self) -> str:
        return f"periodic-{self.after[0]}-{self.after[1]}-{self.tries}"

    def wait_s(self, policy: SavepointPolicy) -> float:
        """Seconds until this request is due, from the savepoint or the request before it."""
        return min(policy.interval_s * (1 << self.tries), SECONDS_MAX)


def parse(uuid: str | None) -> Periodic | None:
    """The periodic request with this uuid; None if a person made the request, or if there is no request."""
    found = _UUID.match(uuid) if uuid else None
    if found is None:
        return None
    attempt, id_, tries = map(int, found.groups())
    known = attempt <= NUMBER_MAX and id_ <= CHECKPOINT_ID_MAX and tries <= TRIES_MAX
    return Periodic((attempt, id_), tries) if known else None
