"""`jobledger gc`: lists, and with --apply deletes, stored data that no job needs any more."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli import parsing, session
from ledger.cli.options import Context, verb
from ledger.cli.output import Column, Format, Printer, age
from ledger.cli.rendering import ID

if TYPE_CHECKING:
    from ledger.operations.collecting import Found


def _bytes(size: int) -> str:
    """For people: 512 B, 3.4 MiB."""
    number, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


ORPHANS = [
    Column("KIND", "kind"),
    Column("SIZE", "size", _bytes),
    Column("AGE", "age_s", age),
    Column("NAME", "name"),
    Column("NAMESPACE", "namespace", wide=True),
    ID,
    Column("HOLDER", "holder", wide=True),
    Column("WHERE", "where", wide=True),
    Column("EVIDENCE", "evidence"),
]


@verb
def gc(
    world: Context,
    apply: Annotated[bool, typer.Option("--apply", help="Delete the listed things, and record it.")] = False,
    grace: Annotated[
        str | None,
        typer.Option("--grace", metavar="DURATION", help="Leave younger things alone; at least 1h. Default: the settings."),
    ] = None,
) -> None:
    """List what no job needs any more: graphs, run folders, checkpoints. With --apply delete it.

    Each line has size, owner, age, and the evidence why it is garbage. Unclear cases, and everything that `audit pin`
    holds, are left alone. The leading reconciler does the same on a schedule. Nothing is deleted if a store, a runner
    or the archive (which may hold a pin) can't be read.
    """
    from ledger.app import pinning
    from ledger.operations import collecting
    from ledger.util.identity import whoami

    config = world.config
    grace_s = config.reconciler.gc_grace_s if grace is None else parsing.duration_s(grace, "--grace")
    with session.source(world) as source:
        runners, blobs = world.ledger.runners, world.ledger.blobs
        held = partial(pinning.held_jobs, world.ledger)
        if apply:
            evidence = collecting.DeletionLog(config.collected_file, whoami(), source.clock.time)
            found = collecting.collect(source, runners, blobs, evidence, grace_s, held)
        else:
            found = collecting.look(source, runners, blobs, grace_s, held)
    show(world.printer, found, apply)


def register(app: typer.Typer) -> None:
    app.command("gc", rich_help_panel="Operate the ledger")(gc)


def show(printer: Printer, found: Found, applied: bool) -> None:
    from ledger.operations.collecting import to_row

    answer = to_row(found)
    rows = answer["deleted"] if applied else answer["orphans"]
    if printer.form is Format.json or printer.form is Format.jsonl:
        printer.one(answer, ORPHANS)
    else:
        columns = [Column("WHERE", "where")] if printer.form is Format.name else ORPHANS
        printer.rows(rows, columns)
        printer.text(_summary(rows, answer, applied))
    for one in answer["spared"]:
        printer.note(f"not touched: {one['kind']} {one['where']}: {one['evidence']}")
    for one in answer["left"]:
        printer.note(f"not deleted: {one['kind']} {one['where']}: {one['why']}")
    for runner, why in answer["silent"].items():
        printer.note(f"the {runner} runner does not answer, so nothing is known of what it keeps: {why}")


def _summary(rows: list[dict[str, Any]], answer: dict[str, Any], applied: bool) -> str:
    size = _bytes(sum(row["size"] for row in rows))
    what = f"{len(rows)} {'orphan' if len(rows) == 1 else 'orphans'}, {size}" if rows else "no orphan"
    done = " deleted" if applied and rows else "; --apply deletes them" if rows else ""
    young = f"; {answer['young']} younger than the grace" if answer["young"] else ""
    return f"{what}{done}{young}"
