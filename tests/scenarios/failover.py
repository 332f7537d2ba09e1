"""A ledger whose reconcilers fail over while short jobs are submitted and end, with checks of leaders and attempts."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ledger.adapters import cloudevents
from ledger.adapters.runners.subprocess.graph import pack
from ledger.app.connect import connect
from ledger.core.model.facts import JobSubmitted, RestartPolicy
from ledger.core.model.registers import Result, parse_key
from ledger.producer.outside import NO_GRAPH
from tests.cluster import Cluster, Node
from tests.scenarios.stage import Ledger, ledger
from tests.simulation import checkers, copies
from tests.simulation.copies import Copied, Leased, Ran
from tests.support.mirror import Mirror

ROLE = "reconciler"
LEADERLESS_S = 120.0  # the maximum time in which a trouble leaves no leader to admit a job
#: A job that writes a line at its begin and at its end, as evidence. $0 is the file.
JOB = """
say() { echo "$1 $LEDGER_JOB_ID $LEDGER_ATTEMPT $(date +%s.%N)" >> "$0"; }
say start; sleep 0.3; say end
"""


class FailingOver(Ledger):
    """A ledger whose projector and agent stay undisturbed. runs: the file with the jobs' lines. mirrored: a copy of the
    topics."""

    def __init__(self, cluster: Cluster, name: str, session_s: float, election: str) -> None:
        super().__init__(cluster, name, session_s, election)
        self.environment |= {"LEDGER_RECONCILER__OBSERVE_INTERVAL_S": "0.3"}
        self.runs = cluster.folder / f"{name}.runs"
        self.client = connect(self.config)
        self.submitted: list[str] = []
        self.mirrored: Mirror

    def submit(self, name: str) -> None:
        """Submits a short job. Returns once the ledger has acknowledged it."""
        blob = pack(["sh", "-c", JOB, str(self.runs)])
        try:
            spec = JobSubmitted(name, "default", "subprocess", NO_GRAPH, RestartPolicy())
            self.client.submit(spec, blob, job_id=name, timeout_s=LEADERLESS_S)
            self.submitted.append(name)
        finally:
            blob.unlink()

    def events(self) -> list[Copied]:
        return self.mirrored.to_end().committed(self.config.topics.events)

    def over(self) -> set[str]:
        """The jobs that have finished and are retired."""
        parsed = (parse_key(one.key) for one in self.events() if one.value is not None)
        return {job_id for job_id, register in filter(None, parsed) if register == Result("FINISHED")}

    def go_on(self, jobs: int = 2) -> None:
        """Waits until this many more jobs were submitted and are over. So the current leader does its work."""
        before = len(self.submitted)
        self.until(lambda: len(self.submitted) >= before + jobs, "jobs are submitted")
        wanted = set(self.submitted[before : before + jobs])
        self.until(lambda: wanted <= self.over(), f"jobs end: {sorted(wanted)}")

    def standing_by(self, *nodes: Node, role: str = ROLE) -> bool:
        """Whether all of these nodes are candidates, or (with Kafka) have at least written their candidate file."""
        if self.election == "zookeeper":
            told = {one.who for _, one in self.line(role)}
            return {self.writer(node, role) for node in nodes} <= told
        folder = self.config.candidates_folder
        return all((folder / f"{self.writer(node, role)}.json").exists() for node in nodes)

    def ran(self) -> list[Ran]:
        """The starts and ends that the jobs wrote, in their order."""
        lines = [line.split() for line in self.runs.read_text().splitlines()] if self.runs.exists() else []
        return [Ran("start" if word == "start" else "end", job_id, int(n), float(at)) for word, job_id, n, at in lines]

    def wrong(self, leases: Sequence[Leased] = ()) -> list[str]:
        """Waits until all submitted jobs are over. Returns the violations of I4, I6, I7 and I8, and stale writes."""
        missing = lambda: set(self.submitted) - self.over()  # noqa: E731 - called repeatedly
        self.until(lambda: not missing(), f"all {len(self.submitted)} jobs end")
        wrong = self.judge(self.mirrored, [], leases)
        events, recovery, ran = self.events(), self.mirrored.committed(self.config.topics.recovery), self.ran()
        wrong += checkers.one_writer_per_epoch(events, [], leases)
        wrong += stale_writes(events)
        wrong += checkers.started_once(ran, events)
        wrong += checkers.no_resurrection(events, recovery, [], ran)
        ends = {run.job_id for run in ran if run.kind == "end"}
        wrong += [f"{job_id} is FINISHED, and never ran to its end" for job_id in sorted(set(self.submitted) - ends)]
        epochs = [claim.epoch for claim in reversed(self.claims(ROLE))]
        if epochs != list(range(1, len(epochs) + 1)):
            wrong.append(f"epochs of the reconciler do not follow one another: {epochs}")
        return wrong


class Jobs:
    """Submits short jobs, one after the other, while the block lasts."""

    def __init__(self, it: FailingOver, pause_s: float = 0.3) -> None:
        self._it, self._pause_s, self._over = it, pause_s, threading.Event()
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Jobs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert not self.failed, self.failed

    def _run(self) -> None:
        while not self._over.is_set():
            name = f"job-{1 + len(self._it.submitted)}"
            try:
                self._it.submit(name)
            except Exception as error:  # the main thread reports it
                self.failed.append(f"{name}: {error}")
                return
            self._over.wait(self._pause_s)


@contextmanager
def failing_over(
    servers: Cluster, name: str, session_s: float, election: str, projector: bool = True
) -> Iterator[FailingOver]:
    """A ledger with an agent, for one try of one test. projector: whether a leading projector runs too."""
    with ledger(servers, name, session_s, election, FailingOver) as it:
        it.role("agent")
        if projector:
            it.projector()
            it.leading()
        with it.mirror() as it.mirrored:
            yield it


def stale_writes(events: Sequence[Copied]) -> list[str]:
    """Records of a reconciler after a later reconciler's claim, in the same partition."""
    highest: dict[int, int] = defaultdict(int)
    found = []
    for record in events:
        claim = copies.claim_of(record)
        if claim is not None and claim[0] == ROLE:
            highest[record.partition] = max(highest[record.partition], claim[1])
        source = copies.header(record, "ce_source")
        if f"/{ROLE}/" in source and copies.epoch_of(record) < highest[record.partition]:
            who, epoch = copies.header(record, cloudevents.ACTOR), copies.epoch_of(record)
            found.append(f"{who} wrote {record.key!r} in epoch {epoch}, after {highest[record.partition]}")
    return found
