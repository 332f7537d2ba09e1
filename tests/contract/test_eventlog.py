"""The contract of `ports.EventLog`, in memory and on a real broker."""

from __future__ import annotations

import random

import pytest

from ledger.errors import ConfigError, Fenced, LedgerError, RecordTooLarge
from ledger.ports import Event, Reader, Record
from tests.contract.logs import KafkaWorld, MemoryWorld, Open, World, reached, read_all, read_until, values, wait_for
from tests.support.waiting import in_time


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return MemoryWorld()
    return KafkaWorld(request.getfixturevalue("bootstrap"), request.getfixturevalue("prefix"))


def writer(world: World, transactional_id: str | None = None):
    made = world.log.writer(transactional_id or world.unique("writer"))
    made.init()
    return made


# -- reading of written records ----------------------------------------------------------------------------------------


def test_records_come_in_offset_order_each_once_whole(world: World) -> None:
    topic, w = world.topic(2), writer(world)
    for batch in range(5):
        w.commit([Event(topic, n % 2, b"k%d" % n, b"%d/%d" % (batch, n), (("h", b"%d" % n),)) for n in range(20)])

    records = read_all(world, topic)

    for partition in (0, 1):
        there = [r for r in records if r.partition() == partition]
        assert values(there) == [b"%d/%d" % (b, n) for b in range(5) for n in range(20) if n % 2 == partition]
        assert [r.offset() for r in there] == sorted({r.offset() for r in there})
    assert all(r.topic() == topic and r.headers() == [("h", (r.key() or b"")[1:])] for r in records)


def test_offsets_returned_are_offsets_read(world: World) -> None:
    topic, w = world.topic(3), writer(world)
    events = [Event(topic, n % 3, b"k%d" % n, b"v") for n in range(30)]
    written = w.commit(events) + w.commit(list(reversed(events)))
    places = {(r.partition(), r.offset()): r.key() for r in read_all(world, topic)}
    sent = events + list(reversed(events))
    assert {(e.partition, o): e.key for e, o in zip(sent, written, strict=True)} == places


def test_a_tombstone_has_headers_and_is_no_empty_value(world: World) -> None:
    topic, w = world.topic(), writer(world)
    w.commit([Event(topic, 0, b"a", None, (("why", b"retired"), ("why", b"twice"))), Event(topic, 0, b"b", b"")])
    tombstone, empty = read_all(world, topic)
    assert (tombstone.value(), empty.value()) == (None, b"")
    assert tombstone.headers() == [("why", b"retired"), ("why", b"twice")]
    assert not empty.headers()


def test_records_carry_the_time_of_the_log(world: World) -> None:
    topic, w = world.topic(), writer(world)
    before = world.clock.time()
    w.commit([Event(topic, 0, b"a", b"v")])
    (record,) = read_all(world, topic)
    kind, time_ms = record.timestamp()
    assert kind == 2
    assert int(before * 1000) <= time_ms <= world.clock.time() * 1000 + 1


def test_every_reader_begins_at_the_beginning(world: World) -> None:
    topic, w = world.topic(), writer(world)
    w.commit([Event(topic, 0, b"a", b"1")])
    assert values(read_all(world, topic)) == [b"1"]
    w.commit([Event(topic, 0, b"a", b"2")], offsets={(topic, 0): 1})
    assert values(read_all(world, topic)) == [b"1", b"2"]


def test_a_reader_begins_where_it_is_told_to_and_elsewhere_at_the_beginning(world: World) -> None:
    topic, w = world.topic(2), writer(world)
    offsets = w.commit([Event(topic, n % 2, b"k%d" % n, b"%d" % n) for n in range(10)])
    reader = world.log.reader([topic], None, {(topic, 1): offsets[5], ("another", 0): 7})
    assert reader.position() == {(topic, 0): 0, (topic, 1): offsets[5]}
    records = read_until(world, reader, lambda: reached(reader, reader.high_watermarks()))
    assert [r.value() for r in records if r.partition() == 0] == [b"0", b"2", b"4", b"6", b"8"]
    assert [r.value() for r in records if r.partition() == 1] == [b"5", b"7", b"9"]
    reader.close()


