"""Records in the topic of anchors that no client library can return, or that no reader accepts."""

from __future__ import annotations

from ledger.adapters import cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.sender import MemorySender
from ledger.archive.anchors.anchor_topic import REASON, AnchorTopic, standing
from ledger.ports import Event
from tests.support.odd_headers import ODD, OddHeaders

ANCHORS = "ledger.anchors"


def test_who_gave_up_is_unknown_where_headers_can_not_be_read() -> None:
    clock = ManualClock()
    log = MemoryLog({ANCHORS: 1}, clock)
    log.append([Event(ANCHORS, 0, b"ledger.events[0]", None, (*ODD, (REASON, b"a drill")))])
    topic = AnchorTopic(
        ANCHORS, OddHeaders(log), lambda: MemorySender(log), cloudevents, clock, actor="a", writer="w", new_id=lambda: "1"
    )
    (told,) = standing(topic.read()).given_up
    assert "somebody gave up the anchors of ledger.events[0]: no reason was given" in told
