"""Abilities of the in-memory log beyond the contract: crash at a step, be down, compact in every legal way."""

from __future__ import annotations

import pytest

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import EndOfTransaction, MemoryLog, NoAnswer
from ledger.errors import Fenced, Unreachable
from ledger.ports import Event


class Crash(Exception):
    """Stands for the end of the process at this point."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> MemoryLog:
    return MemoryLog({"t": 1}, clock, delete_retention_s=100.0)


def append(log: MemoryLog, *pairs: tuple[bytes, bytes | None]) -> None:
    log.append([Event("t", 0, key, value) for key, value in pairs])


def held(log: MemoryLog) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key(), record.value()) for record in log.records("t", 0)]


# -- compaction --------------------------------------------------------------------------------------------------------


def test_the_least_favourable_compaction_leaves_the_last_of_each_key(log: MemoryLog) -> None:
    append(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"a", b"3"))
    assert log.compact("t") == 2
    assert held(log) == [(b"b", b"1"), (b"a", b"3")]
    assert [record.offset() for record in log.records("t", 0)] == [1, 3]
    assert log.compact("t") == 0


def test_any_superseded_record_may_stay(log: MemoryLog) -> None:
    append(log, (b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    asked = []

    def keep_the_first(record) -> bool:
        asked.append(record.value())
        return record.value() == b"1"

    log.compact("t", keep_the_first)
    assert held(log) == [(b"a", b"1"), (b"a", b"3")]
    assert asked == [b"1", b"2"]  # records that must stay are not offered to the callback


def test_a_tombstone_stays_until_its_horizon_and_may_stay_longer(log: MemoryLog, clock: ManualClock) -> None:
    append(log, (b"a", b"1"), (b"a", None))
    log.compact("t")
    assert held(log) == [(b"a", None)]  # the first pass only sets the delete horizon, however old the tombstone is
    clock.advance(99)
    log.compact("t")
    assert held(log) == [(b"a", None)]
    clock.advance(1)
    log.compact("t", lambda record: True)
    assert held(log) == [(b"a", None)]
    log.compact("t")
    assert held(log) == []


def test_a_tombstone_goes_at_the_second_pass_at_the_earliest(clock: ManualClock) -> None:
    log = MemoryLog({"t": 1}, clock, delete_retention_s=0.0)
    append(log, (b"a", b"1"), (b"a", None))
    log.compact("t")
    assert held(log) == [(b"a", None)]
    log.compact("t")
    assert held(log) == []


def test_a_record_after_a_tombstone_supersedes_it(log: MemoryLog) -> None:
    append(log, (b"a", b"1"), (b"a", None), (b"a", b"2"))
    log.compact("t")
    assert held(log) == [(b"a", b"2")]


def test_an_aborted_record_supersedes_nothing(log: MemoryLog) -> None:
    append(log, (b"a", b"1"))
    log.produce(log.begin("w", log.init("w")), Event("t", 0, b"a", b"aborted"))
    log.end("w", committed=False)
    log.compact("t")
    assert held(log) == [(b"a", b"1")]


def test_a_reader_passes_the_holes(log: MemoryLog) -> None:
    append(log, *[(b"a", b"%d" % n) for n in range(10)])
    reader = log.reader(["t"])
    assert [r.offset() for r in reader.poll(3, 0)] == [0, 1, 2]
    log.compact("t")
    assert [r.offset() for r in reader.poll(3, 0)] == [9]
    assert reader.position() == reader.high_watermarks() == {("t", 0): 10}


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "seen"),
    [("begin", []), ("produce", []), ("offsets", []), ("end", []), ("ended", [(b"a", b"1"), (b"b", b"1")])],
)
def test_a_writer_can_crash_at_every_step(clock: ManualClock, step: str, seen: list) -> None:
    def failpoint(name: str) -> None:
        if name == step:
            raise Crash

    log = MemoryLog({"t": 1}, clock, failpoint=failpoint)
    writer = log.writer("w")
    writer.init()
    with pytest.raises(Crash):
        writer.commit([Event("t", 0, b"a", b"1"), Event("t", 0, b"b", b"1")])
    successor = log.writer("w")
    successor.init()
    assert held(log) == seen
    assert log.reader(["t"]).high_watermarks() != {("t", 0): 0} or step in ("begin", "produce")


def test_a_crashed_writer_blocks_readers_until_its_time_is_up(clock: ManualClock) -> None:
    log = MemoryLog({"t": 1}, clock, failpoint=lambda name: _crash_at_end(name), transaction_timeout_s=10.0)
    writer = log.writer("w")
    writer.init()
    with pytest.raises(Crash):
        writer.commit([Event("t", 0, b"a", b"1")])
    log.failpoint = lambda _: None
    append(log, (b"b", b"2"))
    reader = log.reader(["t"])
    assert reader.poll(10, 9.9) == []
    assert [r.value() for r in reader.poll(10, 0.2)] == [b"2"]
    with pytest.raises(Fenced):
        writer.commit([Event("t", 0, b"a", b"2")])


def _crash_at_end(name: str) -> None:
    if name == "end":
        raise Crash


def test_a_paused_writer_is_fenced_by_time_alone(clock: ManualClock) -> None:
    log = MemoryLog({"t": 1}, clock, transaction_timeout_s=10.0)
    log.failpoint = lambda name: clock.advance(11) if name == "end" else None
    writer = log.writer("w")
    writer.init()
    with pytest.raises(Fenced):
        writer.commit([Event("t", 0, b"a", b"1")])
    assert held(log) == []


def test_a_log_that_is_down_answers_nobody(log: MemoryLog) -> None:
    append(log, (b"a", b"1"))
    writer, reader = log.writer("w"), log.reader(["t"])
    writer.init()
    log.up = False
    assert reader.poll(10, 1.0) == []
    for ask in (reader.high_watermarks, log.writer("x").init, lambda: append(log, (b"b", b"1"))):
        with pytest.raises(Unreachable):
            ask()
    with pytest.raises(Fenced):
        writer.commit([Event("t", 0, b"a", b"2")])
    log.up = True
    assert [r.value() for r in reader.poll(10, 1.0)] == [b"1"]
    with pytest.raises(Fenced):
        writer.commit([Event("t", 0, b"a", b"2")])


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_an_empty_poll_takes_the_time_that_it_may_take(log: MemoryLog, clock: ManualClock) -> None:
    reader = log.reader(["t"])
    reader.poll(10, 2.5)
    assert clock.monotonic() == 2.5
    append(log, (b"a", b"1"))
    reader.poll(10, 2.5)
    assert clock.monotonic() == 2.5


def test_the_wall_clock_can_be_set_while_no_time_passes(clock: ManualClock) -> None:
    before = clock.time()
    clock.jump(-3600)
    assert (clock.time(), clock.monotonic()) == (before - 3600, 0.0)
    clock.sleep(1.5)
    assert (clock.time(), clock.monotonic()) == (before - 3598.5, 1.5)
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-1)


def test_lost_markers_leave_a_partition_open_until_the_next_end_of_the_same_id(clock: ManualClock) -> None:
    log = MemoryLog({"t": 2}, clock)
    epoch = log.init("w")
    for partition in (0, 1):
        log.produce(log.begin("w", epoch), Event("t", partition, b"k", b"left"))
    log.lose_markers("w")
    log.append([Event("t", 0, b"other", b"behind")])
    clock.advance(3600)
    writer = log.writer("w")
    writer.init()
    assert log.reader(["t"]).poll(10, 0) == []
    writer.commit([Event("t", 0, b"k", b"next")])
    assert [record.value() for record in log.reader(["t"]).poll(10, 0)] == [b"left", b"behind", b"next"]
    assert log.records("t", 1) == []
    writer.commit([Event("t", 1, b"k", b"next")])
    assert [record.value() for record in log.records("t", 1)] == [b"left", b"next"]


# -- requests without an answer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arrives", "seen"), [("never", []), ("now", [(b"a", b"1")]), ("late", [])])
def test_a_commit_without_an_answer_kills_its_writer_whatever_became_of_it(
    clock: ManualClock, arrives: str, seen: list
) -> None:
    def lose(name: str) -> None:
        if name == "end":
            raise NoAnswer(arrives)

    log = MemoryLog({"t": 1}, clock, failpoint=lose)
    writer = log.writer("w")
    writer.init()
    for _ in range(2):
        with pytest.raises(Fenced, match="outcome is unknown"):
            writer.commit([Event("t", 0, b"a", b"1")])
    assert held(log) == seen
    assert len(log.under_way) == (arrives == "late")


def test_a_late_end_commits_what_is_open_unless_its_producer_was_fenced(clock: ManualClock) -> None:
    log = MemoryLog({"t": 1}, clock)
    for fenced, seen in ((False, [(b"a", b"1")]), (True, [(b"a", b"1")])):
        epoch = log.init("w")
        log.produce(log.begin("w", epoch), Event("t", 0, b"a" if not fenced else b"b", b"1"))
        if fenced:
            log.init("w")
        log.deliver(EndOfTransaction("w", epoch, committed=True))
        assert held(log) == seen


def test_compaction_leaves_alone_what_is_young(log: MemoryLog, clock: ManualClock) -> None:
    append(log, (b"a", b"1"), (b"a", b"2"))
    clock.advance(10)
    append(log, (b"a", b"3"))
    assert log.compact("t", min_lag_s=5.0) == 1
    assert held(log) == [(b"a", b"2"), (b"a", b"3")]