def test_each_topic_has_an_id_of_its_own_or_the_log_knows_none(world: World) -> None:
    topics = [world.topic(), world.topic(2)]
    ids = world.log.topic_ids(topics)
    assert ids == world.log.topic_ids(topics) and list(ids) == topics
    assert len(set(ids.values())) == 2 or set(ids.values()) == {""}


def test_a_reader_of_two_topics_reads_both(world: World) -> None:
    one, two, w = world.topic(), world.topic(2), writer(world)
    w.commit([Event(one, 0, b"a", b"1"), Event(two, 0, b"a", b"2"), Event(two, 1, b"a", b"3")])
    reader = world.log.reader([one, two])
    marks = reader.high_watermarks()
    assert set(marks) == {(one, 0), (two, 0), (two, 1)}
    assert sorted(values(read_until(world, reader, lambda: reached(reader, marks)))) == [b"1", b"2", b"3"]


def test_a_big_batch_comes_back_in_bounded_polls(world: World) -> None:
    topic, w = world.topic(2), writer(world)
    written = w.commit([Event(topic, n % 2, b"k%d" % n, b"x" * 100) for n in range(20_000)])
    assert len(set(written)) == 10_000
    reader = world.log.reader([topic])
    marks, sizes = reader.high_watermarks(), []
    deadline = world.clock.monotonic() + 60
    while not reached(reader, marks):
        in_time(world.clock.monotonic() < deadline, "not read to its end: not within 60 s")
        sizes.append(len(reader.poll(700, 0.2)))
    assert sum(sizes) == 20_000
    assert max(sizes) <= 700


def test_an_empty_poll_is_no_error(world: World) -> None:
    topic = world.topic()
    reader = world.log.reader([topic])
    assert list(reader.poll(10, 0.1)) == []
    assert reader.position() == reader.high_watermarks() == {(topic, 0): 0}


def test_nothing_to_commit_writes_nothing(world: World) -> None:
    topic, w = world.topic(), writer(world)
    assert w.commit([]) == []
    assert world.log.reader([topic]).high_watermarks() == {(topic, 0): 0}


def test_offsets_are_there_for_lag_tools(world: World) -> None:
    topic, name = world.topic(2), world.unique("writer")
    w = writer(world, name)
    w.commit([Event(topic, 0, b"a", b"1")], offsets={(topic, 0): 17})
    w.commit([], offsets={(topic, 1): 18})
    wanted = {(topic, 0): 17, (topic, 1): 18}
    wait_for(world, lambda: world.committed_offsets(name, list(wanted)) == wanted)


# -- transactions ------------------------------------------------------------------------------------------------------


def test_position_passes_control_records(world: World) -> None:
    topic, w = world.topic(2), writer(world)
    w.commit([Event(topic, 0, b"a", b"1")])
    reader = world.log.reader([topic])
    read_until(world, reader, lambda: reader.position() == {(topic, 0): 2, (topic, 1): 0})
    assert reader.high_watermarks() == reader.position()


def test_nothing_of_an_open_transaction_is_seen_and_the_position_waits(world: World) -> None:
    topic, w = world.topic(), writer(world)
    w.commit([Event(topic, 0, b"a", b"before")])
    foreign = world.open(world.unique("foreign"))
    foreign.write(Event(topic, 0, b"b", b"open 1"), Event(topic, 0, b"c", b"open 2"))
    w.commit([Event(topic, 0, b"a", b"behind")])

    reader = world.log.reader([topic])
    marks = reader.high_watermarks()
    assert marks[topic, 0] >= 5  # before, control, open 1, open 2, behind (and its control record, which may be late)
    seen = read_until(world, reader, lambda: reader.position()[topic, 0] >= 2)
    seen += [record for _ in range(5) for record in reader.poll(100, 0.1)]
    assert values(seen) == [b"before"]
    assert reader.position()[topic, 0] == 2  # the last stable offset is before the end

    foreign.commit()
    rest = read_until(world, reader, lambda: reached(reader, marks))
    assert values(rest) == [b"open 1", b"open 2", b"behind"]


