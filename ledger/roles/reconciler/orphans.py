"""Orphans: jobs without an entry that a runner runs or remembers. They are stopped with a record, then forgotten.

The reconciler acts on an orphan only after it has read all records that were in the log when it first saw the orphan:
the orphan's entry may be among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field

import structlog

from ledger.core.model.facts import AttemptEnded
from ledger.core.model.published import Published
from ledger.core.model.registers import Ended, Outcome, is_job_id, partition_of
from ledger.core.plan.reconcile import Observed
from ledger.ports import ForgetTask, StopTask
from ledger.roles.common.events import EventFactory
from ledger.roles.reconciler.flow_steps import Flow, perform

CAUSE = "an orphan: it ran, and the ledger has no such job; stopped by the reconciler"
log = structlog.get_logger("reconciler")


@dataclass(slots=True)
class _Orphan:
    """end: of the log when the orphan was first seen. stopped: attempts that were ordered to stop, not recorded yet."""

    end: int
    stopped: set[int] = field(default_factory=set)


class Orphans:
    """The orphan attempts that one term of a reconciler has met. end: partition -> high watermark of the events topic.
    read: (partition, as_of) -> whether that partition is read up to the claim of this term."""

    def __init__(
        self, published: Published, factory: EventFactory, topic: str, partitions: int, end: Callable[[int], int],
        read: Callable[[int, int], bool], counters: Counter[str],
    ) -> None:  # fmt: skip
        self._published, self._factory, self._topic, self._partitions = published, factory, topic, partitions
        self._end, self._read, self._counters = end, read, counters
        self._known: dict[tuple[str, str, str], _Orphan] = {}  # by runner, its instance and job

    def flows(self, observed: Observed, busy: Container[str]) -> Iterator[tuple[str, Flow]]:
        """The flows of orphans, by job id. busy: jobs that are left alone in this pass."""
        before = self._known  # orphans of a runner that does not answer now are kept
        self._known = {key: orphan for key, orphan in before.items() if key[0] in observed.silent}
        for runner, job_id in sorted(observed.listed):
            if job_id in self._published.entries or job_id in self._published.unreadable:
                continue
            partition = partition_of(job_id, self._partitions)
            instance = observed.instances.get(runner, "")
            orphan = before.get((runner, instance, job_id)) or _Orphan(self._end(partition))
            self._known[runner, instance, job_id] = orphan
            as_of = self._published.as_of(job_id, partition)
            if job_id in busy or as_of < orphan.end or not self._read(partition, as_of):
                continue
            alive = sorted(observed.alive(runner, job_id) or ())
            if alive:
                log.warning("stray", job=job_id, runner=runner, alive=alive, action="stop")
                yield job_id, self._stop(runner, instance, job_id, alive, orphan)
            else:
                yield job_id, self._forget(runner, instance, job_id, orphan)

    def _stop(self, runner: str, instance: str, job_id: str, alive: list[int], orphan: _Orphan) -> Flow:
        for n in alive:
            outcome = yield from perform(
                StopTask(runner=runner, job_id=job_id, n=n, outcome=Outcome.STOPPED, instance=instance)
            )
            if outcome.done:
                orphan.stopped.add(n)

    def _forget(self, runner: str, instance: str, job_id: str, orphan: _Orphan) -> Flow:
        """Makes the runner forget a job without running attempts. Attempts that were stopped are recorded first."""
        if orphan.stopped and is_job_id(job_id):
            ends = [Ended(n, Outcome.STOPPED, self._factory.writer) for n in sorted(orphan.stopped)]
            log.warning("stray_stopped", job=job_id, runner=runner, attempts=sorted(orphan.stopped))
            self._counters["strays_stopped"] += len(orphan.stopped)
            yield [self._factory.register(self._topic, job_id, end, AttemptEnded(CAUSE)) for end in ends]
            orphan.stopped.clear()
        yield ForgetTask(runner=runner, job_id=job_id, instance=instance)
