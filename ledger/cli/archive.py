"""The verbs `archive status|snapshot|compact|restore`; `archive query`, `expire` and `redact` stand beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli import anchoring, expiring, querying
from ledger.cli.anchoring import Files, NoTopic
from ledger.cli.options import Context, verb
from ledger.cli.output import Column, age, utc
from ledger.errors import LedgerError

if TYPE_CHECKING:
    from ledger.archive.restore.restoring import Restored
    from ledger.archive.store.status import ArchiveProgress
    from ledger.archive.store.verifying import PartitionVerdict

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
    Column("ANCHORED", "anchored", lambda number: "-" if number is None else str(number)),
    Column("SINCE", "anchored_age_s", _age),
]
RESTORED = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("RECORDS", "records"),
    Column("FILLED", "filled"),
    Column("RESUMED", "resumed"),
    Column("END", "end"),
    Column("LAST RECORD", "last_s", lambda seconds: utc(seconds) if seconds else "-"),
]
Unverified = Annotated[
    bool,
    typer.Option("--unverified", help="Do not read all of the archive before, as `audit verify` does.", show_default=False),
]
ArchivedPrefix = Annotated[
    str | None,
    typer.Option("--archived-prefix", metavar="PREFIX", help="Prefix of the topics in the archive; default: as it is now."),
]
ArchivedPartitions = Annotated[
    int | None,
    typer.Option("--archived-partitions", metavar="N", min=1, help="How many the topics had; default: as it shows."),
]
SNAPSHOT = [Column("TOPIC", "topic"), Column("PARTITION", "partition"), Column("UP TO", "next")]
COMPACTED = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("DAY", "day"),
    Column("MANIFESTS", "manifests"),
    Column("RECORDS", "records"),
    Column("DROPPED", "removed"),
]
Adopt = Annotated[
    bool,
    typer.Option("--adopt", help="The old topics are gone for good: the archive goes on with these.", show_default=False),
]


@archive.command()
@verb
def status(world: Context) -> None:
    """How far the archive is, and how long until compaction may take what it has not got. Exit 1 if that time is over.

    SEALED UP TO may stay below END by what no record is in: the ends of transactions. ANCHORED is the number of the last
    manifest that the topic of anchors names, SINCE how long ago that was written.
    """
    from ledger.app import anchors
    from ledger.util.plain import to_plain

    with world.printer.progress("looking at the archive"):
        found = anchors.anchored_progress(world.ledger)
    rows: list[dict[str, Any]] = [to_plain(one) for one in found]
    world.printer.rows(rows, PROGRESS)
    say_headroom(world, found)


@archive.command()
@verb
def snapshot(world: Context) -> None:
    """Keep what a fold of the archive needs, as it is now: so that --as-of reads from there and not from the beginning.

    Each is compared with a fold of the whole archive when it is made. For cron; or let the archiver do it
    (archive.snapshot_interval_s), which makes each from the one before it and thins out old ones.
    """
    from ledger.operations.archive_upkeep import make_snapshots

    with world.printer.progress("making snapshots"):
        made = make_snapshots(world.config, world.ledger.archive)
        rows = [dict(zip(("topic", "partition", "next"), one, strict=True)) for one in made]
    world.printer.rows(rows, SNAPSHOT, empty="the archive is empty")


@archive.command()
@verb
def compact(world: Context) -> None:
    """Join the small objects of every day (UTC) that is over.

    Three for each partition and day in place of three for each batch. All that was sealed stays as it was sealed: anchors,
    proofs and `--as-of` hold. Nothing is dropped before what takes its place was read back and a note in the chain names
    it. Killed, it is run again.
    """
    from ledger.archive.store.compaction import compact as compact_all
    from ledger.util.plain import to_plain

    with world.printer.progress("joining") as tell:
        done = compact_all(world.ledger.archive, world.ledger.clock.time(), tell)
    rows: list[dict[str, Any]] = [to_plain(one) for one in done]
    world.printer.rows(rows, COMPACTED, empty="there is nothing to join")


@archive.command()
@verb
def restore(
    world: Context, anchors: Files = None, no_topic: NoTopic = False, unverified: Unverified = False,
    archived_prefix: ArchivedPrefix = None, archived_partitions: ArchivedPartitions = None, adopt: Adopt = False,
) -> None:  # fmt: skip
    """Make both topics anew from the archive, on a cluster that has none or empty ones.

    Broken off, it goes on when it is run again; until it is done no role starts on them.

    Every record keeps its key, value, headers and append time. With as many partitions as before it keeps its offset too;
    with another number (LEDGER_TOPICS__PARTITIONS) jobs move. Stop everything that writes before.

    Before, the archive is verified as by `audit verify`, with the topic of anchors if there still is one.
    """
    from ledger.app import agent_folder, archives
    from ledger.archive.restore.layout import TopicPair
    from ledger.archive.store.verifying import verify
    from ledger.util.plain import to_plain

    config = world.config
    topics, prefix = config.topics, config.topics.prefix if archived_prefix is None else archived_prefix
    names = TopicPair(topics.events, topics.recovery)
    archived = TopicPair(*(prefix + name.removeprefix(topics.prefix) for name in names))
    old_anchors = "" if no_topic or unverified else prefix + topics.anchors.removeprefix(topics.prefix)
    found, _ = anchoring.judged(world, anchors or (), None, old_anchors, archived)
    with world.printer.progress("restoring") as tell:
        restoring = archives.restoring(world.ledger, tell)
        if not unverified:
            anchoring.must_be_sound(found)
            tell("verifying the archive")
            bad = [one for one in verify(restoring.archive, found.heads) if one.topic in archived and one.broken]
            if bad:
                raise LedgerError(
                    f"{bad[0].topic}[{bad[0].partition}] is not in the archive as it was sealed, from offset "
                    f"{_begin_of(bad[0])} on: {bad[0].broken[0].reason}. Nothing was restored.",
                    hint="See: jobledger audit verify",
                )
        done = restoring.run(archived, names, config.topic_settings().partitions, archived_partitions, adopt=adopt)
    rows: list[dict[str, Any]] = [to_plain(one) for one in done.partitions]
    world.printer.rows(rows, RESTORED)
    _tell_restored(world, done)
    if adopt:
        agent_folder.adopt_agent_folder(world.ledger)
    else:
        world.printer.note("the archive does not go on with these topics: name another folder, or prefix, for theirs")
    if done.differences:
        raise typer.Exit(1)


def _begin_of(bad: PartitionVerdict) -> int:
    """The lowest offset that may not be as it was sealed."""
    return min(bad.broken[0].offset, bad.broken[0].offset if bad.bad_from is None else bad.bad_from)


def _tell_restored(world: Context, done: Restored) -> None:
    for one in done.differences[:10]:
        world.printer.note(f"{one.job_id} folds to something else than in the archive: the restore is not finished")
    if not done.differences:
        world.printer.note(f"{done.jobs} jobs fold to the same as in the archive; the topics can be used")
    if done.redacted:
        world.printer.note(f"{done.redacted} records are redacted: they lie there, and nobody can read what they said")
    if left := sum(done.left_out.values()):
        world.printer.note(f"{left} records are in the archive only: claims, progress and no-ops of the old partitions, "
                           f"and {done.left_out.get('foreign', 0)} that are of no job")  # fmt: skip


def say_headroom(world: Context, found: Sequence[ArchiveProgress]) -> None:
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
    expiring.register(archive)
    app.add_typer(archive, name="archive", rich_help_panel="Audit")
