"""The verb `savepoint`: ask for one, list those that there are, dispose of one.

`jobledger savepoint JOB` asks, as ever: what stands behind `savepoint` is a job, unless it is `ask`, `list` or `dispose`. A
job of such a name is asked by NAMESPACE/NAME, or by its id.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ledger.cli import parsing, rendering, session
from ledger.cli.jobs import PANEL, Job, Reason
from ledger.cli.options import Context, verb
from ledger.cli.output import Column, Format, utc

ASK = "ask"
# It goes without its name too: its variables are those of the verb that it has always been.
AskReason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Why; it stands in the history for ever."),
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
    """A group whose first word may be a job: then the verb that asks is meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = [ASK, *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Flags that stand before the job are the verb's, not the group's.
        if args and args[0].startswith("-") and args[0] not in ("--help", "-h"):
            args = [ASK, *args]
        return super().parse_args(ctx, args)


savepoint = typer.Typer(
    cls=AsksByDefault, no_args_is_help=True, subcommand_metavar="JOB|COMMAND [ARGS]...",
    help="Ask what runs of a job for a savepoint: savepoint JOB --reason TEXT. Or list them, dispose of one.",
)  # fmt: skip


@verb
def ask(world: Context, job: Job, reason: AskReason, timeout: AskTimeout = 120.0) -> None:
    """Ask what runs of a job for a savepoint, and wait for it. It is kept, and `retry --from` takes it."""
    why = parsing.reason(reason)
    with session.client(world) as (client, tell):
        job_id = client.resolve(job, retired=True)
        tell(f"waiting for the savepoint of {job_id}")
        point = client.savepoint(job_id, reason=why, timeout_s=timeout)
    rendering.one_restore_point(world.printer, job_id, point)


@verb
def list_(world: Context, job: Job) -> None:
    """List the savepoints of a job, also of one that is retired: its savepoints outlive it."""
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
    """Give up a savepoint: nothing begins from it any more, and its files are deleted. That is never undone.

    Refused (exit code 5) if an attempt that is not over began from it, a job may yet begin from it, it is all that its job
    could begin from, or a pin holds its job (audit pins). The same again changes nothing.
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
