"""Twenty jobs run while ZooKeeper loses members or gets new ones, or a leader fails. No job may notice.

All tests here share one cluster with one broker, two projectors, one reconciler and one agent. Each leaves it healthy.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess.graph import pack
from ledger.app.connect import connect
from ledger.app.ledger import Ledger as OpenLedger
from ledger.core.model.facts import IntentKind, JobSubmitted, RestartPolicy, RestorePoint
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Attempt, Checkpoint, parse_key
from ledger.operations.client import Client
from ledger.producer.outside import NO_GRAPH
from ledger.reader.reading import entries_of
from tests.cluster import Cluster, Node
from tests.cluster.network import ZK
from tests.scenarios.keeping import keep
from tests.scenarios.stage import Beats, Ledger, alive
from tests.simulation import copies
from tests.support.folder import TICKER
from tests.support.mirror import Mirror
from tests.support.waiting import in_time

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

SESSION_S = 10.0
JOBS = tuple(f"steady-{number:02}" for number in range(20))
ROLES = ("projector", "reconciler")
UNTIL = """
import os, sys, time
while not os.path.exists(sys.argv[1]): time.sleep(0.1)
"""


class Running(Ledger):
    """A ledger with its jobs. mirror_: a copy of the topics from their beginning."""

    client: Client
    beats: Beats
    mirror_: Mirror

    def submit(self, name: str, command: list[str]) -> str:
        """Submits a job. Returns once the ledger has acknowledged it."""
        blob = pack(command)
        try:
            spec = JobSubmitted(name, "default", "subprocess", NO_GRAPH, RestartPolicy())
            return self.client.submit(spec, blob, job_id=name)
        finally:
            blob.unlink()

    def alive(self) -> dict[str, tuple[int, str]]:
        return alive(self.config, JOBS)

    def epochs(self) -> dict[str, int]:
        return {role: self.epoch(role) for role in ROLES}

    def attempts(self) -> set[tuple[str, int]]:
        """Every recorded attempt of the twenty jobs."""
        events = self.mirror_.to_end().committed(self.config.topics.events)
        parsed = (parse_key(one.key) for one in events if one.value is not None)
        found = [(job, register.n) for job, register in filter(None, parsed) if isinstance(register, Attempt)]
        return {(job, n) for job, n in found if job in JOBS}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Cluster.open(tmp_path_factory.mktemp("jobs")) as cluster:
        cluster.start(brokers=1, topics=False)
        it = Running(cluster, session_s=SESSION_S)
        it.client = connect(it.config)
        it.beats = Beats(cluster.folder / "beats", JOBS)
        for kind in ("reconciler", "agent", "projector", "projector"):
            it.role(kind)
        with it.mirror() as it.mirror_:
            it.leading()
            with ThreadPoolExecutor(5) as pool:
                list(pool.map(lambda name: it.submit(name, it.beats.command(name)), JOBS))
            it.leading("reconciler", timeout_s=180)
            it.until(lambda: len(it.alive()) == len(JOBS), "all twenty run", 120)
            yield it


class Undisturbed:
    """Checks that within `with` every job keeps its process and its attempt, and that no new attempt is recorded."""

    def __init__(self, it: Running) -> None:
        self._it = it
        self.pause_s = 0.0

    def __enter__(self) -> Undisturbed:
        self._before, self._began = self._it.alive(), time.time()
        assert len(self._before) == len(JOBS), "all jobs run at the beginning"
        return self

    def __exit__(self, error: object, _: object, __: object) -> None:
        if error is not None:
            return
        now = self._it.alive()
        interrupted = [name for name in JOBS if now.get(name) != self._before[name]]
        assert not interrupted, f"{len(interrupted)} of {len(JOBS)} interrupted: {interrupted}"
        assert self._it.attempts() == {(name, 1) for name in JOBS}, "no other attempt was recorded"
        for name in JOBS:
            beats = self._it.beats.since(name, self._began)
            assert {str(pid) for pid, _ in beats} == {self._before[name][1]}, f"{name} writes heartbeats"
        self.pause_s = self._it.beats.longest_pause_s(self._began)


# -- the member that the leader is connected to ------------------------------------------------------------------------


def killed(node: Node) -> Callable[[], None]:
    node.kill()
    return lambda: node.start() and None


def silently_cut(node: Node) -> Callable[[], None]:
    node.cut(ZK)
    return lambda: node.heal(ZK)


@pytest.mark.parametrize("away", [killed, silently_cut], ids=lambda away: away.__name__)
def test_the_leader_s_member_goes_away_and_nothing_happens(
    running: Running, away: Callable[[Node], Callable[[], None]], capsys: pytest.CaptureFixture[str]
) -> None:
    """One ZooKeeper member of three fails: the one to which the leading projector is connected. In Flink 2.3 (20 jobs,
    session 10 s) all 20 jobs were suspended and restarted, with about 5 s without work, although the session never
    expired."""
    epochs, leaders = running.epochs(), {role: running.leading(role) for role in ROLES}
    member = running.member_of(leaders["projector"])
    with Undisturbed(running) as jobs:
        back = away(running.cluster.zookeeper.nodes[member])
        running.away, gone = {member}, time.time()
        for role in ROLES:
            # Later than the lease could have lasted without another member.
            running.until(lambda role=role: running.renewed_after(gone + SESSION_S * 0.7, role), f"{role} renews its lease")
        assert running.member_of(leaders["projector"]) != member or away is silently_cut
        assert running.epochs() == epochs, "the log shows the same leaders"
        assert {role: running.leading(role) for role in ROLES} == leaders
    back()
    running.cluster.zookeeper.wait()
    running.away = set()
    with capsys.disabled():
        print(f"\nthe leader's member was {away.__name__.replace('_', ' ')}: 0 of {len(JOBS)} jobs interrupted, "
              f"epochs {epochs}, longest pause between two beats of a job {jobs.pause_s:.2f} s")  # fmt: skip


# -- incident 000 ------------------------------------------------------------------------------------------------------


def test_incident_000_only_the_running_job_comes_back(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the incident, the leader's connection to ZooKeeper was suspended, and another JobManager took over. It restarted a
    job from scratch that was over for two months, because its graph was still stored. That job took the slots of the
    running one."""
    submitted = {
        "over": [sys.executable, "-I", "-S", "-c", UNTIL, str(tmp_path / "seen")],  # it finishes after it was seen
        "canceled": [sys.executable, "-c", "import time; time.sleep(600)"],
        "ticking": [sys.executable, "-c", TICKER, str(tmp_path / "enough")],
    }
    graphs = {}
    for name, command in submitted.items():
        running.submit(name, command)
        entry = running.until(lambda name=name: entries_of(running.source).get(name), f"{name} is published")
        graphs[name] = entry.graph
    (tmp_path / "seen").touch()
    blobs = OpenLedger.open(running.config).blobs
    running.until(lambda: "canceled" in alive(running.config, ["canceled"]), "the job to cancel runs")
    running.client.declare("canceled", IntentKind.CANCEL, reason="it is enough")
    for name in ("over", "canceled"):
        ended = running.client.wait(name, 60)
        assert ended.state == {"over": JobState.FINISHED, "canceled": JobState.CANCELED}[name], ended
    points = running.until(lambda: entries_of(running.source)["ticking"].restore_points, "a checkpoint")
    before = alive(running.config, ["ticking"])

    leader, epoch = running.leading(), running.epoch()
    with Undisturbed(running):
        leader.cut(ZK)
        successor = running.leading(after=epoch)
        assert successor is not leader
        leader.heal(ZK)

        published = entries_of(running.source)
        assert set(published.recovery_set()) == {*JOBS, "ticking"}, "the recovery set holds only running jobs"
        entry = published["ticking"]
        assert entry.attempt == 1 and entry.state is JobState.RUNNING
        assert alive(running.config, ["ticking"]) == before, "a failover restarts nothing"
        newest = max(entry.restore_points, key=lambda point: (point.attempt, point.id))
        assert entry.restore_points[0] == newest and newest.id >= points[0].id
        running.until(
            lambda: not any(blobs.exists(graphs[name]) for name in ("over", "canceled")),
            "the graphs of both terminal jobs are deleted",
        )
        assert blobs.exists(graphs["ticking"])

        # Now the running job must be restarted by the new leader from its newest checkpoint.
        os.kill(int(before["ticking"][1]), signal.SIGKILL)
        running.until(
            lambda: alive(running.config, ["ticking"]).get("ticking", (0,))[0] == 2, "the killed job is restarted"
        )

        def published_base() -> RestorePoint | None:
            entry = entries_of(running.source)["ticking"]
            return entry.base if entry.attempt == 2 else None

        base = running.until(published_base, "the base of the second attempt is published")
        offered = running.until(
            lambda: _newest_of_attempt(running, "ticking", 1), "the newest checkpoint of the first attempt"
        )
        assert (base.attempt, base.id) == offered
        assert set(entries_of(running.source).recovery_set()) == {*JOBS, "ticking"}
    (tmp_path / "enough").touch()
    assert running.client.wait("ticking", 60).finished
    with capsys.disabled():
        print(f"\nincident 000: brought back: the running job alone, from {base.attempt}/{base.id}")


