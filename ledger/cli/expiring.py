"""`jobledger archive expire|redact`: remove records from the archive, by age or for a reason."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ledger.cli import parsing
from ledger.cli.options import Context, verb
from ledger.cli.output import Column, utc
from ledger.errors import ConfigError, UsageError

EXPIRED = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("NAMESPACE", "namespace"),
    Column("RECORDS", "records"),
    Column("BYTES", "bytes"),
    Column("UNTIL", "until_s", utc),
]
REDACTED = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("OFFSET", "offset"),
    Column("KEY", "key"),
    Column("BEFORE", "before", lambda before: "yes" if before else "-"),
    Column("SHA-256", "value_sha256", wide=True),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.", show_default=False)
]
Records = Annotated[
    list[str], typer.Argument(metavar="RECORD…", help="The id of an event, or a position: events[P]@OFFSET, recovery[…]@…")
]
Reason = Annotated[
    str, typer.Option("--reason", help="Why; recorded in the archive for ever, so do not repeat the redacted text.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Redact also records that are needed to bring a job back.", show_default=False)
]


@verb
def expire(world: Context, dry_run: DryRun = False) -> None:
    """Remove archived records that were superseded longer ago than their namespace keeps them (archive.retention).

    The present state and the result of a restore stay the same. For jobs that lose records, the past before UNTIL can't
    be shown any more. A stub of each record stays, so `audit verify` and every proof stay valid. If the command is
    killed, run it again.
    """
    from ledger.operations import archive_upkeep
    from ledger.util.identity import whoami

    config = world.config
    if not config.archive.retention:
        raise ConfigError("No retention is set: nothing expires.", hint="Set archive.retention, such as prod=365d,*=90d")
    archive, clock = world.ledger.archive, world.ledger.clock
    with world.printer.progress("looking for what has expired") as tell:
        due = (
            archive_upkeep.expiring(config, archive, clock, tell) if dry_run
            else archive_upkeep.expire(config, archive, clock, whoami(), tell)
        )  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"topic": one.topic, "partition": one.partition, "namespace": one.namespace, "records": one.records,
         "bytes": one.bytes, "until_s": one.until_ms / 1000}
        for one in due
    ]  # fmt: skip
    world.printer.rows(rows, EXPIRED, empty="nothing has expired")
    if rows and not dry_run:
        world.printer.note("run `jobledger audit anchor` now: what is gone is proved by anchors from here on")


@verb
def redact(world: Context, records: Records, reason: Reason, force: Force = False) -> None:
    """Remove the values of single records from the archive. Their hashes stay, so every proof stays valid.

    A redaction does not reach the live topic before compaction (superseded records go after
    topics.min_compaction_lag_s), other clusters, existing bundles, or logs and checkpoints of runners. Keys and headers
    stay. If the command is killed, run it again."""
    from ledger.app import archives
    from ledger.archive.removal.redacting import parse_position
    from ledger.util.identity import whoami
    from ledger.util.plain import to_plain
    from ledger.util.times import rfc3339

    topics = {"events": world.config.topics.events, "recovery": world.config.topics.recovery}
    named = [parse_position(text, topics) or text for text in records]
    if wrong := next((one for one in named if isinstance(one, str) and "[" in one), None):
        raise UsageError(f"{wrong[:200]} is neither an event's id nor a place.", hint="A place is events[P]@OFFSET.")
    with world.printer.progress("redacting"):
        redacting = archives.redacting(world.ledger)
        at = rfc3339(world.ledger.clock.time())
        done = redacting.run(named, parsing.reason(reason), whoami(), at, force=force)
        alike = redacting.alike(done)
    rows: list[dict[str, Any]] = [to_plain(one) for one in done]
    world.printer.rows(rows, REDACTED)
    for one in alike[:10]:
        world.printer.note(f"{one} holds the very same value, and was not named")
    if len(alike) > 10:
        world.printer.note(f"and {len(alike) - 10} more hold the very same value")
    world.printer.note("run `jobledger audit anchor` now: that these were redacted, and no more, is proved from here on")
    world.printer.note("the live topic, bundles made before and what runners keep are not reached: see the runbook")


def register(archive: typer.Typer) -> None:
    archive.command("expire")(expire)
    archive.command("redact")(redact)
