"""Headroom: how long until log compaction may remove unarchived records, computed periodically, with an alarm.

It runs on its own thread beside the archiver, because headroom shrinks when the archiver hangs in a call, or when its
store or Kafka does not answer. The last known values are then extrapolated: they can only have become worse.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from ledger.archive.store.status import ArchiveProgress
from ledger.errors import LedgerError
from ledger.ports import Clock
from ledger.util.loggers import Logger

AGAIN_S = 300.0
LOOKS = 5  # failed looks in a row until FINE becomes UNKNOWN
FINE, SCARCE, OVER, UNKNOWN = "headroom_regained", "headroom_scarce", "headroom_over", "headroom_unknown"
log = Logger("ledger.archive")


@dataclass(frozen=True, slots=True)
class Reckoned:
    """The headroom of all partitions: how long until log compaction may remove unarchived records. found: the archive's
    progress in each partition. at_s: when the values were read (monotonic seconds). state: FINE, SCARCE, OVER or
    UNKNOWN, which are the names of the log events at a change."""

    found: tuple[ArchiveProgress, ...] = ()
    at_s: float = 0.0
    state: str = UNKNOWN


class Headroom:
    """A context manager that computes the headroom every `every_s` seconds, and logs an alarm. ask: returns the
    archive's progress. least: as `archive.headroom_min`."""

    def __init__(self, ask: Callable[[], Sequence[ArchiveProgress]], least: float, every_s: float, clock: Clock) -> None:
        self._ask, self._least, self._every_s, self._clock = ask, least, every_s, clock
        self._seen = Reckoned()
        self._reported, self._again_at = FINE, 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headroom", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        """Stops the thread. If a look hangs, it does not wait for it; the thread then ends with the process."""
        self._over.set()
        self._thread.join(2.0)

    def look(self) -> Reckoned:
        """The headroom, from the archive's present progress. Logs each change of state, and repeats it every AGAIN_S
        while the state is not FINE."""
        why = ""
        try:
            self._seen = Reckoned(tuple(self._ask()), self._clock.monotonic())
        except LedgerError as error:
            why = str(error)
        now = self.now()
        self._tell(now, why)
        return now

    def now(self) -> Reckoned:
        """The headroom now, extrapolated from the last look. The method makes no call; any thread may use it."""
        seen = self._seen
        passed_s = self._clock.monotonic() - seen.at_s
        found = tuple(_aged(one, passed_s) for one in seen.found)
        if any(one.over for one in found):
            return Reckoned(found, seen.at_s, OVER)
        if any(one.scarce(self._least) for one in found):
            return Reckoned(found, seen.at_s, SCARCE)
        return Reckoned(found, seen.at_s, FINE if found and passed_s < LOOKS * self._every_s else UNKNOWN)

    def _tell(self, now: Reckoned, why: str) -> None:
        at, changed = self._clock.monotonic(), now.state != self._reported
        if not changed and (now.state == FINE or at < self._again_at):
            return
        self._reported, self._again_at = now.state, at + AGAIN_S
        if now.state == UNKNOWN:
            log.warning(UNKNOWN, why=why)
            return
        if now.state == FINE:
            if changed:
                log.warning(FINE)
            return
        waiting = [one for one in now.found if one.headroom_s is not None and one.scarce(self._least)]
        worst = min(waiting, key=lambda one: one.headroom_s or 0.0)
        tell = log.error if now.state == OVER else log.warning
        tell(
            now.state, partition=f"{worst.topic}[{worst.partition}]", sealed=worst.sealed,
            headroom_s=round(worst.headroom_s or 0.0, 1), oldest_s=round(worst.oldest_s or 0.0, 1),
            partitions=len(waiting), **({"not_asked": why} if why else {}),
        )  # fmt: skip

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.look()
            except Exception:  # any error: the next look may succeed, and a dead thread could raise no alarm
                logging.getLogger("ledger.archive").exception("the headroom could not be computed")
            self._over.wait(self._every_s)


def _aged(one: ArchiveProgress, passed_s: float) -> ArchiveProgress:
    if one.headroom_s is None or one.oldest_s is None:
        return one
    return replace(one, headroom_s=one.headroom_s - passed_s, oldest_s=one.oldest_s + passed_s)