def test_aborted_records_are_never_seen_but_passed(world: World) -> None:
    topic, w = world.topic(), writer(world)
    foreign = world.open(world.unique("foreign"))
    foreign.write(Event(topic, 0, b"b", b"aborted"))
    foreign.abort()
    w.commit([Event(topic, 0, b"a", b"1")])
    reader = world.log.reader([topic])
    records = read_until(world, reader, lambda: reader.position()[topic, 0] >= 4)
    assert [(r.offset(), r.value()) for r in records] == [(2, b"1")]


def test_a_transaction_over_partitions_and_topics_is_whole(world: World) -> None:
    one, two = world.topic(2), world.topic()
    foreign = world.open(world.unique("foreign"))
    foreign.write(Event(one, 0, b"a", b"1"), Event(one, 1, b"a", b"2"), Event(two, 0, b"a", b"3"))
    reader = world.log.reader([one, two])
    assert [r for _ in range(3) for r in reader.poll(100, 0.1)] == []
    foreign.commit()
    assert len(read_until(world, reader, lambda: reached(reader, {(one, 0): 2, (one, 1): 2, (two, 0): 2}))) == 3


def test_a_transaction_that_nobody_ends_is_aborted_in_time(world: World) -> None:
    topic = world.topic()
    foreign = world.open(world.unique("foreign"), timeout_s=5.0)  # the event must be written within that time
    foreign.write(Event(topic, 0, b"b", b"left open"))
    reader = world.log.reader([topic])
    assert read_until(world, reader, lambda: reader.position()[topic, 0] >= 2) == []


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_only_the_last_initialised_writer_can_commit(world: World) -> None:
    topic, name = world.topic(), world.unique("writer")
    old = writer(world, name)
    old.commit([Event(topic, 0, b"a", b"old")])
    new = writer(world, name)

    with pytest.raises(Fenced):
        old.commit([Event(topic, 0, b"a", b"zombie")])
    new.commit([Event(topic, 0, b"a", b"new")])

    assert values(read_all(world, topic)) == [b"old", b"new"]


def test_a_fenced_writer_stays_dead(world: World) -> None:
    topic, name = world.topic(), world.unique("writer")
    old, new = writer(world, name), writer(world, name)
    for _ in range(2):
        with pytest.raises(Fenced):
            old.commit([Event(topic, 0, b"a", b"zombie")])
    with pytest.raises(Fenced):
        old.init()  # otherwise two instances would fence each other in turn for ever
    old.close()
    new.commit([Event(topic, 0, b"a", b"new")])
    assert values(read_all(world, topic)) == [b"new"]


def test_a_fenced_batch_of_many_leaves_nothing(world: World) -> None:
    topic, name = world.topic(2), world.unique("writer")
    old, new = writer(world, name), writer(world, name)
    with pytest.raises(Fenced):
        old.commit([Event(topic, n % 2, b"k%d" % n, b"zombie") for n in range(3000)], offsets={(topic, 0): 1})
    new.commit([Event(topic, 0, b"a", b"new")])
    assert values(read_all(world, topic)) == [b"new"]


def test_the_last_to_wake_wins_even_if_it_is_the_stale_one(world: World) -> None:
    """The reason for epochs in the log: the broker's fence does not know the ledger's epochs."""
    topic, name = world.topic(), world.unique("writer")
    stale, leader = world.log.writer(name), writer(world, name)
    stale.init()
    with pytest.raises(Fenced):
        leader.commit([Event(topic, 0, b"a", b"true leader")])
    stale.commit([Event(topic, 0, b"a", b"stale")])
    assert values(read_all(world, topic)) == [b"stale"]


def test_init_aborts_what_the_predecessor_left_open(world: World) -> None:
    topic, name = world.topic(), world.unique("writer")
    world.open(name).write(Event(topic, 0, b"a", b"half"))
    writer(world, name).commit([Event(topic, 0, b"a", b"whole")])
    assert values(read_all(world, topic)) == [b"whole"]


def test_other_writers_are_not_fenced(world: World) -> None:
    topic, one, two = world.topic(), writer(world), writer(world)
    one.commit([Event(topic, 0, b"a", b"1")])
    two.commit([Event(topic, 0, b"a", b"2")])
    one.commit([Event(topic, 0, b"a", b"3")])
    assert values(read_all(world, topic)) == [b"1", b"2", b"3"]


