"""`jobledger replace`: starts a new job in place of a running job, from a savepoint."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace as with_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli import parsing, session, specs
from ledger.cli.interruption import unwinding
from ledger.cli.jobs import (
    PANEL,
    CheckpointInterval,
    Command,
    FailureLabel,
    Job,
    Label,
    Memory,
    OnStalled,
    PermanentExitCode,
    PermanentLabel,
    PermanentPattern,
    Restart,
    SavepointInterval,
    SavepointKeep,
    StalledAfter,
    StopGrace,
)
from ledger.cli.options import Context, verb
from ledger.cli.rendering import ID

if TYPE_CHECKING:
    from ledger.core.model.facts import JobSubmitted
    from ledger.operations.client import Client
    from ledger.operations.replacing import Replaced

KEEP = "Default: as the old one's."
From = Annotated[
    str,
    typer.Option(
        "--from", metavar="RESTORE_POINT",
        help="latest: the savepoint made when the old job is stopped, or its newest checkpoint. Or scratch, ATTEMPT/ID as "
        "in show, or a location.",
    ),
]  # fmt: skip
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; recorded in the history of both jobs for ever.")]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Id of the new job. Default: a new UUIDv7."),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help=f"Name for people. {KEEP}")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAMESPACE", help=f"Namespace of the job. {KEEP}")
]
Unique = Annotated[
    bool, typer.Option("--unique", help="Refuse if another job of this name is not over.", show_default=False)
]
Priority = Annotated[
    int | None, typer.Option("--priority", metavar="N", help=f"Jobs with a higher priority start first. {KEEP}")
]
Slots = Annotated[
    int | None, typer.Option("--slots", min=0, max=1_000_000, metavar="N", help=f"Slots of its pool that it takes. {KEEP}")
]
Graph = Annotated[
    list[Path] | None,
    typer.Option("--graph", metavar="FILE", help="A file or folder to pack instead of the old job's; repeatable."),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="An environment variable to add or replace; repeatable."),
]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Wait until the new job has replaced the old one, or has failed to.", show_default=False),
]


@verb
def replace(
    world: Context, job: Job, command: Command = None, from_: From = "latest", reason: Why = "", id_: Id = None,
    name: Name = None, namespace: Namespace = None, unique: Unique = False, restart: Restart = None,
    priority: Priority = None, slots: Slots = None, label: Label = None, graph: Graph = None, env: Env = None,
    memory: Memory = None, stop_grace: StopGrace = None, permanent_exit_code: PermanentExitCode = None,
    permanent_pattern: PermanentPattern = None, failure_label: FailureLabel = None, permanent_label: PermanentLabel = None,
    checkpoint_interval: CheckpointInterval = None, stalled_after: StalledAfter = None, on_stall: OnStalled = None,
    savepoint_interval: SavepointInterval = None, savepoint_keep: SavepointKeep = None,
    wait: Wait = False,
) -> None:  # fmt: skip
    """Replace a job by a new one: stop it with a savepoint, continue from there, cancel it once the new one runs.

    Values that are not given are the old job's: command, files, variables, policies, name. If the new job is
    quarantined, fails for good or is canceled first, the old one is resumed. The last line of the answer is the id of
    the new job. It is safe to repeat. With --wait exit code 0: the new job runs in place of the old one; 1: the
    replacement failed.
    """
    from ledger.operations.replacing import check_runner

    rules = parsing.failure_rules(
        permanent_exit_code or (), permanent_pattern or (), failure_label or (), permanent_label or ()
    )
    stalls = (checkpoint_interval, stalled_after, on_stall)
    policy = parsing.restart_policy(restart, rules)
    changes: dict[str, Any] = {"priority": priority, "slots": slots}
    changes["name"] = None if name is None else parsing.name(name, "--name")
    changes["namespace"] = None if namespace is None else parsing.name(namespace, "--namespace")
    changes["stall_policy"] = parsing.stall_policy(*stalls) if any(value is not None for value in stalls) else None
    periodic = savepoint_interval is not None or savepoint_keep is not None
    changes["savepoint_policy"] = parsing.savepoint_policy(savepoint_interval, savepoint_keep) if periodic else None
    start = parsing.start_point(from_)
    variables, limits = parsing.environment(env or ()), specs.limits(memory, stop_grace)
    with unwinding(), session.client(world, "submitting") as (client, tell), ExitStack() as stack:
        old_id, old = client.to_replace(client.resolve(job, retired=True, taking_over=False), id_)
        check_runner(old_id, old.runner)
        changes["labels"] = specs.merged(old.labels, label or ())
        spec = with_(old, **{name: value for name, value in changes.items() if value is not None})
        kept = old.restart_policy if restart is None else policy
        spec = with_(spec, restart_policy=with_(kept, failure_rules=rules or old.restart_policy.failure_rules))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobledger-replace-")))
        blob = _blob(client, old, folder, command or [], graph or [], variables, limits)
        job_id = client.replace(
            old_id, spec, blob, from_=start, reason=reason.strip(), job_id=id_, unique=unique, named=tell
        )  # fmt: skip
        if wait:
            tell(f"waiting until {job_id} runs in place of {old_id}")
        replaced = client.await_replacement(job_id, old_id) if wait else None
    _answer(world, old_id, job_id, spec, replaced)


def register(app: typer.Typer) -> None:
    # Unlike submit, options may follow the first word, which is JOB; those of the command follow `--`.
    app.command("replace", rich_help_panel=PANEL)(replace)


# -- parts -------------------------------------------------------------------------------------------------------------


def _blob(
    client: Client, old: JobSubmitted, folder: Path, command: list[str], files: list[Path], variables: dict[str, str],
    limits: tuple[int | None, float | None],
) -> Path:  # fmt: skip
    """The packed graph: the old one, with the given changes. limits: as `specs.limits`."""
    from ledger.adapters.runners.subprocess.graph import pack, unpack
    from ledger.adapters.runners.subprocess.unpacking import MANIFEST
    from ledger.errors import UsageError

    blob = folder / "old"
    client.fetch_graph(old, blob)
    if not (command or files or variables or limits != (None, None)):
        return blob
    if old.runner != specs.RUNNER:
        raise UsageError(
            f"The graph of a job of the runner {old.runner} is none of ours to change.",
            hint="Leave out the command, --graph, --env, --memory and --stop-grace: then it is taken as it is.",
        )
    graph = unpack(blob, folder / "unpacked")
    own = sorted(path for path in (folder / "unpacked").iterdir() if path.name != MANIFEST)
    memory, grace_s = limits
    return pack(
        command or graph.command, files or own, {**graph.environment, **variables},
        graph.memory_bytes if memory is None else memory or None, graph.stop_grace_s if grace_s is None else grace_s,
        folder,
    )  # fmt: skip


def _answer(world: Context, old_id: str, job_id: str, spec: JobSubmitted, replaced: Replaced | None) -> None:
    """The id is on the last line, whatever else is printed."""
    row: dict[str, Any] = {"job_id": job_id, "replaces": old_id}
    if replaced is not None:
        row |= {"state": replaced.state, "reason": replaced.reason, "done": replaced.done}
    if not world.printer.for_people:
        world.printer.one(row, [ID])
    else:
        world.printer.text(f"{spec.namespace}/{spec.name}: {_outcome_text(replaced, old_id)}")
        world.printer.text(job_id)
    if replaced is not None and not replaced.done:
        raise typer.Exit(1)


def _outcome_text(replaced: Replaced | None, old_id: str) -> str:
    if replaced is None:
        return f"admitted; it replaces {old_id} as soon as that has stopped"
    because = f": {replaced.reason}" if replaced.reason else ""
    if replaced.done:
        return f"{replaced.state} in the place of {old_id}{because}"
    return f"given up, it is {replaced.state}{because}; {old_id} is as it was"
