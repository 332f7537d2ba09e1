"""Makes a job's spec and graph from options: `submit` takes them as flags, `apply` from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.cli import parsing
from ledger.errors import UsageError

if TYPE_CHECKING:
    from ledger.core.model.facts import JobSubmitted

RUNNER = "subprocess"


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The options of a job. Each field is the flag of `submit` of this name; None or empty = not given. env and label:
    NAME=VALUE each."""

    command: Sequence[str] = ()
    name: str | None = None
    namespace: str = "default"
    runner: str = RUNNER
    restart: str | None = None
    priority: int = 0
    slots: int = 1
    region: str | None = None
    label: Sequence[str] = ()
    graph: Sequence[Path] = ()
    env: Sequence[str] = ()
    memory: str | None = None
    stop_grace: str | None = None
    from_: str | None = None
    permanent_exit_code: Sequence[int] = field(default=())
    permanent_pattern: Sequence[str] = ()
    failure_label: Sequence[str] = ()
    permanent_label: Sequence[str] = ()
    checkpoint_interval: str | None = None
    stalled_after: int | None = None
    on_stall: str | None = None
    savepoint_interval: str | None = None
    savepoint_keep: int | None = None
    checkpoint_retention: str = "delete"
    restore: str = "ledger"


def spec_of(options: JobOptions) -> JobSubmitted:
    """The spec that the options describe, without the graph. Raises: UsageError."""
    from ledger.core.model.facts import JobSubmitted
    from ledger.core.plan.outside import OUTSIDE
    from ledger.producer.outside import NO_GRAPH

    if not options.command:
        raise UsageError("Say what to run.", hint="For example: jobledger submit --name etl -- python etl.py")
    if parsing.name(options.runner, "--runner") == OUTSIDE:
        raise UsageError(
            f"--runner {OUTSIDE}: such a job is run by its own producer.", hint="It uses a Recorder: docs/RECORDER.md"
        )
    rules = parsing.failure_rules(
        options.permanent_exit_code, options.permanent_pattern, options.failure_label, options.permanent_label
    )
    name = options.name if options.name is not None else _program(options.command[0])
    return JobSubmitted(
        parsing.name(name, "--name"), parsing.name(options.namespace, "--namespace"), options.runner, NO_GRAPH,
        parsing.restart_policy(options.restart, rules), slots=options.slots, priority=options.priority,
        labels=parsing.labels(options.label),
        region=None if options.region is None else parsing.name(options.region, "--region"),
        restore_from=parsing.restore_point(options.from_),
        stall_policy=parsing.stall_policy(options.checkpoint_interval, options.stalled_after, options.on_stall),
        checkpoint_retention=parsing.checkpoint_retention(options.checkpoint_retention),
        savepoint_policy=parsing.savepoint_policy(options.savepoint_interval, options.savepoint_keep),
        restore=parsing.restore_by(options.restore, options.from_),
    )  # fmt: skip


def blob_of(options: JobOptions) -> Path:
    """The path of the packed graph, a new file; the caller removes it. Raises: UsageError."""
    from ledger.adapters.runners.subprocess.graph import STOP_GRACE_S, pack

    memory, grace_s = limits(options.memory, options.stop_grace)
    return pack(
        options.command, options.graph, parsing.environment(options.env), memory or None,
        STOP_GRACE_S if grace_s is None else grace_s,
    )  # fmt: skip


def limits(memory: str | None, stop_grace: str | None) -> tuple[int | None, float | None]:
    """The memory limit in bytes (0 = no limit) and the grace period in seconds; each is None if its text is None.
    Raises: UsageError."""
    from ledger.adapters.runners.subprocess.graph import Graph, problem

    bytes_ = None if memory is None else parsing.size_bytes(memory, "--memory")
    grace_s = None if stop_grace is None else parsing.duration_s(stop_grace, "--stop-grace")
    if why := problem(Graph(("x",), memory_bytes=bytes_ or None)):
        raise UsageError(f"--memory {memory}: {why}.")
    if grace_s is not None and (why := problem(Graph(("x",), stop_grace_s=grace_s))):
        raise UsageError(f"--stop-grace {stop_grace}: {why}.")
    return bytes_, grace_s


def merged(old: Mapping[str, str], label: Sequence[str]) -> dict[str, str]:
    """The old labels with the given ones added or replaced. Raises: UsageError."""
    return {**old, **parsing.labels(label)}


def _program(word: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in Path(word).name)[:128] or "job"