def test_a_live_writer_may_begin_a_new_term(world: World) -> None:
    topic, w = world.topic(), writer(world)
    w.commit([Event(topic, 0, b"a", b"1")])
    w.init()
    w.commit([Event(topic, 0, b"a", b"2")])
    assert values(read_all(world, topic)) == [b"1", b"2"]


def test_a_closed_writer_writes_nothing(world: World) -> None:
    topic, w = world.topic(), writer(world)
    w.close()
    w.close()
    with pytest.raises(Fenced):
        w.commit([Event(topic, 0, b"a", b"1")])


def test_a_writer_that_was_not_initialised_says_so(world: World) -> None:
    topic = world.topic()
    with pytest.raises(LedgerError, match="init"):
        world.log.writer(world.unique("writer")).commit([Event(topic, 0, b"a", b"1")])


# -- records that can't be written or read -----------------------------------------------------------------------------


def test_a_record_too_large_is_named_and_the_writer_goes_on(world: World) -> None:
    topic, w = world.topic(), writer(world)
    with pytest.raises(RecordTooLarge, match="job-7/spec") as told:
        w.commit([Event(topic, 0, b"a", b"1"), Event(topic, 0, b"job-7/spec", b"x" * 2_000_000)])
    assert (told.value.key, told.value.topic, told.value.partition) == (b"job-7/spec", topic, 0)
    w.commit([Event(topic, 0, b"a", b"2")])
    assert values(read_all(world, topic)) == [b"2"]


def test_a_place_that_does_not_exist_is_a_mistake_of_the_set_up(world: World) -> None:
    topic, w = world.topic(2), writer(world)
    with pytest.raises(ConfigError):
        w.commit([Event(topic, 0, b"a", b"1"), Event(topic, 2, b"a", b"1")])
    w.commit([Event(topic, 0, b"a", b"2")])
    assert values(read_all(world, topic)) == [b"2"]


def test_partitions_are_counted_and_a_missing_topic_is_told(world: World) -> None:
    assert world.log.partitions(world.topic(3)) == 3
    missing = world.unique("nowhere")
    with pytest.raises(ConfigError, match=missing):
        world.log.partitions(missing)
    with pytest.raises(ConfigError, match=missing):
        world.log.reader([missing])


def test_a_topic_that_was_deleted_breaks_its_readers(world: World, request: pytest.FixtureRequest) -> None:
    _deletion_is_a_gap_of_the_fake(world, request)
    topic, reader = _half_read(world)
    world.delete(topic)
    _breaks(world, reader, topic)


def test_a_topic_made_anew_breaks_its_readers_though_it_is_as_long(world: World, request: pytest.FixtureRequest) -> None:
    """Offsets alone can't show it: only the topic's id does."""
    _deletion_is_a_gap_of_the_fake(world, request)
    topic, reader = _half_read(world)
    world.make_anew(topic)
    writer(world).commit([Event(topic, 0, b"a", b"%d" % n) for n in range(10)])
    _breaks(world, reader, topic)


def _deletion_is_a_gap_of_the_fake(world: World, request: pytest.FixtureRequest) -> None:
    if world.name == "memory":
        request.applymarker(pytest.mark.xfail(strict=True, reason="topics in memory can't be deleted"))


def _half_read(world: World) -> tuple[str, Reader]:
    topic = world.topic()
    writer(world).commit([Event(topic, 0, b"a", b"1")])
    reader = world.log.reader([topic])
    read_until(world, reader, lambda: reader.position()[topic, 0] == 2)
    return topic, reader


def _breaks(world: World, reader: Reader, topic: str) -> None:
    def told() -> bool:
        try:
            reader.high_watermarks()
        except LedgerError as error:
            return topic in str(error)
        return False

    wait_for(world, told)
    with pytest.raises(LedgerError, match=topic):
        reader.poll(10, 0.1)


# -- compaction --------------------------------------------------------------------------------------------------------


