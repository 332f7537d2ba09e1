"""The role's side of the election by ZooKeeper, and who stands in it."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Sequence

from ledger.adapters.clock import SystemClock
from ledger.adapters.zookeeper import recipe
from ledger.adapters.zookeeper.keeper import ElectionRequest, ZooKeeperCandidate, ZooKeeperLease
from ledger.adapters.zookeeper.link import ConnectionLoss, KazooException, Link, NoNodeError
from ledger.adapters.zookeeper.names import ResolvedNames
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from ledger.errors import Unreachable
from ledger.ports import Candidate, Clock, Standing

CLOSE_S = 1.0


class ZooKeeperLeadership:
    """Implements `ports.Leadership`: one candidate at a time under `path` (`ZooKeeperSettings.candidates`).

    The lease counts from the sending of the last renewal that was answered and ends at two thirds of the session, so before
    the servers can give the place to another. A connection that is lost ends nothing by itself. Nothing here waits: the
    keeper's thread does.

    Raises: ValueError if the settings name no hosts."""

    def __init__(
        self, settings: ZooKeeperSettings, path: str, *, who: str = "", clock: Clock | None = None, owner: str = ""
    ) -> None:  # fmt: skip
        self._clock = clock or SystemClock()
        self._who, self._pid = who, os.getpid()
        names = ResolvedNames()
        recipe.hosts(settings.hosts)  # raises

        def open_link(known: Sequence[tuple[str, int]]) -> Link:
            return Link(settings, known, names, self._clock, keeper.wake)

        keeper = self._keeper = ZooKeeperCandidate(open_link, path, who, self._pid, owner or uuid.uuid4().hex, self._clock)
        self._thread = threading.Thread(target=keeper.run, name=f"zookeeper {path}", daemon=True)
        self._started = False

    def acquire(self) -> bool:
        keeper = self._keeper
        if keeper.closing or os.getpid() != self._pid:
            return False
        if not keeper.wish.wanted:
            keeper.wish = ElectionRequest(True, keeper.wish.term)
            keeper.wake()
        if not self._started:
            self._started = True
            self._thread.start()
        return self.valid()

    def valid(self) -> bool:
        return self._lease() is not None

    def release(self) -> None:
        keeper = self._keeper
        if keeper.wish.wanted:
            # The term goes first: from here on the keeper can't make it lead again.
            keeper.wish = ElectionRequest(False, keeper.wish.term + 1)
            keeper.wake()

    def standing(self) -> Standing:
        keeper, held = self._keeper, self._lease()
        notes, silent_since, now = keeper.notes, keeper.silent_since, self._clock.monotonic()
        if held is not None:
            return Standing(True, max(0.0, held.until - now), self._who, "", notes.because)
        if not keeper.wish.wanted:
            return Standing(False, None, "", "nothing: it is no candidate now", notes.because)
        if silent_since is not None:
            waits_for = f"zookeeper: no answer from {keeper.members} for {now - silent_since:.0f} s"
            return Standing(False, None, "", waits_for, notes.because)
        return Standing(False, None, notes.leader, notes.waits_for or "its next renewal", notes.because)

    def close(self) -> None:
        if self._keeper.closing:
            return
        self.release()
        self._keeper.closing = True
        self._keeper.wake()
        if self._started and os.getpid() == self._pid:
            self._thread.join(CLOSE_S)

    def _lease(self) -> ZooKeeperLease | None:
        """A forked child has no keeper, and leads nothing."""
        keeper = self._keeper
        held, wish = keeper.held, keeper.wish
        if held is None or not wish.wanted or held.term != wish.term or os.getpid() != self._pid:
            return None
        return held if self._clock.monotonic() < held.until else None


def candidates(
    settings: ZooKeeperSettings, path: str, *, clock: Clock | None = None, timeout_s: float = 5.0
) -> list[Candidate]:
    """Who wants to lead, in the order in which they would, as they say themselves.

    Raises: Unreachable."""
    clock = clock or SystemClock()
    changed = threading.Event()
    link = Link(settings, [], ResolvedNames(), clock, changed.set)
    deadline = clock.monotonic() + timeout_s
    try:
        link.start()
        while not link.is_connected and not link.over and clock.monotonic() < deadline:
            changed.wait(max(0.0, deadline - clock.monotonic()))
            changed.clear()
        line = recipe.in_line(link.children(path))
        found = []
        for at, node in enumerate(line):
            try:
                data, _ = link.read(f"{path}/{node.name}")
            except NoNodeError:
                continue  # it has just left
            found.append(recipe.candidate(recipe.decode(data), first=at == 0, now=clock.time()))
        return found
    except NoNodeError:
        return []
    except ConnectionLoss as error:
        what = link.over or f"no answer within {timeout_s:g} s"
        raise Unreachable(f"ZooKeeper at {settings.hosts}: {what}.") from error
    except KazooException as error:
        raise Unreachable(f"ZooKeeper at {settings.hosts} refuses: {type(error).__name__}.") from error
    finally:
        threading.Thread(target=link.end, daemon=True).start()
