"""A whole ledger in one process: log, projector, reconciler, runner and blob store in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.executor import InlineExecutor
from ledger.adapters.memory.leadership import MemoryLeadership
from ledger.adapters.memory.stream import MemoryRecoveryStream
from ledger.app.in_memory import RUNNER, MemoryAdapters, default_config
from ledger.app.ledger import Ledger
from ledger.config.config import Config
from ledger.core.model.facts import GraphRef, JobSubmitted, RestartKind, RestartPolicy
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import partition_of
from ledger.ports import Event
from ledger.reader.rejects import RejectsTopic
from ledger.roles.common.role_parts import Parts, ProjectorSettings, RoleTopics
from ledger.roles.projector.projector import Projector
from ledger.roles.reconciler.reconciler import Reconciler
from ledger.roles.reconciler.term import ReconcilerSettings

STEP_S = 0.1
THREE_RESTARTS = RestartPolicy(RestartKind.FIXED_DELAY, 3, 1.0)
PROJECTOR, RECONCILER = "projector", "reconciler"


class MiniCluster:
    """A ledger in memory with one projector, one reconciler and one runner.

    Nothing runs in the background. A role works and time passes only within `step` and `until`, and while a call of the
    client waits; so a test is deterministic and never sleeps. The runner starts no process: a test ends, kills or
    checkpoints attempts through `runner`.

    ledger: the `Ledger`, with `client()` and `entries()`. clock: moves by `step`. runner: the `MemoryRunner`, named
    "memory" in specs. adapters: log, blobs and elections, to make them fail.
    """

    def __init__(self, config: Config | None = None) -> None:
        config = config if config is not None else default_config()
        self.clock = _SteppingClock(self._roles_step)
        self.adapters = MemoryAdapters(config.topics, self.clock)
        self.ledger = Ledger(config, self.adapters)
        self.runner = self.adapters.runner
        self._names, self._ids, self._stepping = itertools.count(1), itertools.count(1), False
        self._topics = RoleTopics(config.topics.events, config.topics.recovery, config.topics.rejects)
        self._roles: dict[str, Projector | Reconciler] = {}
        for role in (PROJECTOR, RECONCILER):
            self.start(role)

    def submit(
        self, name: str, *, graph: bytes = b"", namespace: str = "default", job_id: str | None = None,
        restart_policy: RestartPolicy = THREE_RESTARTS,
    ) -> str:  # fmt: skip
        """Submits a job for the runner in memory and waits until it is admitted. Returns its id. graph: the job graph; the
        runner does not read it. Raises: as `Client.submit`."""
        spec = JobSubmitted(name, namespace, RUNNER, GraphRef("", "", 0), restart_policy)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "graph"
            path.write_bytes(graph)
            return self.ledger.client().submit(spec, path, job_id=job_id)

    def entry(self, job_id: str) -> RecoveryEntry | None:
        """The published entry of a job; None if it has none, for example because it is retired."""
        return self.ledger.entries().get(job_id)

    def step(self, seconds: float = STEP_S) -> None:
        """Each role makes one step, the runner's events reach the log, and the clock moves."""
        self._roles_step()
        self.clock.advance(seconds)

    def until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Steps until the condition holds. timeout_s: by the cluster's clock. Raises: TimeoutError."""
        deadline = self.clock.monotonic() + timeout_s
        while not condition():
            if self.clock.monotonic() >= deadline:
                raise TimeoutError(f"the condition did not hold within {timeout_s:g} s of the cluster's time")
            self.step()

    def kill(self, role: str) -> None:
        """Ends the process of a role ("projector" or "reconciler") at once, as by SIGKILL, and its lease with it. The
        log keeps the records that the process committed; the role has no leader until `start`."""
        del self._roles[role]
        self.adapters.elections[role].end_lease()

    def start(self, role: str) -> None:
        """Starts a new process of a role, which becomes leader with its next steps. Raises: ValueError if a process of
        the role runs."""
        if role in self._roles:
            raise ValueError(f"a {role} runs already: kill it first")
        parts = self._parts(role)
        if role == PROJECTOR:
            rejects = RejectsTopic(self._topics.rejects, self._topics.events)
            self._roles[role] = Projector(parts, rejects, ProjectorSettings(commit_interval_s=0.0))
        else:
            stream = MemoryRecoveryStream(self.adapters.log, self._topics.recovery)
            runners, blobs = self.ledger.runners, self.ledger.blobs
            settings = ReconcilerSettings(tick_s=0.0, observe_interval_s=0.0)
            self._roles[role] = Reconciler(parts, runners, stream, InlineExecutor(runners, blobs), settings)

    def _roles_step(self) -> None:
        if self._stepping:  # a role that waits moves the clock too
            return
        self._stepping = True
        try:
            for role in list(self._roles.values()):
                role.step()
            self._deliver()
        finally:
            self._stepping = False

    def _deliver(self) -> None:
        """The runner's agent writes its events to the log."""
        for event in self.runner.pending():
            job_id = event.key.partition(b"/")[0].decode()
            partition = partition_of(job_id, self.adapters.log.partitions(self._topics.events))
            self.adapters.log.append([Event(self._topics.events, partition, event.key, event.value, event.headers)])
            self.runner.acknowledge(job_id, [event.key])

    def _parts(self, role: str) -> Parts:
        name = f"{role}-{next(self._names)}"
        leadership = MemoryLeadership(self.adapters.elections[role], who=name)
        return Parts(
            self.adapters.log, leadership, self.clock, avro, cloudevents, lambda: f"id-{next(self._ids)}", self._topics,
            name, "mini-cluster",
        )  # fmt: skip


class _SteppingClock(ManualClock):
    """A clock on which nobody waits in vain: the roles step while somebody sleeps."""

    def __init__(self, stepped: Callable[[], None]) -> None:
        super().__init__()
        self._stepped = stepped

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._stepped()