def test_compaction_leaves_order_offsets_and_the_last_of_each_key(world: World) -> None:
    topic, w = world.compacted_topic(), writer(world)
    w.commit([Event(topic, 0, b"k%d" % (n % 3), b"%d" % n) for n in range(30)])
    w.commit([Event(topic, 0, b"gone", b"x"), Event(topic, 0, b"gone", None)])
    before = {r.offset(): r.value() for r in read_all(world, topic)}

    def gone() -> bool:
        records = [r for r in read_all(world, topic) if r.key() != b"nudge"]
        return len(records) == 3

    world.compact(topic, gone)

    after = [r for r in read_all(world, topic) if r.key() != b"nudge"]
    assert [(r.key(), r.value()) for r in after] == [(b"k0", b"27"), (b"k1", b"28"), (b"k2", b"29")]
    assert all(before[r.offset()] == r.value() for r in after)


def test_an_open_transaction_keeps_the_cleaner_out(world: World) -> None:
    topic, w = world.compacted_topic(), writer(world)
    w.commit([Event(topic, 0, b"k", b"1"), Event(topic, 0, b"k", b"2")])
    world.close_segment(topic)
    foreign = world.open(world.unique("foreign"))
    foreign.write(Event(topic, 0, b"f", b"open"))
    w.commit([Event(topic, 0, b"k", b"3"), Event(topic, 0, b"k", b"4"), Event(topic, 0, b"new", b"5")])
    reader = world.log.reader([topic])

    def before() -> list[bytes | None]:
        """The records that a new reader sees below the open transaction."""
        reader = world.log.reader([topic])
        records: list[Record] = []
        while not records:
            records += reader.poll(100, 0.2)
        while more := reader.poll(100, 0.2):
            records += more
        reader.close()
        return values([r for r in records if r.key() == b"k"])

    world.compact(topic, lambda: before() == [b"2"])
    foreign.commit()
    marks = reader.high_watermarks()
    seen = [r for r in read_until(world, reader, lambda: reached(reader, marks)) if r.key() != b"nudge"]
    assert values(seen)[-5:] == [b"2", b"open", b"3", b"4", b"5"]  # later records were not compacted


# -- the fake compared with Kafka --------------------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.parametrize("seed", range(3))
def test_one_history_gives_one_log(seed: int, bootstrap: str, prefix: str) -> None:
    """The same random history in both worlds gives the same offsets, the same visible records and the same true ends."""
    outcomes = [_play(world, random.Random(seed)) for world in (MemoryWorld(), KafkaWorld(bootstrap, prefix))]
    assert outcomes[0] == outcomes[1]


def _play(world: World, chance: random.Random) -> list[object]:
    topic, told = world.topic(2), []
    names = [world.unique("w"), world.unique("w")]
    writers = {name: writer(world, name) for name in names}
    strangers: list[tuple[Open, list[Event]]] = []
    reader = world.log.reader([topic])
    ends = {(topic, 0): 0, (topic, 1): 0}

    def events() -> list[Event]:
        return [
            Event(topic, chance.randrange(2), b"k%d" % chance.randrange(5), chance.choice([None, b"v"]))
            for _ in range(chance.randrange(1, 6))
        ]

    def settle(batch: list[Event]) -> None:
        """Waits for the control records, which come a moment after the answer, so that both logs have the same order."""
        for partition in {event.partition for event in batch}:
            ends[topic, partition] += 1
        wait_for(world, lambda: reader.high_watermarks() == ends)

    for _ in range(40):
        batch, act = events(), chance.choice(["commit", "commit", "open" if len(strangers) < 3 else "end", "end", "rival"])
        if act == "end":
            if strangers:
                stranger, left = strangers.pop(chance.randrange(len(strangers)))
                stranger.commit() if chance.random() < 0.5 else stranger.abort()
                settle(left)
            continue
        if act == "open":
            strangers.append((world.open(world.unique("s")), batch))
            strangers[-1][0].write(*batch)
        elif act == "rival":
            name = chance.choice(names)
            rival = writer(world, name)
            with pytest.raises(Fenced):
                writers[name].commit(batch)
            writers[name] = rival
            continue
        else:
            told.append(writers[chance.choice(names)].commit(batch))
        for event in batch:
            ends[topic, event.partition] += 1
        if act != "open":
            settle(batch)
    for stranger, left in strangers:
        stranger.abort()
        settle(left)
    records = sorted(read_all(world, topic), key=lambda r: (r.partition(), r.offset()))
    seen = [(r.partition(), r.offset(), r.key(), r.value()) for r in records]
    return [told, seen, {place[1]: end for place, end in ends.items()}]
