"""`jobledger replay --what-if`: shows the difference if some records had never been written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledger.cli import session
from ledger.cli.options import Context
from ledger.cli.state_diff import CHANGES, show

_TITLES = {"before": "AS IT IS", "after": "WITHOUT"}
COLUMNS = [
    replace(column, title=_TITLES.get(column.key, column.title), wide=column.wide and column.key != "differs")
    for column in CHANGES
]


def show_without(world: Context, what_if: Sequence[str], as_of: str | None) -> None:
    """Prints how jobs would differ without the records in `what_if`. as_of: the moment to compare at; None = now.
    Raises: UsageError, NotFound: as `what_if.parse` and `what_if.without`."""
    from ledger.history.what_if import parse, without

    drops = [parse(text) for text in what_if]
    with session.source(world, "folding the log twice", as_of) as source:
        found = without(source, drops)
    show(world.printer, found.changed, "nothing would be different", COLUMNS)
    for job in found.outlived:
        world.printer.note(f"{job.job_id} is {job.state} and retired: a result stands, which outlives what was left out")
    for record in found.dropped:
        world.printer.note(f"without events[{record.partition}]@{record.offset} {record.key}")
    if as_of is None and world.bundle is None:
        world.printer.note("what compaction has removed is not in the log; with --as-of 0s the archive is read too")
