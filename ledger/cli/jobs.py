"""`jobledger submit|cancel|suspend|resume|retry` change jobs; `jobledger wait` waits for one.

The modules `replacing` and `savepoints` have two more verbs that change jobs."""

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
        metavar="[JOB]", help="Id, unique beginning of an id, NAME or NAMESPACE/NAME. Default: those of -n and -l.",
        show_default=False,
    ),
]  # fmt: skip
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; recorded in the history for ever.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Do not wait for the runner to confirm the stop; two attempts may then run at once.",
        show_default=False,
    ),
]
Command = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND…", help="Program and arguments.", show_default=False)
]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Id of the job. Default: a new UUIDv7."),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Name for people. Default: the program's.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Namespace of the job.")]
Unique = Annotated[
    bool, typer.Option("--unique", help="Refuse if another job of this name is not over.", show_default=False)
]
Restart = Annotated[
    str | None,
    typer.Option("--restart", metavar="POLICY", help=f"{parsing.RESTART_FORMS}. Default: exponential-delay."),
]
PermanentExitCode = Annotated[
    list[int] | None,
    typer.Option(
        "--permanent-exit-code", metavar="CODE",
        help="A failure with this exit code is permanent: no restart. 128 + N: killed by signal N. Repeatable.",
    ),
]  # fmt: skip
PermanentPattern = Annotated[
    list[str] | None,
    typer.Option(
        "--permanent-pattern", metavar="REGEX",
        help="A failure is permanent if its cause (with the last lines of stderr) matches. Repeatable.",
    ),
]  # fmt: skip
FailureLabel = Annotated[
    list[str] | None,
    typer.Option("--failure-label", metavar="LABEL=CODE|REGEX", help="Give failures that match a label. Repeatable."),
]
PermanentLabel = Annotated[
    list[str] | None,
    typer.Option("--permanent-label", metavar="LABEL", help="Failures with this label are permanent. Repeatable."),
]
CheckpointInterval = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-interval",
        metavar="DURATION",
        help="How often the job completes a checkpoint; used to detect a stall.",
    ),
]
StalledAfter = Annotated[
    int | None,
    typer.Option(
        "--stalled-after",
        metavar="N",
        help="A job is stalled after N intervals without a new checkpoint. Default: 3.",
        show_default=False,
    ),
]
OnStalled = Annotated[
    str | None,
    typer.Option("--on-stall", metavar="mark|restart", help="Reaction to a stall; a restart counts as a failure."),
]
SavepointInterval = Annotated[
    str | None,
    typer.Option(
        "--savepoint-interval", metavar="DURATION",
        help="Request a savepoint this long after the newest one, or after the start; at least 1s.",
    ),
]  # fmt: skip
SavepointKeep = Annotated[
    int | None,
    typer.Option(
        "--savepoint-keep", metavar="N", min=1, show_default=False,
        help="Keep the newest N of these savepoints, and those a restart may need; delete the rest. Default: keep all.",
    ),
]  # fmt: skip
Retention = Annotated[
    str,
    typer.Option(
        "--checkpoint-retention", metavar="delete|keep",
        help="Delete or keep its checkpoints when it is over; savepoints stay.",
    ),
]  # fmt: skip
Priority = Annotated[int, typer.Option("--priority", metavar="N", help="Jobs with a higher priority start first.")]
Slots = Annotated[
    int,
    typer.Option(
        "--slots", min=0, max=1_000_000, metavar="N", help="Slots of its pool that it takes while it runs; 0: none."
    ),
]
Region = Annotated[
    str | None,
    typer.Option(
        "--region", metavar="NAME", help="Jobs of the same namespace and region restart together when one of them fails."
    ),
]
Graph = Annotated[
    list[Path] | None,
    typer.Option("--graph", metavar="FILE", help="A file or folder to pack into the graph; repeatable."),
]
Env = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="An environment variable of the job; repeatable.")
]


def _with_one_sign(labels: list[str] | None) -> list[str] | None:
    """NAME==VALUE means NAME=VALUE, as where -l selects jobs; otherwise no selector would find the value."""
    return None if labels is None else [label.replace("==", "=", 1) if _DOUBLE.match(label) else label for label in labels]


