"""Leadership by ZooKeeper, and the list of its candidates."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Sequence

from ledger.adapters.candidate_thread import CandidateThread
from ledger.adapters.clock import SystemClock
from ledger.adapters.zookeeper import recipe
from ledger.adapters.zookeeper.link import ConnectionLoss, KazooException, Link, NoNodeError
from ledger.adapters.zookeeper.names import ResolvedNames
from ledger.adapters.zookeeper.node_strategy import NodeStrategy
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from ledger.errors import Unreachable
from ledger.ports import Candidate, Clock


class ZooKeeperLeadership(CandidateThread):
    """Implements `ports.Leadership` with a node below `path` (`ZooKeeperSettings.candidates`).

    A lease counts from the moment when the last answered renewal was sent. It ends after two thirds of the session
    timeout, so before the servers can delete the node and another candidate can lead. A lost connection alone does not
    end a lease.

    Raises: ValueError if the settings name no hosts."""

    def __init__(
        self, settings: ZooKeeperSettings, path: str, *, who: str = "", clock: Clock | None = None, owner: str = ""
    ) -> None:
        clock = clock or SystemClock()
        names = ResolvedNames()
        recipe.hosts(settings.hosts)  # raises

        def open_link(known: Sequence[tuple[str, int]]) -> Link:
            return Link(settings, known, names, clock, strategy.wake)

        strategy = NodeStrategy(open_link, path, who, os.getpid(), owner or uuid.uuid4().hex, clock)
        super().__init__(strategy, f"zookeeper {path}", who, clock)


def candidates(
    settings: ZooKeeperSettings, path: str, *, clock: Clock | None = None, timeout_s: float = 5.0
) -> list[Candidate]:
    """Returns the candidates in the order in which they would lead, as their nodes describe them.

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
        reason = link.over or f"no answer within {timeout_s:g} s"
        raise Unreachable(f"ZooKeeper at {settings.hosts}: {reason}.") from error
    except KazooException as error:
        raise Unreachable(f"ZooKeeper at {settings.hosts} refuses: {type(error).__name__}.") from error
    finally:
        threading.Thread(target=link.end, daemon=True).start()
