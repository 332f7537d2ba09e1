"""`jobledger archive status|snapshot|compact|restore`: how far the archive is, its upkeep, and the restore of the
topics.

The modules `querying` and `expiring` have the other verbs of this group."""

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

archive = typer.Typer(
    help="Use the archive: every record, also those that compaction removed from the topics.", no_args_is_help=True
)


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
    typer.Option("--unverified", help="Do not verify the whole archive first.", show_default=False),
]
ArchivedPrefix = Annotated[
    str | None,
    typer.Option("--archived-prefix", metavar="PREFIX", help="Prefix of the archived topics. Default: today's prefix."),
]
ArchivedPartitions = Annotated[
    int | None,
    typer.Option("--archived-partitions", metavar="N", min=1, help="Partitions of the archived topics. Default: as found."),
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
    typer.Option(
        "--adopt", help="Continue the archive with these topics, since the old ones are lost.", show_default=False
    ),
]


@archive.command()
@verb
def status(world: Context) -> None:
    """Show how far each partition is archived, and how long until compaction may remove records that are not archived
    yet.

    Exit code 1: no time is left. SEALED UP TO may stay below END: the ends of transactions have offsets but no records.
    ANCHORED is the number of the last manifest named in the topic of anchors, SINCE the age of that anchor."""
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
    """Keep the records that a fold needs, as of now. Then --as-of starts from the snapshot and not from the beginning.

    Each snapshot is checked against a fold of the whole archive. Run it from cron, or set archive.snapshot_interval_s:
    then the archiver makes each one from the one before and deletes old ones.
    """
    from ledger.operations.archive_upkeep import make_snapshots

    with world.printer.progress("making snapshots"):
        made = make_snapshots(world.config, world.ledger.archive)
        rows = [dict(zip(("topic", "partition", "next"), one, strict=True)) for one in made]
    world.printer.rows(rows, SNAPSHOT, empty="the archive is empty")


@archive.command()
@verb
def compact(world: Context) -> None:
    """Join the small objects of every past day (UTC).

    Each partition and day then has three objects instead of three per batch. The sealed content does not change, so
    anchors, proofs and `--as-of` stay valid. An old object is deleted only after its replacement was read back and
    noted in the chain. If the command is killed, run it again.
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
    """Create both topics from the archive, on a cluster where they are missing or empty.

    If the command is interrupted, run it again: it continues. No role starts on the topics before it is complete.

    Every record keeps its key, value, headers and append time. With the same number of partitions it keeps its offset
    too; with another number (LEDGER_TOPICS__PARTITIONS) jobs move to other partitions. First stop everything that
    writes.

    The archive is verified first, as by `audit verify`, with the topic of anchors if it still exists.
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
    """The lowest offset whose record may differ from what was sealed."""
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
    """Warns on stderr if compaction may soon remove records that are not archived yet. Raises: typer.Exit if it may
    have done so already."""
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
