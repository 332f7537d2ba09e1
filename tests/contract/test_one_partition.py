"""A reader of one partition, in memory and on a real broker. The registers of one job are read with it."""

from __future__ import annotations

import pytest

from ledger.ports import Event
from tests.contract.logs import KafkaWorld, MemoryWorld, World, reached, read_until, values


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return MemoryWorld()
    return KafkaWorld(request.getfixturevalue("bootstrap"), request.getfixturevalue("prefix"))


def test_only_the_partition_is_read_of_topics_that_have_several(world: World) -> None:
    several, single = world.topic(3), world.topic(1)
    writer = world.log.writer(world.unique("writer"))
    writer.init()
    writer.commit([Event(several, p, b"k", b"%d" % p) for p in range(3)] + [Event(single, 0, b"k", b"single")])
    reader = world.log.reader([several, single], 2)
    marks = reader.high_watermarks()
    assert set(marks) == set(reader.position()) == {(several, 2), (single, 0)}
    assert sorted(values(read_until(world, reader, lambda: reached(reader, marks)))) == [b"2", b"single"]
