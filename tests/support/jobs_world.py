"""The command line on a ledger in memory, whose projector works whenever a command waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.sender import MemorySender
from ledger.app.ledger import Ledger
from ledger.app.wiring import SettingsAdapters
from ledger.archive.format.decoding import decoded
from ledger.archive.store.archiving import Archiver, PartitionShape, ReaderSegments
from ledger.cli import app
from ledger.config.config import Config, load_config
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    RefusedRestorePoint,
    RestorePoint,
)  # fmt: skip
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Outcome, Running
from tests.support.operated import EVENTS, RECOVERY, Operated

D = "d" * 64


class ShellAdapters(SettingsAdapters):
    """The adapters that the settings name, except for log, clock, blobs and the adapters that a test replaces."""

    def __init__(self, config: Config, shell: Shell) -> None:
        super().__init__(config)
        self.clock = shell.clock
        given = {"event_log": lambda: shell.log, "sender": lambda *_: MemorySender(shell.log), "blobs": lambda: shell.blobs}
        for name, make in (given | shell.replaced).items():
            setattr(self, name, make)


class Shell(Operated):
    def __init__(self, folder: Any) -> None:
        super().__init__(folder)
        #: Name of an adapter -> its replacement. A test sets replacements, for instance one that fails.
        self.replaced: dict[str, Callable[..., Any]] = {}
        self._environment = {
            "LEDGER_DIR": str(folder), "LEDGER_KAFKA__BOOTSTRAP_SERVERS": "memory:1", "COLUMNS": "300",
        }  # fmt: skip

    def opened(self, config: Config) -> Ledger:
        """The ledger for a verb: this one, with the verb's settings."""
        return Ledger(config, ShellAdapters(config, self))

    def run(self, *arguments: str, **environment: str) -> Result:
        """Runs a command. Results must be on stdout, and errors on stderr."""
        with capture_logs():  # the projector's logs are no output of the command
            told = CliRunner().invoke(
                app, list(arguments), env=self._environment | environment, prog_name="jobledger", obj=self.opened
            )
        assert told.exit_code != 70, told.stderr
        if told.exit_code in (2, 3, 5):
            assert told.stdout == "" and "rror" in told.stderr
        return told

    def good(self, *arguments: str) -> str:
        told = self.run(*arguments)
        assert told.exit_code == 0, told.output
        return told.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.good(*arguments, "-o", "json"))

    def submit(self, name: str = "etl", *arguments: str) -> str:  # type: ignore[override]  # by the command
        told = self.good("submit", "--name", name, *arguments, "-o", "name", "--", "true")
        return str(told.strip())


def table(text: str) -> list[dict[str, str]]:
    """Parses a table as printed without a terminal."""
    head, *lines = [line.split() for line in text.splitlines()]
    return [dict(zip(head, line, strict=True)) for line in lines]


def seal(shell: Shell) -> None:
    """Archives all records."""
    archive = shell.opened(load_config(shell.folder)).archive
    stream = ReaderSegments(shell.log, archive, lambda record: decoded(record, avro, cloudevents))

    def shapes() -> dict[tuple[str, int], PartitionShape]:
        ends = shell.log.reader([EVENTS, RECOVERY]).high_watermarks()
        return {place: PartitionShape("id", 0, end) for place, end in ends.items()}

    archiver = Archiver(archive, stream, shapes, shell.clock)
    archiver.begin()
    while archiver.step():
        pass


def running(shell: Shell, *options: str) -> str:
    """Submits a job, which then runs and has a checkpoint and two savepoints. Returns its id."""
    job_id = shell.submit("etl", *options)
    shell.record(job_id, Attempt(1, 1), AttemptStarted("d" * 64))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    for id_, kind in ((1, CheckpointKind.CHECKPOINT), (2, CheckpointKind.SAVEPOINT), (3, CheckpointKind.SAVEPOINT)):
        fact = CheckpointCompleted(f"/x/{id_}", 10 * id_, kind=kind, ask="periodic-0-0-0" if id_ == 2 else "of-ann")
        shell.record(job_id, Checkpoint(1, id_), fact)
    return job_id


def busy(shell: Any, name: str = "etl") -> str:
    """Makes a job with many kinds of registers."""
    job_id: str = shell.submit(name, "--restart", "fixed-delay:3:10s", "--from", "/outside/chk")
    base = RestorePoint(0, 0, "/outside/chk")
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D, base, (RefusedRestorePoint(base, "gone"),), 0, (1.5,)))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    shell.record(job_id, Checkpoint(1, 4), CheckpointCompleted("/chk-4", 10, "", base))
    shell.record(job_id, Checkpoint(1, 5), CheckpointCompleted("/chk-5", 10, "", base))
    shell.record(job_id, Ended(1, Outcome.FAILED, "agent-a"), AttemptEnded("exit code 1", 5, 2.5))
    shell.now(job_id)
    return job_id
