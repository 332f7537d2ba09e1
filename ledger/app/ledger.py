"""One ledger as one object: its settings and its adapters, each made once, at first use."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from ledger.config.config import load_config
from ledger.ports import BlobStore, Candidate, Clock, EventLog, Leadership, Runner, Sender

if TYPE_CHECKING:
    from ledger.adapters.memory.clock import ManualClock
    from ledger.archive.format.objects import ObjectStore
    from ledger.archive.store.archive import Archive
    from ledger.config.config import Config
    from ledger.core.model.recovery import Entries
    from ledger.operations.client import Client
    from ledger.reader.reading import Progressed, Source

#: The producer's name in `ce_source` of operators' events: /ns/default/producer/operator/<instance>.
OPERATOR = "operator"


class Adapters(Protocol):
    """Makes the adapters of one ledger. `SettingsAdapters` and `MemoryAdapters` implement this protocol."""

    @property
    def clock(self) -> Clock: ...

    def event_log(self) -> EventLog: ...

    def sender(self, timeout_s: float = 30.0) -> Sender: ...

    def leadership(self, role: str) -> Leadership: ...

    def candidates(self, role: str) -> list[Candidate]: ...

    def blobs(self) -> BlobStore: ...

    def objects(self) -> ObjectStore: ...

    def runners(self) -> dict[str, Runner]: ...


class Ledger:
    """One ledger. The command line, the roles and tests hold this object, and get everything else from it.

        ledger = Ledger.open()              # the ledger that the settings name
        ledger = Ledger.in_memory()         # an empty ledger in this process

        ledger.entries().recovery_set()     # the jobs to bring back
        ledger.client().submit(spec, graph)

    It opens no connection before the first use. Source: docs/decisions/0051.
    """

    def __init__(self, config: Config, adapters: Adapters) -> None:
        self.config, self._adapters = config, adapters

    @classmethod
    def open(cls, config: Config | None = None) -> Ledger:
        """The ledger that the settings name; default: `load_config()`. Raises: ConfigError."""
        from ledger.app.wiring import SettingsAdapters

        config = config if config is not None else load_config()
        return cls(config, SettingsAdapters(config))

    @classmethod
    def in_memory(cls, clock: ManualClock | None = None, config: Config | None = None) -> Ledger:
        """An empty ledger in the memory of this process, for tests. No role runs on it: see
        `ledger.testing.MiniCluster`.

        clock: by default a `ManualClock`, which only the test moves. config: by default all default settings, whatever
        the environment."""
        from ledger.app.in_memory import MemoryAdapters, default_config

        config = config if config is not None else default_config()
        return cls(config, MemoryAdapters(config.topics, clock))

    @property
    def clock(self) -> Clock:
        return self._adapters.clock

    @cached_property
    def event_log(self) -> EventLog:
        """The log: makes readers and writers of the ledger's topics. Raises: ConfigError if no setting names a
        Kafka."""
        return self._adapters.event_log()

    @cached_property
    def blobs(self) -> BlobStore:
        """The store of job graphs. Raises: Unreachable; ConfigError."""
        return self._adapters.blobs()

    @cached_property
    def runners(self) -> dict[str, Runner]:
        """All installed runners by name."""
        return self._adapters.runners()

    @cached_property
    def objects(self) -> ObjectStore:
        """The object store of the archive. Raises: as `blobs`; ConfigError if the ledger has no archive."""
        return self._adapters.objects()

    @cached_property
    def archive(self) -> Archive:
        """The archive. Raises: as `objects`; ConfigError if the extra `archive` is missing."""
        from ledger.app.wiring import of_extra

        with of_extra("archive"):
            from ledger.archive.store.archive import Archive
        from ledger.util.identity import instance
        from ledger.util.times import rfc3339

        return Archive(self.objects, instance("archiver"), lambda: rfc3339(self.clock.time()))

    def sender(self, timeout_s: float = 30.0) -> Sender:
        """A new connection for writing events; the caller closes it. timeout_s: how long Kafka may take to acknowledge
        a write."""
        return self._adapters.sender(timeout_s)

    def leadership(self, role: str, force: bool = False) -> Leadership:
        """A new candidate of the role's election; the caller closes it. force: the candidate leads one term without the
        lock; then only the epoch in the log protects against two leaders.

        Raises: ConfigError."""
        made = self._adapters.leadership(role)
        if not force:
            return made
        from ledger.adapters.forced_leadership import ForcedLeadership
        from ledger.util.identity import instance

        return ForcedLeadership(made, who=instance(role))

    def candidates(self, role: str) -> list[Candidate]:
        """The candidates of a role, the leader first, as far as the election knows them. Raises: Unreachable;
        ConfigError."""
        return self._adapters.candidates(role)

    def source(self, progressed: Progressed | None = None) -> Source:
        """The ledger for reading (`ledger.reader`). progressed: called while it reads. Raises: as `event_log`."""
        from ledger.adapters import avro, cloudevents
        from ledger.reader.reading import Source

        keep = self.config.projector.restore_points
        made = Source(self.event_log, self.config.topics, avro, cloudevents, self.clock, keep=keep)
        return made if progressed is None else replace(made, progressed=progressed)

    def entries(self) -> Entries:
        """The published entries: job id -> entry, for every job that is not retired. `.recovery_set()` of the result
        holds the jobs to bring back."""
        from ledger.reader.reading import entries_of

        return entries_of(self.source())

    def client(
        self, *, actor: str | None = None, timeout_s: float = 30.0, progressed: Progressed | None = None
    ) -> Client:  # fmt: skip
        """The client for submitting and changing jobs. actor: the user, for audits; None = user@host. timeout_s: how
        long Kafka may take to acknowledge a write. progressed: called while records are read. Raises: ConfigError."""
        from ledger.adapters import avro
        from ledger.operations.client import Client
        from ledger.producer.recorder import Recorder
        from ledger.util.identity import whoami
        from ledger.util.ids import RANDOM_BYTES, uuid7

        who = actor if actor is not None else whoami()

        def recorder() -> Recorder:
            return Recorder(
                OPERATOR, config=self.config, sender=self.sender(timeout_s), actor=who, timeout_s=timeout_s,
                clock=self.clock,
            )  # fmt: skip

        return Client(
            self.source(progressed), recorder, self.blobs, digest=avro.spec_digest,
            new_id=lambda: uuid7(self.clock.time(), os.urandom(RANDOM_BYTES)), actor=who, held_by=self._held_by(),
        )  # fmt: skip

    def _held_by(self) -> Callable[[str], str]:
        """A function: job id -> the pin that protects the job, "" if none does. Without an archive there are no pins,
        and nothing is imported."""
        if not self.config.archive.adapter:
            return lambda _: ""
        from ledger.app import pinning

        return pinning.held_by(self)


def task_context(config: Config) -> tuple[dict[str, Runner], BlobStore]:
    """The runners and the blob store for a task of the reconciler. Call this function in the process that performs the
    task. With an archive, runners and store keep data that a pin protects."""
    return guarded(Ledger.open(config))


def guarded(ledger: Ledger) -> tuple[dict[str, Runner], BlobStore]:
    """The runners and the blob store of a ledger. With an archive, runners and store keep data that a pin protects."""
    if not ledger.config.archive.adapter:
        return ledger.runners, ledger.blobs
    from ledger.app import pin_guard, pinning

    held_by = pinning.held_by(ledger)
    # A SparingRunner is a runner: attributes that it lacks come from the wrapped runner.
    spared: dict[str, Any] = {name: pin_guard.PinGuardedRunner(one, held_by) for name, one in ledger.runners.items()}
    return spared, pin_guard.PinGuardedBlobStore(ledger.blobs, held_by)
