"""I15: a new projector with another wall clock reads the same records with other timestamps."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from ledger.adapters import cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.leadership import MemoryElection, MemoryLeadership
from ledger.adapters.memory.log import MemoryLog
from ledger.core.model.published import Published
from ledger.ports import Event
from ledger.reader.rejects import RejectsTopic
from ledger.roles.common.role_parts import Parts, ProjectorSettings, RoleTopics
from ledger.roles.projector.projector import Projector
from tests.simulation import checkers, codec
from tests.simulation.checkers import Findings
from tests.simulation.copies import Copied

YEAR_S = 365 * 86_400.0
STEPS = 3  # it reads everything, takes over, and makes one more step


def clock_free(events: Sequence[Copied], topics: RoleTopics, partitions: int, rng: random.Random) -> Findings:
    """I15, once all is quiet: the entries equal the fold of the log and do not depend on its timestamps."""
    clock = ManualClock(rng.uniform(0.0, 60 * YEAR_S))
    log = MemoryLog({topics.events: partitions, topics.recovery: partitions, topics.rejects: 1}, clock)
    for record in events:
        clock.jump(rng.uniform(-YEAR_S, YEAR_S) - clock.time() + 30 * YEAR_S)
        log.append([Event(record.topic, record.partition, record.key, record.value, record.headers)])
    ids = (f"replay-{number}" for number in itertools.count(1))
    leadership = MemoryLeadership(MemoryElection(), who="replay")
    parts = Parts(log, leadership, clock, codec, cloudevents, lambda: next(ids), topics, "replay", "replay")
    settings = ProjectorSettings(commit_interval_s=0.0, forget_after_s=YEAR_S)
    projector = Projector(parts, RejectsTopic(topics.rejects, topics.events), settings)
    for _ in range(STEPS):
        projector.step()
    view = Published(codec.decode)
    for record in log.reader([topics.recovery]).poll(1_000_000, 0):
        view.apply(record)
    return checkers.differences("I15 replayed by other clocks | log", view.entries, checkers.folded(events))
