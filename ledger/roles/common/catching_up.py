"""Reads the log up to its true end, as every take-over does, and names the partitions that are behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ledger.ports import Clock, Marks, Reader, TopicPartition
from ledger.roles.common.candidacy import Candidacy

STILL_S = 2.0  # a partition whose position has not moved for this long is reported as stuck


class Behind(NamedTuple):
    """A partition that is not read up to its high watermark. still_s: seconds since its position last moved."""

    topic: str
    partition: int
    position: int
    high_watermark: int
    still_s: float

    def __str__(self) -> str:
        where = f"{self.topic}[{self.partition}]"
        if self.still_s < STILL_S:
            return f"reading {where}, at {self.position} of {self.high_watermark}"
        return (
            f"{where}, which stands at {self.position} of {self.high_watermark} for {self.still_s:.0f} s: "
            f"an open transaction, or a broker is away"
        )


class CatchUp:
    """Follows a reader's position on its way to the given high watermarks."""

    def __init__(self, marks: Marks, clock: Clock) -> None:
        self._marks, self._clock = marks, clock
        self._moved: dict[TopicPartition, tuple[int, float]] = {}

    def behind(self, position: Marks) -> list[Behind]:
        """The partitions that are not read up to their marks, the longest stuck first; [] once all are."""
        now, found = self._clock.monotonic(), []
        for tp, mark in self._marks.items():
            at = position.get(tp, 0)
            if at >= mark:
                continue
            if self._moved.get(tp, (-1, 0.0))[0] != at:
                self._moved[tp] = (at, now)
            found.append(Behind(*tp, at, mark, now - self._moved[tp][1]))
        return sorted(found, key=lambda one: -one.still_s)


def read_up_to(marks: Marks, reader: Reader, read: Callable[[], None], candidacy: Candidacy, clock: Clock) -> None:
    """Calls `read`, which polls once, until the marks are reached. Raises: Fenced if the lease ends before that."""
    catch_up = CatchUp(marks, clock)
    while behind := catch_up.behind(reader.position()):
        candidacy.require_lease("reading the log")
        candidacy.waits_for = str(behind[0])
        read()
    candidacy.waits_for = "its claim"
