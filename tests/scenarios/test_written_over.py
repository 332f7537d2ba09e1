"""A record of an ended epoch supersedes the good one, on a real broker. Readers ignore it, and the leader writes the good
record again, because log compaction would lose it. With each guard removed, the checks detect the failure.

Flink keeps one reference for each job, without an epoch. There the last write of a stale leader counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import pytest
from confluent_kafka import Producer

from ledger.adapters import avro
from ledger.core.model.facts import AttemptRunning
from ledger.core.model.published import Published
from ledger.core.model.recovery import Entries
from ledger.core.model.registers import Running, Spec
from ledger.ports import MemoryRecord
from ledger.producer.recorder import Recorder
from ledger.reader.reading import published
from tests.cluster import Cluster
from tests.scenarios.stage import Ledger, ledger
from tests.simulation import checkers, copies
from tests.support.load import SPEC, Load
from tests.support.mirror import Mirror
from tests.support.mutants import _own_keys, mutated

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.timeout(300)]

SESSION_S = 2.0
JOB = "written-over"
KEY = JOB.encode()


def second_epoch(it: Ledger, mirror: Mirror, mutant: str = "") -> None:
    """Makes a ledger with published jobs of the first epoch that do not change, and with a leader of the second epoch."""
    first = it.projector()
    it.leading()
    with Load(it.config) as load, Recorder("one", config=it.config) as recorder:
        recorder.record(JOB, Spec(avro.spec_digest(SPEC)), SPEC)
        admitted = it.until(lambda: published(it.source).entries.get(JOB), "the job is published")
        recorder.record(JOB, Running(1), AttemptRunning("1"))
        it.until(lambda: published(it.source).entries[JOB].state != admitted.state, "the job runs")
        it.until(lambda: len(load.told) > 20, "there are other jobs")
    assert not it.judge(mirror, load.told)
    epoch = it.epoch()
    first.terminate()
    it.projector(mutant=mutant)
    it.leading(after=epoch)


def write_over(it: Ledger, mirror: Mirror) -> int:
    """Appends the job's first entry again, as a client that was paused in the first epoch would. Returns its epoch."""
    recovery = mirror.to_end().committed(it.config.topics.recovery)
    job = next(one for one in recovery if one.key == KEY)
    producer = Producer({"bootstrap.servers": it.config.bootstrap})
    producer.produce(job.topic, job.value, job.key, job.partition, headers=list(job.headers))
    assert producer.flush(30) == 0
    mirror.to_end()
    return copies.epoch_of(job)


def compacted(records: Sequence[copies.Copied]) -> list[copies.Copied]:
    """The records that full log compaction leaves: the last one of each key."""
    last = {(one.partition, one.key): one.offset for one in records}
    return [one for one in records if last[one.partition, one.key] == one.offset]


def read(records: Sequence[copies.Copied], mutant: str = "") -> Entries:
    """The entries by the ledger's own reader, optionally with a guard removed."""
    plain = [MemoryRecord(r.topic, r.partition, r.offset, r.key, r.value, r.headers) for r in records]
    with mutated(mutant) if mutant else nullcontext():
        view = Published(avro.decode)
        for record in _own_keys(plain) if mutant == "one-claim-key" else plain:
            view.apply(record)
        return view.entries


def test_readers_do_not_take_it_and_the_leader_writes_anew(servers: Cluster) -> None:
    with ledger(servers, "written-over", SESSION_S) as it, it.mirror() as mirror:
        second_epoch(it, mirror)
        topics = it.config.topics
        before = mirror.to_end().committed(topics.recovery)
        known = {(one.partition, one.offset) for one in before}
        stale = write_over(it, mirror)
        events = mirror.committed(topics.events)

        def come() -> list[copies.Copied]:
            recovery = mirror.to_end().committed(topics.recovery)
            return [one for one in recovery if (one.partition, one.offset) not in known]

        seen = it.until(come, "the stale record is in the topic")
        assert checkers.view_exact(read([*before, *seen]), events, "readers") == []

        def newest_epoch() -> bool:
            of_key = [one for one in mirror.to_end().committed(topics.recovery) if one.key == KEY]
            return copies.epoch_of(max(of_key, key=lambda one: one.offset)) > stale

        it.until(newest_epoch, "the leader writes the entry again")
        recovery = mirror.committed(topics.recovery)
        assert checkers.view_exact(read(compacted(recovery)), events, "readers of what compaction leaves") == []
        assert checkers.view_exact(read(recovery, "one-claim-key"), events, "the control of a control") == []


def test_the_guards_of_readers_and_leader_are_needed(servers: Cluster) -> None:
    """The leader does not overwrite the stale record. Readers with each of their guards removed fail."""
    with ledger(servers, "left-over", SESSION_S) as it, it.mirror() as mirror:
        second_epoch(it, mirror, "overwritten-not-republished")
        write_over(it, mirror)
        # Many entries are published after it, so a leader with the guard would have noticed it.
        with Load(it.config) as load:
            it.until(lambda: len(load.told) > 20, "events go on")
        wrong = it.judge(mirror, load.told)
        assert not wrong, "a reader with the full log and the filter must not be misled: " + "\n".join(wrong)
        events = mirror.committed(it.config.topics.events)
        recovery = mirror.committed(it.config.topics.recovery)
        assert checkers.view_exact(read(compacted(recovery)), events, "overwritten, not republished")
        assert checkers.view_exact(read(recovery, "epoch-filter-off"), events, "no filter")
        assert checkers.view_exact(read(recovery, "filter-after-last-per-key"), events, "filtered too late")


def test_one_key_for_all_claims_is_seen(servers: Cluster) -> None:
    """Log compaction removes the claims of ended epochs, so the effective records of these epochs are lost."""
    with ledger(servers, "one-key", SESSION_S) as it, it.mirror() as mirror:
        first = it.projector(mutant="one-claim-key")
        with Load(it.config) as load:
            it.until(lambda: len(load.told) > 20, "there are jobs")
        recovery = it.config.topics.recovery
        for epoch in (1, 2):
            it.until(lambda epoch=epoch: _claimed(mirror, recovery) >= epoch, f"epoch {epoch} is claimed")
            if epoch == 1:
                it.until(lambda: len(read(mirror.committed(recovery), "one-claim-key")) > 5, "jobs are published")
                first.terminate()
                it.projector(mutant="one-claim-key")
        found = mirror.to_end().committed(recovery)
        assert read(found, "one-claim-key").keys() - read(compacted(found), "one-claim-key").keys()


def _claimed(mirror: Mirror, topic: str) -> int:
    claims = (copies.claim_of(one) for one in mirror.to_end().committed(topic))
    return max((claim[1] for claim in claims if claim is not None), default=0)
