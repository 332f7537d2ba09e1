"""Leadership without the lock, with any election adapter: for tests of fencing (`--force-lead`)."""

from __future__ import annotations

from ledger.ports import Leadership, Standing


class ForcedLeadership:
    """Implements `ports.Leadership`. Leads without a lock until `release`; from then on `inner`, the election's
    candidate, decides. If two forced leaders led again after a fence, they would fence each other in turn for ever
    (decision 5)."""

    def __init__(self, inner: Leadership, *, who: str = "") -> None:
        self._inner, self._who, self._forced = inner, who, True

    def acquire(self) -> bool:
        return self._forced or self._inner.acquire()

    def valid(self) -> bool:
        return self._forced or self._inner.valid()

    def release(self) -> None:
        self._forced = False
        self._inner.release()

    def standing(self) -> Standing:
        if self._forced:
            return Standing(True, None, self._who, because="it leads without the lock (--force-lead)")
        return self._inner.standing()

    def close(self) -> None:
        self._forced = False
        self._inner.close()
