"""`jobledger plan`: shows what a leader elected now would do first, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from ledger.cli import session
from ledger.cli.options import Context, bundle_verb
from ledger.cli.output import Column, Format, Printer, cell
from ledger.cli.rendering import ID, restore_text
from ledger.cli.session import AsOf
from ledger.util.plain import to_plain

if TYPE_CHECKING:
    from ledger.core.plan.pools import Pools
    from ledger.operations.planning import Plan

NOTHING = "nothing"  # `PlannedAction.NOTHING`, in the plain rows of an answer
PLAN = [
    Column("ACTION", "action"),
    Column("NAME", "name"),
    Column("NAMESPACE", "namespace", wide=True),
    Column("STATE", "state"),
    Column("ATTEMPT", "attempt", lambda n: str(n) if n else "-"),
    Column("RESTORE", "restore"),
    Column("POOL", "pool", wide=True),
    Column("SLOTS", "slots", wide=True),
    Column("RUNNER", "runner", wide=True),
    ID,
    Column("WHY", "told", text=True),
]


@bundle_verb
def plan(world: Context, as_of: AsOf = None) -> None:
    """Show what a leader elected now would do first, and why. Nothing changes.

    The command reads the log to its end, asks the runners and verifies restore points. It prints per job the start and
    its restore point, refusals, waits, stops and deletions. It needs no leader. -o wide and -o json also list jobs
    without any action. Exit code 0: the plan was made, whatever it contains.

    Actions: start and start-again (an attempt that is recorded and does not run), stop, settle (reads all events that
    the runner has of an attempt), wait, savepoint, quarantine, give-up, lose and close (record an end that no runner
    will), retire (a job that is over: its graph and checkpoints are deleted, its result stays), dispose (deletes a
    savepoint), forget (the runner drops its files of a retired job). suspend, resume and cancel are for a job that
    another one replaces.

    With --as-of or --bundle it shows what a leader elected then would have done if it had believed the log: attempts
    that the log had as running count as running, and restore points as valid. Pools come from today's settings, or from
    the bundle."""
    from ledger.operations.planning import plan as made
    from ledger.operations.planning import plan_then

    with session.source(world, "planning", as_of, thin=True) as source:
        if as_of is not None or world.bundle is not None:
            found = plan_then(source, *_limits_then(world))
        else:
            config = world.config
            found = made(
                source, world.ledger.runners, lambda: world.ledger.blobs, config.limits(),
                config.reconciler.starts_max,
            )  # fmt: skip
    show(world.printer, found)


def _limits_then(world: Context) -> tuple[Pools, int]:
    """Pools, and the limit of starts per pass: those of the bundle, whatever the settings are here."""
    from ledger.app import archives

    about = None if world.bundle is None else archives.bundle(world.bundle).about
    limits, starts_max = (None, None) if about is None else (about.limits(), about.starts_max)
    if about is not None and (limits is None or starts_max is None):
        world.printer.note("the bundle does not tell of its pools: those of the settings of now are taken")
    if limits is None or starts_max is None:
        return world.config.limits(), world.config.reconciler.starts_max
    return limits, starts_max


def register(app: typer.Typer) -> None:
    app.command("plan", rich_help_panel="Look")(plan)


def show(printer: Printer, found: Plan) -> None:
    answer: dict[str, Any] = to_plain(found)
    acted = [row for row in answer["jobs"] if row["action"] != NOTHING]
    if printer.form is Format.name:
        printer.rows(acted, [ID])
    elif not printer.for_people:
        printer.one(answer, [ID])
    else:
        shown = answer["jobs"] if printer.form is Format.wide else acted
        printer.rows([_for_people(row) for row in shown], PLAN)
        for line in _summary(answer):
            printer.text(line)
    for runner, why in answer["silent"].items():
        printer.note(f"the {runner} runner does not answer, so nothing is known of what it runs: {why}")


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    begins = row["action"] in ("start", "start-again")
    point = row["restore_point"]
    clauses = [row["why"]]
    clauses += [f"refused {restore_text(one['restore_point'])}: {one['reason']}" for one in row["refused"]]
    clauses += [f"then: {row['then']}"] if row["then"] else []
    clauses += [f"deletes {', '.join(row['deletes'])}"] if row["deletes"] else []
    from_nothing = "external" if row["external"] else "scratch"
    restore = restore_text(point) if point else from_nothing if begins else None
    return {**row, "restore": restore, "told": "; ".join(cell(one) for one in clauses)}


def _summary(answer: dict[str, Any]) -> list[str]:
    """The number of each action, then the pools."""
    counts = Counter(row["action"] for row in answer["jobs"])
    stuck = sum(row["action"] == NOTHING and row["state"] == "QUARANTINED" for row in answer["jobs"])
    idle = counts.pop(NOTHING, 0) - stuck
    listed = [f"{count} {action}" for action, count in sorted(counts.items())]
    rest = f"{idle} {'job is as it' if idle == 1 else 'jobs are as they'} should be"
    if stuck:
        rest += f"; {stuck} {'job is' if stuck == 1 else 'jobs are'} QUARANTINED: jobledger explain JOB says why"
    lines = [f"{', '.join(listed) or 'nothing to do'}; {rest}"]
    for pool in answer["pools"]:
        gives = f", {pool['starting']} more by this plan" if pool["starting"] else ""
        waits = f", {pool['waiting']} waiting" if pool["waiting"] else ""
        lines.append(f"pool {pool['name']}: {pool['held']} of {pool['slots']} slots held{gives}{waits}")
    return lines
