"""Prints how two entries of a job differ: published and folded, or earlier and later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ledger.cli.options import Context
from ledger.cli.output import Column, cell, counted
from ledger.errors import OutcomeUnknown
from ledger.util.plain import to_plain

if TYPE_CHECKING:
    from ledger.reader.replaying import Replay


def say_replay(world: Context, found: Replay, vector: str, past: bool) -> None:
    """Prints the comparison of published and folded entries. vector: the offsets of a past moment, "" = none. past: the
    comparison is about a past moment, so no projector will catch up.

    Raises: typer.Exit if entries differ; OutcomeUnknown if some jobs could not be compared."""
    rows = [_difference_row(difference) for difference in found.differences]
    if world.printer.for_people:
        world.printer.rows(rows, DIFFERENCES)
    else:
        row = {
            "compared": found.compared, "differences": rows, "behind": list(found.behind), "dropped": found.dropped,
            **({"vector": vector} if vector else {}),
        }  # fmt: skip
        world.printer.one(row, [Column("COMPARED", "compared")])
    world.printer.text(f"{counted(found.compared, 'job')} compared, {len(rows)} differ")
    if found.dropped:
        dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(found.dropped.items()))
        world.printer.note(f"records of ledger.recovery without effect: {dropped}")
    if rows:
        raise typer.Exit(1)
    if found.behind and past:
        one = found.behind[0]
        others = f" and {len(found.behind) - 1} more" if len(found.behind) > 1 else ""
        world.printer.note(f"not compared, as the leader had not come to the last records by then: {one}{others}")
    elif found.behind:
        raise OutcomeUnknown(
            f"{counted(len(found.behind), 'job')} could not be compared: the projector has not come to them, such as "
            f"{found.behind[0]}.", hint="Does a projector run? jobledger leader tells.",
        )  # fmt: skip


def _difference_row(difference: Any) -> dict[str, Any]:
    row: dict[str, Any] = to_plain(difference)
    return {**row, "differs": differing_fields(row["published"], row["folded"])}


def differing_fields(one: dict[str, Any] | None, other: dict[str, Any] | None) -> list[str]:
    """The names of the fields in which two entries of a job differ. None: the job has no entry. For a retired job only
    the fields that its result has are compared."""
    from ledger.reader.publication_lag import STAMPS

    a, b = one or {}, other or {}
    if a and b and _is_retired(a) != _is_retired(b):
        return [key for key in a if key in b and a[key] != b[key]]
    return [key for key in a or b if key not in STAMPS and a.get(key) != b.get(key)]


def entry_text(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "-"
    return cell(f"{entry['state']} (retired)" if _is_retired(entry) else f"{entry['state']}/{entry['attempt']}")


def _is_retired(entry: dict[str, Any]) -> bool:
    return "result" in entry


DIFFERENCES = [
    Column("ID", "job_id"),
    Column("PUBLISHED", "published", entry_text),
    Column("FOLDED", "folded", entry_text),
    Column("DIFFERS", "differs"),
]
