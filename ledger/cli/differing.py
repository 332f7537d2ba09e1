"""The verb `diff`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli import opening
from ledger.cli.comparing import differing_fields, entry_text
from ledger.cli.options import World, bundle_verb
from ledger.cli.output import Column, Printer, brief, utc
from ledger.cli.reading import PANEL
from ledger.cli.showing import ID
from ledger.errors import UsageError
from ledger.plain import to_plain

if TYPE_CHECKING:
    from ledger.differing import Changed

From = Annotated[str, typer.Option("--from", metavar="MOMENT", help="The earlier moment, as --as-of takes it.")]
To = Annotated[str, typer.Option("--to", metavar="MOMENT", help="The later one. Default: now.")]
#: What was written, when and by whom.
ACTED = [
    Column("TIME", "time_s", utc),
    Column("WROTE", "register", brief),
    Column("ACTOR", "actor"),
    Column("CE_TIME", "ce_time_s", utc, wide=True),
    Column("SKEW", "skew", wide=True),
    Column("SOURCE", "source", wide=True),
    Column("PARTITION", "partition", wide=True),
    Column("OFFSET", "offset", wide=True),
    Column("WHY", "why", brief, text=True),
]
CHANGES = [
    ID,
    Column("FROM", "before", entry_text),
    Column("TO", "after", entry_text),
    *ACTED[:-1],
    Column("DIFFERS", "differs", wide=True),
    ACTED[-1],
]


@bundle_verb
def diff(world: World, from_: From, to: To = "0s") -> None:
    """What changed between two moments by the word of the log: which jobs, from what to what, who wrote what, and why.

    A job that nobody can tell of any more at either moment, since something of it has expired, is left out. Of the others
    what has expired in between is not among the records.
    """
    from ledger.differing import changed
    from ledger.past import together

    with opening.moments(world, thin=True) as at:
        before, cut = at("--from", from_)
        after, until = at("--to", to)
        if any(cut[place] > end for place, end in until.items()):
            raise UsageError(f"--from {from_} is later than --to {to}.")
        before, after = together(before, after)
        found = changed(before, after, {partition: end for (topic, partition), end in cut.items() if topic == "events"})
    show(world.printer, found, "nothing changed")
    world.printer.note(f"from {opening.vector(cut)}")
    world.printer.note(f"to {opening.vector(until)}")
    opening.say_left_out(world, after)


def show(printer: Printer, found: Sequence[Changed], empty: str, columns: Sequence[Column] = CHANGES) -> None:
    if printer.for_people:
        printer.rows([row for one in found for row in _for_people(one)], columns, empty=empty)
    else:
        printer.rows([to_plain(one) for one in found], [ID])


def register(app: typer.Typer) -> None:
    app.command("diff", rich_help_panel=PANEL)(diff)


def _for_people(changed: Changed) -> list[dict[str, Any]]:
    """A line for each record that was written in between."""
    whole = to_plain(changed)
    told = {name: whole[name] for name in ("job_id", "before", "after")}
    told["differs"] = differing_fields(whole["before"], whole["after"])
    return [{**record, **told, "why": why(record)} for record in whole["records"]]


def why(record: dict[str, Any]) -> str:
    if record["tombstone"]:
        return "tombstone"
    fact = record["fact"] or {}
    return str(fact.get("reason") or fact.get("cause") or "")
