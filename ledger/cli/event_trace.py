"""`jobledger replay --from`: lists the records between two moments, and what each record changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.cli import checkpoint_runs, session
from ledger.cli.entry_diff import differing_fields, entry_text
from ledger.cli.options import Context
from ledger.cli.output import Column
from ledger.cli.rendering import ID
from ledger.cli.state_diff import ACTED, why
from ledger.errors import UsageError
from ledger.util.plain import to_plain

if TYPE_CHECKING:
    from ledger.history.event_trace import TraceStep

STEPS = [
    ACTED[0],
    ID,
    Column("FROM", "before", entry_text),
    Column("TO", "after", entry_text),
    *ACTED[1:],
    Column("DIFFERS", "differs", wide=True),
]


def show_steps(world: Context, from_: str, to: str, job: str | None, all_records: bool = False) -> None:
    """Prints the records between two moments and what each record changed. job: None = all jobs. all_records: show each
    checkpoint of a run. Raises: UsageError, NotFound; as `session.moments`."""
    from ledger.history.event_trace import steps
    from ledger.history.historical_log import together
    from ledger.reader.job_lookup import resolve

    with session.moments(world, "replaying the log") as at:
        before, cut = at("--from", from_)
        then, until = at("--to", to)
        if any(cut[tp] > end for tp, end in until.items()):
            raise UsageError(f"--from {from_} is later than --to {to}.")
        _, then = together(before, then, between=True)
        job_id = None if job is None else resolve(then, job, retired=True)
        begin = {partition: end for (topic, partition), end in cut.items() if topic == "events"}
        rows = [_row(step) for step in steps(then, begin, job_id)]
    short = world.printer.for_people and not all_records
    shown = checkpoint_runs.folded(rows, _states) if short else rows
    world.printer.rows(shown, STEPS, empty="nothing was written")
    if len(shown) < len(rows):
        world.printer.note(checkpoint_runs.NOTE)
    world.printer.note(f"from {session.vector(cut)}")
    world.printer.note(f"to {session.vector(until)}")
    session.say_left_out(world, then)


def _states(row: dict[str, Any]) -> tuple[str, str]:
    """The change of a job's state by a record, as the table shows it."""
    return entry_text(row["before"]), entry_text(row["after"])


def _row(step: TraceStep) -> dict[str, Any]:
    """A record beside the change that it made."""
    whole = to_plain(step)
    record = whole.pop("record")
    differs = differing_fields(whole["before"], whole["after"])
    return {**record, **whole, "differs": differs, "why": why(record)}
