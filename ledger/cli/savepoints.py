"""`jobledger savepoint`: requests a savepoint of a job, lists the savepoints, or disposes of one.

`jobledger savepoint JOB` requests a savepoint: the word after `savepoint` is a job, unless it is `ask`, `list` or
`dispose`. For a job of such a name use NAMESPACE/NAME, or its id."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ledger.cli import parsing, rendering, session
from ledger.cli.jobs import PANEL, Job, Reason
from ledger.cli.options import Context, verb
from ledger.cli.output import Column, Format, utc

ASK = "ask"
# The group runs `ask` without its name too, so its variables are those of the old verb.
AskReason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Why; recorded in the history for ever."),
]
AskTimeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait for it."),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait for it.")]
Which = Annotated[str, typer.Argument(metavar="SAVEPOINT", help="ATTEMPT/ID as in savepoint list, or its location.")]
LIST = [
    Column("SAVEPOINT", "savepoint"),
    Column("KIND", "periodic", lambda periodic: "periodic" if periodic else "asked for"),
    Column("STATE", "state"),
    Column("MADE", "made_at", lambda at: "-" if at is None else utc(at)),
    Column("SIZE", "size"),
    Column("NEEDED BY", "needed_by"),
    Column("ASK", "ask", wide=True),
    Column("LOCATION", "location"),
]


class AsksByDefault(TyperGroup):
    """A group of verbs whose first word may be a job; then the verb `ask` runs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = [ASK, *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Flags before the job belong to the verb, not to the group.
        if args and args[0].startswith("-") and args[0] not in ("--help", "-h"):
            args = [ASK, *args]
        return super().parse_args(ctx, args)


savepoint = typer.Typer(
    cls=AsksByDefault, no_args_is_help=True, subcommand_metavar="JOB|COMMAND [ARGS]...",
    help="Request a savepoint of a running job: savepoint JOB --reason TEXT. Or list savepoints, or dispose of one.",
)  # fmt: skip


@verb
def ask(world: Context, job: Job, reason: AskReason, timeout: AskTimeout = 120.0) -> None:
    """Request a savepoint of a running job, and wait until it is complete. The savepoint is kept, and `retry --from`
    takes it."""
    why = parsing.reason(reason)
    with session.client(world) as (client, tell):
        job_id = client.resolve(job, retired=True)
        tell(f"waiting for the savepoint of {job_id}")
        point = client.savepoint(job_id, reason=why, timeout_s=timeout)
    rendering.one_restore_point(world.printer, job_id, point)


@verb
def list_(world: Context, job: Job) -> None:
    """List the savepoints of a job. A retired job's savepoints outlive it and are listed too."""
    from ledger.util.plain import to_plain

    with session.client(world) as (client, tell):
        job_id = client.resolve(job, retired=True)
        tell(f"reading the savepoints of {job_id}")
        found = client.savepoints(job_id, lambda: world.ledger.runners)
    rows = []
    for one in found:
        row: dict[str, Any] = to_plain(one)
        rows.append({"job_id": job_id, "savepoint": str(one.point), **row.pop("point"), **row})
    printer = world.printer
    columns = [rendering.ID, *LIST] if printer.form is not Format.name else LIST
    printer.rows(rows, columns, empty=f"{job_id} has no savepoints.")


@verb
def dispose(world: Context, job: Job, which: Which, reason: Reason, timeout: Timeout = 30.0) -> None:
    """Dispose of a savepoint for good: nothing starts from it any more, and its files are deleted.

    Refused (exit code 5) if an attempt that is not over started from it, if a job may still start from it, if it is the
    only restore point of its job, or if a pin holds its job (audit pins). It is safe to repeat.
    """

    why = parsing.reason(reason)
    with session.client(world) as (client, tell):
        job_id = client.resolve(job, retired=True)
        tell(f"waiting until savepoint {which} of {job_id} is deleted")
        point = client.dispose(job_id, which, lambda: world.ledger.runners, reason=why, timeout_s=timeout)
    if point is not None:
        rendering.one_restore_point(world.printer, job_id, point)
    else:
        world.printer.note(f"{which} of {job_id} is gone already.")


def register(app: typer.Typer) -> None:
    savepoint.command(ASK)(ask)
    savepoint.command("list")(list_)
    savepoint.command("dispose")(dispose)
    app.add_typer(savepoint, name="savepoint", rich_help_panel=PANEL)