def _newest_of_attempt(running: Running, job_id: str, n: int) -> tuple[int, int] | None:
    """The attempt's newest checkpoint in the log before the record of the next attempt; None if the latter is missing."""
    newest = None
    for one in running.mirror_.to_end().committed(running.config.topics.events):
        parsed = parse_key(one.key)
        if parsed is None or parsed[0] != job_id or one.value is None:
            continue
        register = parsed[1]
        if isinstance(register, Attempt) and register.n == n + 1:
            return newest
        if isinstance(register, Checkpoint) and register.n == n:
            newest = max(newest or (0, 0), (n, register.id))
    return None


# -- incident 002 ------------------------------------------------------------------------------------------------------


class Submissions:
    """Submits short jobs, one after the other, within `with`. acknowledged: the jobs that the ledger acknowledged."""

    def __init__(self, it: Running, folder: Path) -> None:
        self._it, self.folder, self._over = it, folder, threading.Event()
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Submissions:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            name = f"short-{number}"
            try:
                self._it.submit(name, ["sh", "-c", f"echo ran >> {self.folder / name}"])
                self.acknowledged.append(name)
            except Exception as error:  # the test reports it
                self.failed.append(f"{name}: {error}")
            self._over.wait(0.5)


def test_all_five_members_are_replaced_and_every_job_runs_on(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Incident 002: members were replaced one at a time, and the cluster ended in a permanently broken state. No component
    knew a leader, registrations timed out, and task managers and jobs were lost."""
    members = running.cluster.zookeeper
    while len(members.members) < 5:
        members.join()
    old = list(members.members)
    began = time.time()
    with Undisturbed(running) as jobs, Submissions(running, tmp_path) as short:
        running.until(lambda: len(short.acknowledged) > 1, "jobs are submitted")
        while old:
            led, connected = members.leader(), running.member_of(running.leading())
            name = min(old, key=lambda name: (name == led) + 2 * (name == connected))
            members.replace(name)
            old.remove(name)
        assert len(members.members) == 5
        running.leading()
        done = len(short.acknowledged)
        running.until(lambda: len(short.acknowledged) > done + 1, "more jobs are submitted")
    assert not short.failed, short.failed
    for name in short.acknowledged:
        assert running.client.wait(name, 90).finished, name
        assert (tmp_path / name).read_text().split() == ["ran"], f"{name} ran once"
    recovery = running.mirror_.to_end().committed(running.config.topics.recovery)
    times = sorted({one.time_s for one in copies.effective(recovery) if one.time_s > began})
    pause_s = max(later - before for before, later in pairwise([began, *times, time.time()]))
    in_time(pause_s <= SESSION_S, f"not within {SESSION_S:g} s: a leader writes twice a second, here after {pause_s:.1f} s")
    with capsys.disabled():
        print(f"\nfive members replaced in {time.time() - began:.0f} s: {len(short.acknowledged)} jobs submitted and run, "
              f"0 of {len(JOBS)} interrupted, the leader silent for {pause_s:.1f} s at most, epochs {running.epochs()}, "
              f"longest pause between two beats of a job {jobs.pause_s:.2f} s")  # fmt: skip
    keep("002", "members of the ensemble were replaced, one by one", running.config, running.end)
