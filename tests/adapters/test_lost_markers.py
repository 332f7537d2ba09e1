"""A broker that is killed and comes back may forget to end a transaction: its coordinator, which knows no leader of the
partitions yet, takes them for deleted and leaves out their markers. Whoever committed was told that it went well, and
every reader stands still before it (decision 14). Needs a broker of its own, which it kills until that happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import pytest

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.log import KafkaLog
from ledger.embedded.broker import Broker
from ledger.errors import LedgerError, Unreachable
from ledger.ports import Event, Marks, Reader
from ledger.roles.common.events import noops
from tests.support import repetitions
from tests.support.servers import RunningBroker, create_topic
from tests.support.waiting import in_time

pytestmark = [pytest.mark.kafka, pytest.mark.acceptance, pytest.mark.timeout(600)]

T = TypeVar("T")
KILLS_MAX = 30  # a matter of luck
PARTITIONS = 40  # the more markers, the longer the moment in which some are not written yet
LEFT_OUT = "likely deleted already"
SILENT_S = 5.0  # markers are written at once, or as soon as the broker is back: tenths of a second


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(Broker.at(tmp_path_factory.mktemp("forgetful")))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.mark.skipif(not repetitions.DEEP, reason="make acceptance: a minute or more, by luck")
def test_what_a_killed_broker_left_open_is_ended_by_the_next_transaction_of_the_same_id(
    own_broker: RunningBroker, prefix: str
) -> None:
    log = KafkaLog({"bootstrap.servers": own_broker.bootstrap}, SystemClock(), init_timeout_s=60.0, commit_timeout_s=1.0)
    for number in range(KILLS_MAX):
        topic, id_ = create_topic(own_broker.bootstrap, f"{prefix}t{number}", PARTITIONS), f"{prefix}w{number}"
        kill_while_committing(own_broker, log, topic, id_)
        if topic not in left_out(own_broker):
            continue
        reader = when_it_answers(lambda topic=topic: log.reader([topic]))
        ends = when_it_answers(reader.high_watermarks)
        if not reaches(reader, ends, SILENT_S):
            break  # else the marker had been written already, and only the note of that was lost
        reader.close()
    else:
        pytest.skip(f"the broker wrote all its markers, {KILLS_MAX} times")
    writer = log.writer(id_)
    writer.init()
    assert not reaches(reader, ends, SILENT_S), "init alone helps: then decision 14 is not needed"
    writer.commit(noops({topic: PARTITIONS}))
    assert reaches(reader, ends, 30.0)
    reader.close()
    writer.close()


def kill_while_committing(broker: RunningBroker, log: KafkaLog, topic: str, id_: str) -> None:
    """Commits in a loop, kills the broker meanwhile, and starts it again."""
    assert broker.process is not None
    writer = log.writer(id_)
    writer.init()
    events = [Event(topic, partition, b"k", b"v") for partition in range(PARTITIONS)]
    writer.commit(events)
    killing = threading.Timer(0.3, broker.process.kill)
    killing.start()
    with suppress(LedgerError):
        while True:
            writer.commit(events)
    killing.join()
    broker.kill()
    writer.close()
    broker.start()


def left_out(broker: RunningBroker) -> str:
    return " ".join(line for line in broker.broker.log.read_text().splitlines() if LEFT_OUT in line)


def when_it_answers(ask: Callable[[], T]) -> T:
    deadline = time.monotonic() + 60
    while True:
        try:
            return ask()
        except Unreachable:
            in_time(time.monotonic() < deadline, "not within the time")
            time.sleep(0.1)


def reaches(reader: Reader, ends: Marks, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while (there := all(reader.position()[place] >= end for place, end in ends.items())) is False:
        if time.monotonic() > deadline:
            break
        reader.poll(1000, 0.1)
    return there
