"""`jobledger diff`: compares two moments of the log: the jobs that changed, how, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli import checkpoint_runs, session
from ledger.cli.checkpoint_runs import AllRecords
from ledger.cli.entry_diff import differing_fields, entry_text
from ledger.cli.options import Context, bundle_verb
from ledger.cli.output import Column, Format, Printer, brief, short_digests, utc
from ledger.cli.reading import PANEL
from ledger.cli.rendering import ID
from ledger.errors import UsageError
from ledger.util.plain import to_plain

if TYPE_CHECKING:
    from ledger.history.state_diff import Changed

From = Annotated[str, typer.Option("--from", metavar="MOMENT", help="The earlier moment, as --as-of takes it.")]
Only = Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only this job.", show_default=False)]
To = Annotated[str, typer.Option("--to", metavar="MOMENT", help="The later moment. Default: now.")]
#: One line per record: its content, time and writer.
ACTED = [
    Column("TIME", "time_s", time=True),
    Column("WROTE", "register", brief, short=short_digests),
    Column("ACTOR", "actor"),
    Column("CE_TIME", "ce_time_s", utc, wide=True),
    Column("SKEW", "skew", wide=True),
    Column("SOURCE", "source", wide=True),
    Column("PARTITION", "partition", wide=True),
    Column("OFFSET", "offset", wide=True),
    Column("WHY", "why", brief, text=True),
]
_FROM, _TO = Column("FROM", "before", entry_text), Column("TO", "after", entry_text)
#: One line per job: its last change.
CHANGED = [
    Column("NAME", "name"), ID, _FROM, _TO, Column("RECORDS", "count"), Column("TIME", "time_s", time=True),
    Column("WHY", "told", text=True),
]  # fmt: skip
#: One line per record.
CHANGES = [
    ID,
    _FROM,
    _TO,
    *ACTED[:-1],
    Column("DIFFERS", "differs", wide=True),
    ACTED[-1],
]


@bundle_verb
def diff(world: Context, from_: From, to: To = "0s", job: Only = None, all_records: AllRecords = False) -> None:
    """Compare two moments of the log: the jobs that changed, how, and why.

    -o wide lists the records instead: each with writer and time, a run of checkpoints as one line; --all-records shows
    each. A job is left out if expired records make its state unknown at one of the moments. Records that expired in
    between are missing from the list.
    """
    from ledger.history.historical_log import together
    from ledger.history.state_diff import changed
    from ledger.reader.job_lookup import resolve

    with session.moments(world, thin=True) as at:
        before, cut = at("--from", from_)
        after, until = at("--to", to)
        if any(cut[tp] > end for tp, end in until.items()):
            raise UsageError(f"--from {from_} is later than --to {to}.")
        before, after = together(before, after)
        job_id = None if job is None else resolve(after, job, retired=True)
        found = changed(before, after, {partition: end for (topic, partition), end in cut.items() if topic == "events"})
    found = [one for one in found if job_id in (None, one.job_id)]
    printer = world.printer
    if not printer.for_people or all_records or printer.form is Format.wide:
        show(printer, found, "nothing changed", all_records=all_records)
    else:
        printer.rows([_job_row(one) for one in found], CHANGED, empty="nothing changed")
    printer.note(f"from {session.vector(cut)}")
    printer.note(f"to {session.vector(until)}")
    session.say_left_out(world, after)


def show(
    printer: Printer, found: Sequence[Changed], empty: str, columns: Sequence[Column] = CHANGES, all_records: bool = False
) -> None:
    """Prints the records of jobs that changed. empty: the note if no job changed. all_records: show each checkpoint of
    a run."""
    if not printer.for_people:
        printer.rows([to_plain(one) for one in found], [ID])
        return
    rows = [row for one in found for row in _for_people(one)]
    shown = rows if all_records else checkpoint_runs.folded(rows)
    printer.rows(shown, columns, empty=empty)
    if len(shown) < len(rows):
        printer.note(checkpoint_runs.NOTE)


def _job_row(changed: Changed) -> dict[str, Any]:
    """A job, and the record that explains its change best: the last one with a reason, or else the last that is no
    checkpoint."""
    whole = to_plain(changed)
    known = whole["after"] or whole["before"]
    records = [record for record in whole["records"] if not record["tombstone"]]
    acts = [record for record in records if not record["register"].startswith("checkpoint/")]
    act = next((one for one in reversed(acts) if why(one)), (acts or records or whole["records"] or [None])[-1])
    row = {name: whole[name] for name in ("job_id", "before", "after")}
    row |= {"name": (known.get("result") or known)["name"], "count": len(whole["records"])}
    if act is not None:
        by = f" by {act['actor']}" if act["actor"] and act["register"].startswith("intent/") else ""
        because = f": {brief(why(act))}" if why(act) else ""
        row |= {"time_s": act["time_s"], "told": f"{_act(act)}{by}{because}"}
    return row


def _act(record: dict[str, Any]) -> str:
    """The effect of a record in a word or two: for an intent the wanted state, otherwise the register."""
    kind = (record["fact"] or {}).get("kind") if record["register"].startswith("intent/") else None
    return str(kind or record["register"] or record["key"])


def register(app: typer.Typer) -> None:
    app.command("diff", rich_help_panel=PANEL)(diff)


def _for_people(changed: Changed) -> list[dict[str, Any]]:
    """One line for each record that was written in between."""
    whole = to_plain(changed)
    act = {name: whole[name] for name in ("job_id", "before", "after")}
    act["differs"] = differing_fields(whole["before"], whole["after"])
    return [{**record, **act, "why": why(record)} for record in whole["records"]]


def why(record: dict[str, Any]) -> str:
    if record["tombstone"]:
        return "tombstone"
    fact = record["fact"] or {}
    return str(fact.get("reason") or fact.get("cause") or "")
