"""A killed broker left a transaction open for ever in a partition. Every take-over ends it, and a leader that meets one
takes over again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.core.model.registers import NOOP_KEY
from ledger.errors import Fenced, Unreachable
from ledger.ports import Event
from ledger.roles.common.standstill import ASK_S, PATIENCE_S, Standstill
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import EVENTS, PARTITIONS, RECOVERY, REJECTS, World, run

PROJECTORS_ID = f"{RECOVERY}-projector"
RECONCILERS_ID = f"{EVENTS}-reconciler"


def leave_open(world: World, transactional_id: str, *topics: str) -> None:
    """Leaves an open transaction, as if the markers of the leader's last transaction had been lost."""
    epoch = world.log._epochs.get(transactional_id) or world.log.init(transactional_id)
    for topic in topics:
        for partition in range(world.log.partitions(topic)):
            world.log.produce(world.log.begin(transactional_id, epoch), Event(topic, partition, NOOP_KEY.encode(), None))
    world.log.lose_markers(transactional_id)


def test_a_take_over_ends_what_its_predecessor_left_open() -> None:
    world = World()
    leave_open(world, PROJECTORS_ID, EVENTS, RECOVERY, REJECTS)
    world.submit("job")
    projector = world.projector()
    run(projector)
    entry = world.entry("job")
    assert projector.epoch == 1 and entry is not None
    assert all(world.log.reader([topic]).poll(100, 0) for topic in (EVENTS, RECOVERY, REJECTS))


def test_a_reconcilers_take_over_ends_what_its_predecessor_left_open(tmp_path: Any) -> None:
    cluster = Cluster(tmp_path)
    leave_open(cluster, RECONCILERS_ID, EVENTS)
    run(cluster.r, steps=2)  # alone: a projector that took over now would wait for it, here on the same thread
    cluster.job("job")
    cluster.go(12)
    assert cluster.state("job") == "RUNNING"


@pytest.mark.parametrize("role", ["projector", "reconciler"])
def test_a_leader_that_stands_still_takes_over_from_itself(tmp_path: Any, role: str) -> None:
    cluster = Cluster(tmp_path)
    cluster.go(6)
    leave_open(cluster, {"projector": PROJECTORS_ID, "reconciler": RECONCILERS_ID}[role], EVENTS)
    cluster.job("job")
    cluster.go(6)
    assert cluster.entry("job") is None
    leader = {"projector": cluster.p, "reconciler": cluster.r}[role]
    for _ in range(8):
        cluster.clock.advance(ASK_S)
        run(leader, steps=2)
    assert leader.epoch == 2
    cluster.go(12)
    assert cluster.state("job") == "RUNNING"


class Stands:
    """A reader whose position the test sets."""

    def __init__(self) -> None:
        self.at, self.end, self.up = 0, 0, True

    def position(self) -> dict[tuple[str, int], int]:
        return {("t", 0): self.at}

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        if not self.up:
            raise Unreachable("away")
        return {("t", 0): self.end}


def ticks(standstill: Standstill, clock: Any, seconds: float, between: Callable[[], None] = lambda: None) -> None:
    for _ in range(int(seconds)):
        clock.advance(1.0)
        between()
        standstill.check()


def test_only_a_position_that_does_not_move_is_a_standstill() -> None:
    clock, reader = World().clock, Stands()
    standstill = Standstill(reader, clock)  # type: ignore[arg-type]
    ticks(standstill, clock, 10 * PATIENCE_S)
    reader.end = 1_000_000

    def moves() -> None:
        reader.at += 1

    ticks(standstill, clock, 10 * PATIENCE_S, moves)  # slow progress is no standstill
    with pytest.raises(Fenced, match=r"t\[0\], which stands at \d+ of 1000000"):
        ticks(standstill, clock, 2 * PATIENCE_S)


def test_a_log_that_does_not_answer_for_a_moment_is_no_standstill() -> None:
    clock, reader = World().clock, Stands()
    standstill = Standstill(reader, clock)  # type: ignore[arg-type]
    for _ in range(10):
        reader.up = False
        ticks(standstill, clock, PATIENCE_S - ASK_S)
        reader.up = True
        ticks(standstill, clock, ASK_S)


def test_a_log_that_does_not_answer_for_long_ends_a_term() -> None:
    clock, reader = World().clock, Stands()
    standstill = Standstill(reader, clock)  # type: ignore[arg-type]
    ticks(standstill, clock, 10 * PATIENCE_S)
    reader.up, reader.end = False, 5
    with pytest.raises(Unreachable):
        ticks(standstill, clock, PATIENCE_S + ASK_S)


class CutOff:
    """The log for one instance. While `up` is False, the broker does not answer it: polls return nothing, without an
    error."""

    def __init__(self, log: Any) -> None:
        self._log, self.up = log, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def writer(self, transactional_id: str) -> Any:
        if not self.up:
            raise Unreachable("no answer from Kafka")
        return self._log.writer(transactional_id)

    def reader(self, *given: Any) -> Any:
        return _CutOffReader(self, self._log.reader(*given))


class _CutOffReader:
    def __init__(self, log: CutOff, reader: Any) -> None:
        self._log, self._reader = log, reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def poll(self, records_max: int, timeout_s: float) -> Any:
        return self._reader.poll(records_max, timeout_s) if self._log.up else []

    def high_watermarks(self) -> Any:
        if not self._log.up:
            raise Unreachable("no answer from Kafka")
        return self._reader.high_watermarks()


def test_a_projector_that_loses_the_log_alone_and_has_nothing_to_write_lets_another_lead() -> None:
    """It holds its lease, so only its own check of the log can detect the loss."""
    world, logs = World(), []
    cut_off, other = (world.projector(name, wrap=lambda log: logs.append(CutOff(log)) or logs[-1]) for name in ("p1", "p2"))
    run(cut_off)
    assert cut_off.epoch == 1
    logs[0].up = False
    world.submit("job")
    for _ in range(10):
        world.clock.advance(ASK_S)
        run(cut_off, steps=1)
        run(other, steps=2)
    entry = world.entry("job")
    assert (cut_off.epoch, other.epoch) == (0, 2) and entry is not None
    logs[0].up = True
    run(cut_off)
    assert (cut_off.epoch, other.epoch) == (0, 2)


def test_a_no_op_is_written_to_every_partition_and_means_nothing() -> None:
    world = World()
    projector = world.projector()
    run(projector)
    for topic, count in ((EVENTS, PARTITIONS), (RECOVERY, PARTITIONS), (REJECTS, 1)):
        assert all(world.log.records(topic, p)[0].key() == NOOP_KEY.encode() for p in range(count))
    assert not projector.counters["foreign"] and not projector.published.dropped
    assert len(world.log.records(REJECTS, 0)) == 1, "the no-op is no reject"
