"""The ledger that a verb works on, with its progress on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.options import Context
from ledger.cli.output import utc
from ledger.errors import NotFound, UsageError

if TYPE_CHECKING:
    from ledger.archive.store.archive import Archive
    from ledger.history.moment import Cut, Moment
    from ledger.operations.client import Client
    from ledger.reader.reading import Progressed, Source

READING = "reading the log"
SKEW_S = 60.0  # append times come from a broker's clock, which may be ahead of ours
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of", metavar="MOMENT", show_default=False,
        help="The state of then: a time (2026-01-31T14:05:00Z), 15m ago, events[P]@OFFSET[,…], or the id of an event.",
    ),
]  # fmt: skip


@contextmanager
def source(world: Context, what: str = READING, as_of: str | None = None, thin: bool = False) -> Iterator[Source]:
    """The ledger or bundle as it is now, or as it was at the moment as_of; then the offsets of that moment are noted on
    stderr. what: the action, for the progress line. thin: the caller only folds, so the past may come from a snapshot.
    """
    with world.printer.progress(what) as tell, _opened(world, telling(tell), thin) as (now, asked):
        if as_of is None:
            then, cut = now, None
        else:
            then, cut = asked(_moment(world, now, "--as-of", as_of))
        yield then
    if cut is not None:
        world.printer.note(f"as of {vector(cut)}")
    say_left_out(world, then)


@contextmanager
def moments(
    world: Context, what: str = READING, thin: bool = False
) -> Iterator[Callable[[str, str | None], tuple[Source, Cut]]]:
    """A function from a flag and its text to the ledger at that moment, and the offsets of the moment. Text None: the
    whole log. The caller reports the jobs that are left out. thin: as in `source`.

    Raises: UsageError; as `resolve_moment.as_of`."""
    with world.printer.progress(what) as tell, _opened(world, telling(tell), thin) as (now, asked):
        yield lambda flag, text: asked(_moment(world, now, flag, text))


def say_left_out(world: Context, then: Source) -> None:
    """Notes on stderr the jobs that a past moment can't show, because some of their records have expired. Call it once
    per answer."""
    for line in then.expiry_gaps.descriptions():
        world.printer.note(line)


def archive(world: Context) -> Archive:
    """The archive of the ledger, or of the bundle that --bundle names. Raises: as `Ledger.archive`; UsageError."""
    from ledger.app import archives

    return world.ledger.archive if world.bundle is None else archives.bundle(world.bundle).archive


def where(world: Context) -> str:
    """A sentence for people that names the location of the archive or bundle."""
    from ledger.app import archives

    return archives.where(world.config) if world.bundle is None else f"It lies in {world.bundle}."


@contextmanager
def _opened(
    world: Context, progressed: Progressed, thin: bool = False
) -> Iterator[tuple[Source, Callable[[Moment], tuple[Source, Cut]]]]:
    """The source, and a function that returns its past. A bundle of some jobs lacks the others: NotFound then says so."""
    from ledger.app import archives

    if world.bundle is None:
        now = world.ledger.source(progressed)
        yield now, partial(archives.past, world.ledger, now, thin=thin)
        return
    opened = archives.bundle(world.bundle, progressed)
    opened.must_hold_all()
    about = opened.about
    made = f"as of {about.as_of}{'' if about.as_of == about.made_at else f', made {about.made_at}'} by {about.made_by}"
    world.printer.note(f"a bundle of {', '.join(about.jobs) or 'all jobs'} {made}: {about.reason}")
    try:
        yield opened.source, opened.as_of
    except NotFound as error:
        if not about.jobs:
            raise
        only = f"This bundle holds only {', '.join(about.jobs)}; the ledger that it was made of may have others."
        raise NotFound(str(error), hint=f"{only} Ask its maker for another one.") from error


def _moment(world: Context, now: Source, flag: str, text: str | None) -> Moment:
    """Raises: UsageError, also for a moment in the future."""
    from ledger.history import moment

    if text is None:
        return moment.EVERYTHING
    known_s = now.clock.time()
    try:
        found = moment.parse(text, known_s)
    except ValueError as error:
        raise UsageError(f"{flag} {text[:200]}: {error}.", hint=f"It takes {moment.FORMS}.") from error
    if found.time_s is not None and found.time_s > known_s + (SKEW_S if world.bundle is None else 0.0):
        if world.bundle is None:
            raise UsageError(f"{flag} {text}: that moment is still to come.")
        raise UsageError(f"{flag} {text}: this bundle holds the ledger up to {utc(known_s)}, and not what came later.",
                         hint="Ask for an earlier moment.")  # fmt: skip
    return found


def vector_of(source: Source) -> str:
    """The offsets of a past moment, for an answer in JSON, in the form of the note on stderr. "": `source` is the
    present."""
    from ledger.history.historical_log import HistoricalSource

    if not isinstance(source, HistoricalSource):
        return ""
    names = {source.topics.events: "events", source.topics.recovery: "recovery"}
    return vector({(names[topic], p): end for (topic, p), end in source.log.cut.items()})


def vector(cut: Cut) -> str:
    """Offsets of partitions in the form that --as-of takes."""
    from ledger.history import moment

    return moment.vector(cut)


@contextmanager
def client(world: Context, what: str = READING) -> Iterator[tuple[Client, Callable[[str], None]]]:
    """The client of the ledger, and a function that shows the current step on stderr. what: the action, for the
    progress line."""
    with world.printer.progress(what) as tell:
        yield world.ledger.client(progressed=telling(tell)), tell


def telling(tell: Callable[[str], None]) -> Progressed:
    """A callback that shows how many records of how many were read. A verb may read several times: the counts of later
    passes are added, so no number goes down."""
    before = ("", 0, 0)  # the last call
    ended_read = ended_total = 0  # sums of the complete passes

    def progressed(what: str, read: int, total: int) -> None:
        nonlocal before, ended_read, ended_total
        if what != before[0] or read < before[1]:
            ended_read, ended_total = ended_read + before[1], ended_total + before[2]
        before = what, read, total
        tell(f"{ended_read + read} of {ended_total + total} records")

    return progressed
