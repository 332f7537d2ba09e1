"""The verbs on the archive: `archive status`; `archive query` stands beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from ledger.cli import querying
from ledger.cli.options import World, verb
from ledger.cli.output import Column, age

if TYPE_CHECKING:
    from ledger.archive.status import Progress

archive = typer.Typer(help="What is kept when compaction has removed it from its topic.", no_args_is_help=True)


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else age(seconds) if seconds >= 0 else f"-{age(-seconds)}"


PROGRESS = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("SEALED UP TO", "sealed"),
    Column("END", "end"),
    Column("MANIFESTS", "manifests"),
    Column("OLDEST WAITING", "oldest_s", _age),
    Column("HEADROOM", "headroom_s", _age),
]


SNAPSHOT = [Column("TOPIC", "topic"), Column("PARTITION", "partition"), Column("UP TO", "next")]


@archive.command()
@verb
def status(world: World) -> None:
    """How far the archive is, and how long until compaction may take what it has not got. Exit 1 if that time is over.

    SEALED UP TO may stay below END by what no record is in: the ends of transactions.
    """
    from ledger import wiring
    from ledger.plain import to_plain

    with world.printer.progress("looking at the archive"):
        found = wiring.archive_progress(world.config)
    rows: list[dict[str, Any]] = [to_plain(one) for one in found]
    world.printer.rows(rows, PROGRESS)
    say_headroom(world, found)


@archive.command()
@verb
def snapshot(world: World) -> None:
    """Keep what a fold of the archive needs, as it is now: so that --as-of reads from there and not from the beginning.

    Each is compared with a fold of the whole archive when it is made. For cron; older ones stay, for older moments.
    """
    from ledger import wiring

    with world.printer.progress("making snapshots"):
        rows = [dict(zip(("topic", "partition", "next"), one, strict=True)) for one in wiring.snapshots(world.config)]
    world.printer.rows(rows, SNAPSHOT, empty="the archive is empty")


def say_headroom(world: World, found: Sequence[Progress]) -> None:
    """Where there is little, on stderr. Raises: typer.Exit where there is none."""
    for one in found:
        if one.scarce(world.config.archive.headroom_min):
            left = "may have removed records already" if one.over else f"may remove it in {_age(one.headroom_s)}"
            world.printer.note(
                f"WARNING: {one.topic}[{one.partition}] from offset {one.sealed} on is {age(one.oldest_s or 0)} old and "
                f"not archived: compaction {left}. Does `jobledger serve archiver` run?"
            )
    if any(one.over for one in found):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    querying.register(archive)
    app.add_typer(archive, name="archive", rich_help_panel="Audit")
