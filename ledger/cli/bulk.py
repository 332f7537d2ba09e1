"""Declares one intent for every job that `-n` and `-l` select: lists the jobs, asks the user, and reports failures at
the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from ledger.cli import rendering, session
from ledger.cli.options import Context
from ledger.cli.output import Column, counted
from ledger.cli.selection import Selection
from ledger.errors import LedgerError, Unreachable, UsageError

if TYPE_CHECKING:
    from ledger.core.model.recovery import RecoveryEntry
    from ledger.operations.client import Client

COLUMNS = [
    rendering.ID, Column("NAME", "name"), Column("NAMESPACE", "namespace"), Column("STATE", "state"),
    Column("ERROR", "error", text=True),
]  # fmt: skip


def _to_cancel(entry: RecoveryEntry, force: bool) -> bool:
    return not entry.terminal and (force or entry.state != "CANCELLING")


def _to_retry(entry: RecoveryEntry, _force: bool) -> bool:
    return entry.state == "QUARANTINED"


#: Kind of the intent -> the selected jobs that it concerns.
CONCERNED: Mapping[str, Callable[[RecoveryEntry, bool], bool]] = {"CANCEL": _to_cancel, "RETRY": _to_retry}


def check_one_or_many(job: str | None, selected: Selection) -> None:
    """Checks that the user named one job or selected jobs, not both. Raises: UsageError otherwise."""
    if job is not None and selected:
        raise UsageError("Name a job, or select jobs by -n and -l, not both.")
    if job is None and not selected:
        raise UsageError("Say which job, or select jobs by -n NAMESPACE or -l NAME=VALUE.")


def declare(
    world: Context, kind: str, selected: Selection, reason: str, *, from_: str = "latest", force: bool = False,
    yes: bool = False,
) -> None:  # fmt: skip
    """Declares the intent for each selected job in a fitting state, and prints the jobs. yes: do not ask the user
    first.

    Raises: typer.Exit with code 1 if the intent failed for some jobs, or the user said no."""
    from ledger.core.model.facts import IntentKind

    if from_ not in ("latest", "scratch"):
        raise UsageError(f"--from {from_} is of one job.", hint="For several jobs: latest or scratch.")
    with session.client(world) as (client, _):
        entries = client.entries().values()
        concerned = [e for e in entries if selected.holds(e.namespace, e.labels) and CONCERNED[kind](e, force)]
    if not concerned:
        world.printer.rows([], COLUMNS, empty=f"There is no job to {kind.lower()} among those selected.")
        return
    _ask(world, kind.lower(), concerned, yes)
    rows: list[dict[str, Any]] = []
    with session.client(world, kind.lower()) as (client, tell):
        for entry in concerned:
            tell(f"{len(rows)} of {len(concerned)} jobs")
            if rows and rows[-1].get("exit_code") == Unreachable.exit_code:
                rows.append(_row(entry) | {"error": "not tried", "exit_code": Unreachable.exit_code})
            else:
                rows.append(_declared(client, entry, IntentKind(kind), reason, from_, force))
    world.printer.rows(rows, COLUMNS)
    if failed := sum("error" in row for row in rows):
        world.printer.note(f"It failed for {failed} of {counted(len(rows), 'job')}. The same again asks only what is left.")
        raise typer.Exit(1)


def _declared(client: Client, entry: RecoveryEntry, kind: Any, reason: str, from_: str, force: bool) -> dict[str, Any]:
    try:
        known = client.declare(entry.job_id, kind, reason=reason, from_=from_, force=force)
    except LedgerError as error:
        return _row(entry) | {"error": str(error), "exit_code": error.exit_code}
    return _row(entry) | {"state": str(known.state)}


def _row(entry: RecoveryEntry) -> dict[str, Any]:
    return {"job_id": entry.job_id, "name": entry.name, "namespace": entry.namespace, "state": str(entry.state)}


def _ask(world: Context, verb: str, concerned: list[RecoveryEntry], yes: bool) -> None:
    """Asks the user. Raises: UsageError without a terminal; Exit if the answer is no."""
    if yes:
        return
    listed = "\n".join(f"  {e.job_id}  {e.namespace}/{e.name}  {e.state}" for e in concerned)
    if not sys.stdin.isatty():
        raise UsageError(f"This would {verb} {counted(len(concerned), 'job')}:\n{listed}", hint="If so: --yes.")
    world.printer.note(listed)
    if not typer.confirm(f"{verb.capitalize()} {counted(len(concerned), 'job')}?", err=True):
        raise typer.Exit(1)
