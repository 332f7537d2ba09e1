"""The verbs that change jobs: submit, cancel, suspend, resume, retry; and wait. `replace` and `savepoint` have modules of
their own."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli import bulk, parsing, rendering, session
from ledger.cli.interruption import unwinding
from ledger.cli.options import Context, InNamespace, WithLabel, Yes, verb
from ledger.cli.output import Column
from ledger.cli.selection import selection
from ledger.cli.specs import RUNNER, JobOptions, blob_of, spec_of

if TYPE_CHECKING:
    from ledger.core.model.facts import IntentKind, JobSubmitted
    from ledger.operations.client import JobOutcome

PANEL = "Jobs"
_DOUBLE = re.compile(r"[^=]*==")
Job = Annotated[str, typer.Argument(metavar="JOB", help="Id, unique beginning of an id, NAME or NAMESPACE/NAME.")]
JobOrMany = Annotated[
    str | None,
    typer.Argument(
        metavar="[JOB]", help="Id, unique beginning of an id, NAME or NAMESPACE/NAME; none: those that -n and -l select.",
        show_default=False,
    ),
]  # fmt: skip
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it stands in the history for ever.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Do not wait for the runner's word: then two attempts may run at once.", show_default=False
    ),
]
Command = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND…", help="Program and arguments.", show_default=False)
]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Id of the job; default: a new UUIDv7."),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name for people; default: the program's.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Whose job it is.")]
Unique = Annotated[bool, typer.Option("--unique", help="Refuse if a job of this name is not over.", show_default=False)]
Restart = Annotated[
    str | None,
    typer.Option("--restart", metavar="POLICY", help=f"{parsing.RESTART_FORMS}. Default: exponential-delay."),
]
PermanentExitCode = Annotated[
    list[int] | None,
    typer.Option(
        "--permanent-exit-code", metavar="CODE",
        help="A failure with this exit code is permanent: no restart. 128 + N: killed by signal N. May be given again.",
    ),
]  # fmt: skip
PermanentPattern = Annotated[
    list[str] | None,
    typer.Option(
        "--permanent-pattern", metavar="REGEX",
        help="So is one whose cause, the last lines of stderr included, has a match. May be given again.",
    ),
]  # fmt: skip
FailureLabel = Annotated[
    list[str] | None,
    typer.Option(
        "--failure-label", metavar="LABEL=CODE|REGEX", help="Call failures of a kind by a name. May be given again."
    ),
]
PermanentLabel = Annotated[
    list[str] | None,
    typer.Option("--permanent-label", metavar="LABEL", help="Failures of this name are permanent. May be given again."),
]
CheckpointInterval = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-interval", metavar="DURATION", help="How often the job completes a checkpoint; so a stall shows."
    ),
]
StalledAfter = Annotated[
    int | None,
    typer.Option(
        "--stalled-after", metavar="N", help="Stalled: no new checkpoint for N intervals; default 3.", show_default=False
    ),
]
OnStalled = Annotated[
    str | None,
    typer.Option("--on-stall", metavar="mark|restart", help="What follows then; a restart counts as a failure."),
]
SavepointInterval = Annotated[
    str | None,
    typer.Option(
        "--savepoint-interval", metavar="DURATION",
        help="Ask it for a savepoint when the newest, or the start, is as long ago. 1s is the least.",
    ),
]  # fmt: skip
SavepointKeep = Annotated[
    int | None,
    typer.Option(
        "--savepoint-keep", metavar="N", min=1, show_default=False,
        help="Delete such savepoints but the newest N, and what a start may begin from. Default: keep all.",
    ),
]  # fmt: skip
Retention = Annotated[
    str,
    typer.Option(
        "--checkpoint-retention", metavar="delete|keep",
        help="What becomes of its checkpoints when it is over; savepoints stay.",
    ),
]  # fmt: skip
Priority = Annotated[int, typer.Option("--priority", metavar="N", help="Higher ones start first.")]
Slots = Annotated[
    int, typer.Option("--slots", min=0, max=1_000_000, metavar="N", help="Of its pool, taken while it runs; 0: none.")
]
Region = Annotated[
    str | None,
    typer.Option(
        "--region", metavar="NAME", help="Jobs of one namespace and region restart together, if one of them fails."
    ),
]
Graph = Annotated[
    list[Path] | None,
    typer.Option("--graph", metavar="FILE", help="A file or folder to take along; may be given again."),
]
Env = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="A variable of the job; may be given again.")
]


def _with_one_sign(labels: list[str] | None) -> list[str] | None:
    """NAME==VALUE is NAME=VALUE, as where -l selects jobs: else no selector would find the value."""
    return None if labels is None else [label.replace("==", "=", 1) if _DOUBLE.match(label) else label for label in labels]


Label = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        "-l",
        metavar="NAME=VALUE",
        help="A label to select jobs by; may be given again.",
        callback=_with_one_sign,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory", metavar="SIZE", show_default=False,
        help="Address space that each of its processes may take: 512M, 2G; 0: no limit.",
    ),
]  # fmt: skip
StopGrace = Annotated[
    str | None,
    typer.Option(
        "--stop-grace", metavar="DURATION", help="From SIGTERM to SIGKILL when it is stopped. Default: 10s.",
        show_default=False,
    ),
]  # fmt: skip
RunnerName = Annotated[str, typer.Option("--runner", metavar="NAME", help="What runs it: a plug-in's name, or this.")]
Restore = Annotated[
    str,
    typer.Option(
        "--restore", metavar="ledger|external",
        help="external: it restores by itself from elsewhere; its checkpoints only show how far it is.",
    ),
]  # fmt: skip
From = Annotated[
    str | None,
    typer.Option("--from", metavar="RESTORE_POINT", help="Checkpoint to begin from."),
]
RetryFrom = Annotated[
    str,
    typer.Option("--from", metavar="RESTORE_POINT", help="latest, scratch, or ATTEMPT/ID as in show."),
]
WithSavepoint = Annotated[
    bool,
    typer.Option("--savepoint", help="Ask the job for a savepoint, and stop it once that is there.", show_default=False),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the job is over or quarantined.", show_default=False)]


@verb
def submit(
    world: Context, command: Command = None, id_: Id = None, name: Name = None, namespace: Namespace = "default",
    unique: Unique = False, restart: Restart = None, priority: Priority = 0, slots: Slots = 1, label: Label = None,
    graph: Graph = None, env: Env = None, memory: Memory = None, stop_grace: StopGrace = None,
    runner: RunnerName = RUNNER, from_: From = None, permanent_exit_code: PermanentExitCode = None,
    permanent_pattern: PermanentPattern = None, failure_label: FailureLabel = None, permanent_label: PermanentLabel = None,
    checkpoint_interval: CheckpointInterval = None, stalled_after: StalledAfter = None, on_stall: OnStalled = None,
    savepoint_interval: SavepointInterval = None, savepoint_keep: SavepointKeep = None,
    checkpoint_retention: Retention = "delete", restore: Restore = "ledger", region: Region = None, wait: Wait = False,
) -> None:  # fmt: skip
    """Submit a job: a command, run by the agent of this host, and brought back until it is over.

    The last line of the answer is the id of the job; where stdout is no terminal, it is the only one, and what became of
    the job stands on stderr. To submit the same again under the same --id changes nothing, also when it is over by then.
    """
    options = JobOptions(
        command or (), name, namespace, runner, restart, priority, slots, region, label or (), graph or (), env or (),
        memory, stop_grace, from_, permanent_exit_code or (), permanent_pattern or (), failure_label or (),
        permanent_label or (), checkpoint_interval, stalled_after, on_stall, savepoint_interval, savepoint_keep,
        checkpoint_retention, restore,
    )  # fmt: skip
    spec = spec_of(options)
    with unwinding(), ExitStack() as stack:
        blob = blob_of(options)
        stack.callback(blob.unlink, missing_ok=True)
        client, tell = stack.enter_context(session.client(world, "submitting"))
        job_id = client.submit(spec, blob, job_id=id_, unique=unique, named=tell)
        again = id_ is not None  # then it may be over since it was first submitted
        ended = client.wait(job_id, None if wait else 0.0) if wait or again else None
    _answer_submit(world, job_id, spec, ended)
    if wait and not (ended and ended.finished):
        raise typer.Exit(1)


@verb
def wait(world: Context, job: Job) -> None:
    """Wait until a job is over or quarantined. Exit code 0: it is FINISHED; 1: anything else."""
    with session.client(world) as (client, tell):
        job_id = client.resolve(job, retired=True)
        tell(f"waiting for {job_id}")
        ended = client.wait(job_id)
    _say_ended(world, ended)


@verb
def cancel(
    world: Context, reason: Reason, job: JobOrMany = None, namespace: InNamespace = None, label: WithLabel = None,
    force: Force = False, yes: Yes = False,
) -> None:  # fmt: skip
    """Cancel a job. That is never undone. Of a job that is CANCELED already nothing more is asked.

    With -n or -l all jobs that they select: they are listed, and you are asked. Exit code 1: it failed for some of them.
    """
    from ledger.core.model.facts import IntentKind

    bulk.check_one_or_many(job, selected := selection(namespace, label))
    if job is None:
        bulk.declare(world, "CANCEL", selected, parsing.reason(reason), force=force, yes=yes)
    else:
        _declare(world, job, IntentKind.CANCEL, reason, force=force)


@verb
def suspend(world: Context, job: Job, reason: Reason, savepoint: WithSavepoint = False) -> None:
    """Stop a job for now. It keeps its graph and restore points; `resume` brings it back."""
    from ledger.core.model.facts import IntentKind

    _declare(world, job, IntentKind.SUSPEND, reason, savepoint=savepoint)


@verb
def resume(world: Context, job: Job, reason: Reason) -> None:
    """Bring back a suspended job, from its newest restore point."""
    from ledger.core.model.facts import IntentKind

    _declare(world, job, IntentKind.RUN, reason)


@verb
def retry(
    world: Context, reason: Reason, job: JobOrMany = None, namespace: InNamespace = None, label: WithLabel = None,
    from_: RetryFrom = "latest", force: Force = False, yes: Yes = False,
) -> None:  # fmt: skip
    """Try again a job whose last attempt ended: a quarantined one, or one that waits for its restart.

    With -n or -l all quarantined jobs that they select: they are listed, and you are asked. Exit code 1: it failed for
    some of them. A suspended job is not retried: jobledger resume brings it back.
    """
    from ledger.core.model.facts import IntentKind

    bulk.check_one_or_many(job, selected := selection(namespace, label))
    if job is None:
        bulk.declare(world, "RETRY", selected, parsing.reason(reason), from_=from_, force=force, yes=yes)
    else:
        _declare(world, job, IntentKind.RETRY, reason, from_, force)


def register(app: typer.Typer) -> None:
    # Everything from the first word of the command on is the command's, its options too.
    app.command("submit", rich_help_panel=PANEL, context_settings={"allow_interspersed_args": False})(submit)
    for function in (wait, cancel, suspend, resume, retry):
        app.command(function.__name__, rich_help_panel=PANEL)(function)


# -- parts -------------------------------------------------------------------------------------------------------------


def _answer_submit(world: Context, job_id: str, spec: JobSubmitted, ended: JobOutcome | None) -> None:
    """The id stands in the last line, whatever else is told. A script that captures stdout gets the id alone."""
    row = {"job_id": job_id} | ({"state": ended.state, "reason": ended.reason} if ended and ended.state else {})
    if not world.printer.for_people:
        world.printer.one(row, [rendering.ID])
    else:
        state = f"{ended.state}{f': {ended.reason}' if ended.reason else ''}" if ended and ended.state else "admitted"
        told = f"{spec.namespace}/{spec.name} is {state}"
        (world.printer.text if world.printer.on_terminal else world.printer.note)(told)
        world.printer.text(job_id)


def _declare(
    world: Context, job: str, kind: IntentKind, reason: str, from_: str = "latest", force: bool = False,
    savepoint: bool = False,
) -> None:  # fmt: skip
    why = parsing.reason(reason)
    with session.client(world) as (client, tell):
        job_id = client.resolve(job, retired=True)
        tell(f"waiting until {job_id} shows it")
        entry = client.declare(job_id, kind, reason=why, from_=from_, force=force, savepoint=savepoint)
    rendering.one_job(world.printer, rendering.known_row(entry))


def _say_ended(world: Context, ended: JobOutcome) -> None:
    world.printer.one(
        {"job_id": ended.job_id, "state": ended.state, "reason": ended.reason},
        [rendering.ID, Column("STATE", "state"), Column("REASON", "reason")],
    )
    if not ended.finished:
        raise typer.Exit(1)
