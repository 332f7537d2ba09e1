"""A restarted broker may fail to end a transaction. Its coordinator knows no leader of the partitions yet, takes them
for deleted, and omits their markers. The writer was told that the commit succeeded, and every reader stops before the
transaction (decision 14). The test uses a separate broker, and kills it until that happens."""

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
KILLS_MAX = 30  # whether it happens is a matter of luck
PARTITIONS = 40  # the more markers, the longer some of them are not written yet
LEFT_OUT = "likely deleted already"
SILENT_S = 5.0  # markers are written within tenths of a second, or as soon as the broker is back


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(Broker.at(tmp_path_factory.mktemp("forgetful")))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.mark.skipif(not repetitions.DEEP, reason="only in make acceptance: it takes a minute or more, and luck")
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
            break  # otherwise the marker had been written, and only the record of that was lost
        reader.close()
    else:
        pytest.skip(f"the broker wrote all its markers, {KILLS_MAX} times")
    writer = log.writer(id_)
    writer.init()
    assert not reaches(reader, ends, SILENT_S), "init alone ends the transaction: then decision 14 is not needed"
    writer.commit(noops({topic: PARTITIONS}))
    assert reaches(reader, ends, 30.0)
    reader.close()
    writer.close()


def kill_while_committing(broker: RunningBroker, log: KafkaLog, topic: str, id_: str) -> None:
    """Commits in a loop, kills the broker meanwhile, and restarts it."""
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