Label = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        "-l",
        metavar="NAME=VALUE",
        help="A label to select jobs by; repeatable.",
        callback=_with_one_sign,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory", metavar="SIZE", show_default=False,
        help="Limit of the address space of each of its processes: 512M, 2G; 0: no limit.",
    ),
]  # fmt: skip
StopGrace = Annotated[
    str | None,
    typer.Option(
        "--stop-grace", metavar="DURATION", help="Time from SIGTERM to SIGKILL when it is stopped. Default: 10s.",
        show_default=False,
    ),
]  # fmt: skip
RunnerName = Annotated[
    str, typer.Option("--runner", metavar="NAME", help="The runner: subprocess, or the name of a plug-in.")
]
Restore = Annotated[
    str,
    typer.Option(
        "--restore", metavar="ledger|external",
        help="external: the job restores its state by itself; its checkpoints only show its progress.",
    ),
]  # fmt: skip
From = Annotated[
    str | None,
    typer.Option("--from", metavar="RESTORE_POINT", help="Location of the checkpoint to start from."),
]
RetryFrom = Annotated[
    str,
    typer.Option("--from", metavar="RESTORE_POINT", help="latest, scratch, or ATTEMPT/ID as in show."),
]
WithSavepoint = Annotated[
    bool,
    typer.Option("--savepoint", help="Request a savepoint, and stop the job once it is complete.", show_default=False),
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
    """Submit a job: a command that the agent of this host runs, and that the ledger brings back until it is over.

    The last line of the answer is the id of the job. Without a terminal the id is the only line on stdout, and the
    state of the job is on stderr. It is safe to repeat a submit with the same --id, even when the job is over.
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
        again = id_ is not None  # the job may have ended since the first submit
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
    """Cancel a job for good. To cancel a CANCELED job again does nothing.

    With -n or -l it lists all selected jobs and asks first. Exit code 1: it failed for some of them.
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
    """Bring back a suspended job from its newest restore point."""
    from ledger.core.model.facts import IntentKind

    _declare(world, job, IntentKind.RUN, reason)


@verb
def retry(
    world: Context, reason: Reason, job: JobOrMany = None, namespace: InNamespace = None, label: WithLabel = None,
    from_: RetryFrom = "latest", force: Force = False, yes: Yes = False,
) -> None:  # fmt: skip
    """Retry a job whose last attempt ended: a quarantined one, or one that waits for its restart.

    With -n or -l it lists all selected quarantined jobs and asks first. Exit code 1: it failed for some of them. A
    suspended job is not retried: jobledger resume brings it back.
    """
    from ledger.core.model.facts import IntentKind

    bulk.check_one_or_many(job, selected := selection(namespace, label))
    if job is None:
        bulk.declare(world, "RETRY", selected, parsing.reason(reason), from_=from_, force=force, yes=yes)
    else:
        _declare(world, job, IntentKind.RETRY, reason, from_, force)


def register(app: typer.Typer) -> None:
    # Everything from the first word of the command on belongs to the command, options too.
    app.command("submit", rich_help_panel=PANEL, context_settings={"allow_interspersed_args": False})(submit)
    for function in (wait, cancel, suspend, resume, retry):
        app.command(function.__name__, rich_help_panel=PANEL)(function)


# -- parts -------------------------------------------------------------------------------------------------------------


def _answer_submit(world: Context, job_id: str, spec: JobSubmitted, ended: JobOutcome | None) -> None:
    """The id is on the last line, whatever else is printed. A script that captures stdout gets the id alone."""
    row = {"job_id": job_id} | ({"state": ended.state, "reason": ended.reason} if ended and ended.state else {})
    if not world.printer.for_people:
        world.printer.one(row, [rendering.ID])
    else:
        state = f"{ended.state}{f': {ended.reason}' if ended.reason else ''}" if ended and ended.state else "admitted"
        sentence = f"{spec.namespace}/{spec.name} is {state}"
        (world.printer.text if world.printer.on_terminal else world.printer.note)(sentence)
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
