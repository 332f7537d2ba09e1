"""A leader that steps down does not wait for a broker."""

from __future__ import annotations

import os
import signal
import threading
import time

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.log import KafkaLog
from ledger.ports import Event
from tests.support.servers import RunningBroker, create_topic
from tests.support.waiting import in_time


def test_a_writer_is_closed_at_once_while_the_broker_does_not_answer(broker: RunningBroker, prefix: str) -> None:
    topic = create_topic(broker.bootstrap, f"{prefix}events")
    writer = KafkaLog({"bootstrap.servers": broker.bootstrap}, SystemClock()).writer(f"{prefix}writer")
    writer.init()
    for at in (1, 2):
        writer.commit([Event(topic, 0, b"key", b"value")], {(topic, 0): at})
    assert broker.process is not None
    pid = broker.process.pid
    goes_on = threading.Timer(10, os.kill, (pid, signal.SIGCONT))
    goes_on.start()
    os.kill(pid, signal.SIGSTOP)
    try:
        writer._tell_lag({(topic, 0): 3})
        began = time.monotonic()
        writer.close()
        took = time.monotonic() - began
    finally:
        os.kill(pid, signal.SIGCONT)
        goes_on.cancel()
    in_time(took < 8, "not within 8 s: close waited for the broker")
