"""The ledger that a verb works on, with its progress told on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.options import World
from ledger.errors import UsageError
from ledger.left_out import LeftOut

if TYPE_CHECKING:
    from ledger.archive.archive import Archive
    from ledger.client import Client
    from ledger.core.moment import Moment, Places
    from ledger.reading import Progressed, Source

READING = "reading the log"
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of", metavar="MOMENT", show_default=False,
        help="As it was then: a time (2026-01-31T14:05:00Z), 15m ago, events[P]@OFFSET[,…], or the id of an event.",
    ),
]  # fmt: skip


@contextmanager
def source(world: World, what: str = READING, as_of: str | None = None, thin: bool = False) -> Iterator[Source]:
    """The ledger, or the bundle, as it is; with as_of as it was, and which offsets that means is noted on stderr. thin: it
    is only folded, so the past may come from a snapshot."""
    with world.printer.progress(what) as tell:
        now, asked = _opened(world, _telling(tell), thin)
        if as_of is None:
            then, cut = now, None
        else:
            then, cut = asked(_moment(now, "--as-of", as_of))
        yield then
    if cut is not None:
        world.printer.note(f"as of {vector(cut)}")
    say_left_out(world, then)


@contextmanager
def moments(
    world: World, what: str = READING, thin: bool = False
) -> Iterator[Callable[[str, str], tuple[Source, Places]]]:
    """What makes of a flag and its text the ledger as it was then, and where that cuts it. Who is left out is for the
    caller to say. thin: as in `source`.

    Raises: UsageError; as `moments.as_of`."""
    with world.printer.progress(what) as tell:
        now, asked = _opened(world, _telling(tell), thin)
        yield lambda flag, text: asked(_moment(now, flag, text))


def say_left_out(world: World, then: Source) -> None:
    """Whom an answer about the past knows nothing of: once for an answer."""
    for line in getattr(then.log, "left_out", LeftOut()).told():
        world.printer.note(line)


def archive(world: World) -> Archive:
    """That of the ledger, or what a bundle holds. Raises: as `wiring_archive.archive`; UsageError."""
    from ledger import wiring_archive

    return wiring_archive.archive(world.config) if world.bundle is None else wiring_archive.bundle(world.bundle).archive


def where(world: World) -> str:
    """Which archive is meant, for people."""
    from ledger import wiring_archive

    return wiring_archive.where(world.config) if world.bundle is None else f"It lies in {world.bundle}."


def _opened(
    world: World, progressed: Progressed, thin: bool = False
) -> tuple[Source, Callable[[Moment], tuple[Source, Places]]]:
    from ledger import wiring, wiring_archive

    if world.bundle is None:
        now = wiring.source(world.config, progressed)
        return now, partial(wiring_archive.past, world.config, now, thin=thin)
    opened = wiring_archive.bundle(world.bundle, progressed)
    made = f"as of {opened.about.made_at} by {opened.about.made_by}: {opened.about.reason}"
    world.printer.note(f"a bundle of {', '.join(opened.about.jobs) or 'all jobs'} {made}")
    return opened.source, opened.as_of


def _moment(now: Source, flag: str, text: str) -> Moment:
    """Raises: UsageError."""
    from ledger.core import moment

    try:
        return moment.parse(text, now.clock.time())
    except ValueError as error:
        raise UsageError(f"{flag} {text[:200]}: {error}.", hint=f"It takes {moment.FORMS}.") from error


def vector_of(source: Source) -> str:
    """Of the past that was opened: what the note on stderr says, for an answer in JSON. "": it is the present."""
    from ledger.past import PastLog

    log, names = source.log, {source.topics.events: "events", source.topics.recovery: "recovery"}
    return vector({(names[topic], p): end for (topic, p), end in log.cut.items()}) if isinstance(log, PastLog) else ""


def vector(cut: Places) -> str:
    """As --as-of takes it."""
    from ledger.core import moment

    return moment.vector(cut)


@contextmanager
def client(world: World, what: str = READING) -> Iterator[tuple[Client, Callable[[str], None]]]:
    """The client, and what to call with a word on what is being done."""
    from ledger.connecting import connect

    with world.printer.progress(what) as tell:
        yield connect(world.config, progressed=_telling(tell)), tell


def _telling(tell: Callable[[str], None]) -> Progressed:
    def progressed(_what: str, read: int, total: int) -> None:
        tell(f"{read} of {total} records")

    return progressed
