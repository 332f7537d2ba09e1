"""`jobledger audit pin|pins|unpin`: protect records and files of jobs from every retention, until a pin is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli import parsing, session
from ledger.cli.options import Context, verb
from ledger.cli.output import Column, Format, utc
from ledger.errors import ConfigError, NotFound, UsageError

if TYPE_CHECKING:
    from ledger.archive.removal.pins import Pin
    from ledger.reader.reading import Source

Jobs = Annotated[list[str], typer.Option("--job", metavar="JOB", help="A job to keep; repeatable.", show_default=False)]
Moment = "A time (2026-01-31T14:05:00Z), or 15m ago."
From = Annotated[str | None, typer.Option("--from", metavar="MOMENT", help=f"{Moment} Default: from the beginning.")]
To = Annotated[str | None, typer.Option("--to", metavar="MOMENT", help=f"{Moment} May be in the future. Default: no end.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; recorded in the archive for ever.")]


def _moment(time_ms: int | None) -> str:
    return "-" if time_ms is None else utc(time_ms / 1000)


PINS = [
    Column("PIN", "pin"),
    Column("JOBS", "jobs"),
    Column("FROM", "from_ms", _moment),
    Column("TO", "to_ms", _moment),
    Column("BY", "by"),
    Column("AT", "at"),
    Column("REASON", "reason"),
]


@verb
def pin(world: Context, job: Jobs, reason: Reason, from_: From = None, to: To = None) -> None:
    """Keep the records of jobs from a window of time, whatever their retention, until `audit unpin`.

    The archive's chain records the pin. A pin holds the jobs' records appended up to --to (older ones too, since the
    state at --from is folded from them), and their graphs, checkpoints, savepoints and logs, present or future.
    Checkpoints that a running job supersedes are still deleted."""
    from ledger.app import pinning

    why = parsing.reason(reason)
    with session.source(world, "pinning") as source:
        now_s = source.clock.time()
        window = [_time_ms("--from", from_, now_s), _time_ms("--to", to, now_s)]
        begin, end = window
        if begin is not None and end is not None and end < begin:
            raise UsageError(f"--to {to} is before --from {from_}.")
        _needs_archive(world)
        jobs = sorted({_resolve(world, source, one) for one in job})
        made = pinning.pin(world.ledger, source, jobs, begin, end, why)
    _show(world, [made])


@verb
def pins(world: Context) -> None:
    """List the pins in the chains of the archive. Exit code 1: agents see other pins than the chains have."""
    from ledger.archive.removal import pins as in_archive

    with world.printer.progress("reading the archive"):
        archive = world.ledger.archive
        found = in_archive.pins(archive)
        missing, unsealed = in_archive.unlisted(archive, found), in_archive.unsealed(archive, found)
    _show(world, found)
    for pin_id, job_id in missing:
        mismatch = f"agents and retirements do not know that {pin_id} holds {job_id}"
        world.printer.note(f"{mismatch}: pin it again, and find out who has changed what lies under pinned/ in the archive")
    for pin_id, job_id in unsealed:
        mismatch = f"{pin_id} holds {job_id} for agents and retirements, but the chain does not say so"
        why = "who pinned or lifted it was stopped, unless that is going on now"
        world.printer.note(f"{mismatch}: {why}. Lift it: jobledger audit unpin {pin_id}")
    if missing:
        raise typer.Exit(1)


@verb
def unpin(
    world: Context,
    pin: Annotated[str, typer.Argument(metavar="PIN", help="Id of the pin, as in audit pins.")],
    reason: Reason,
) -> None:
    """Remove a pin. Normal retention applies again to what it protected. The archive's chain records the removal.

    It is safe to repeat."""
    from ledger.app import pinning

    why = parsing.reason(reason)
    with session.source(world, "unpinning") as source:
        _needs_archive(world)
        lifted = pinning.unpin(world.ledger, source, pin, why)
    if lifted is None:
        world.printer.note(f"{pin} was lifted before.")
    else:
        _show(world, [lifted])


def register(audit: typer.Typer) -> None:
    audit.command()(pin)
    audit.command()(pins)
    audit.command()(unpin)


def _resolve(world: Context, source: Source, ref: str) -> str:
    """As `finding.resolve`; also the id of a job that only the archive still has. Retention would remove such a job
    in time."""
    from ledger.app import pinning
    from ledger.reader.job_lookup import resolve

    try:
        return resolve(source, ref, retired=True)
    except NotFound:
        if pinning.is_archived(world.ledger, source, ref):
            return ref
        raise


def _show(world: Context, found: list[Pin]) -> None:
    rows: list[dict[str, Any]] = [
        {"pin": one.id, "jobs": list(one.jobs), "from_ms": one.from_ms, "to_ms": one.to_ms, "reason": one.reason,
         "by": one.by, "at": one.at}
        for one in found
    ]  # fmt: skip
    columns = PINS[:1] if world.printer.form is Format.name else PINS
    world.printer.rows(rows, columns, empty="nothing is pinned")


def _needs_archive(world: Context) -> None:
    if not world.config.archive.adapter:
        raise ConfigError("This ledger has no archive, and so nothing to pin in.",
                          hint="Set LEDGER_ARCHIVE__ADAPTER=file (or s3)")  # fmt: skip


def _time_ms(flag: str, text: str | None, now_s: float) -> int | None:
    from ledger.history import moment

    if text is None:
        return None
    try:
        time_s = moment.parse(text, now_s).time_s
    except ValueError:
        time_s = None
    if time_s is None:
        raise UsageError(f"{flag} {text[:200]}: not a time.", hint="For example: 2026-01-31T14:05:00Z, or 15m (ago).")
    return int(time_s * 1000)
