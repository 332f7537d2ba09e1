"""The ledger that a verb works on, with its progress told on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.options import World
from ledger.errors import UsageError

if TYPE_CHECKING:
    from ledger.client import Client
    from ledger.core.moment import Places
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
def source(world: World, what: str = READING, as_of: str | None = None) -> Iterator[Source]:
    """The ledger as it is; with as_of as it was, and which offsets that means is noted on stderr."""
    from ledger import wiring

    with world.printer.progress(what) as tell:
        now = wiring.source(world.config, _telling(tell))
        if as_of is None:
            yield now
            return
        then, cut = past(world, now, "--as-of", as_of)
        yield then
    world.printer.note(f"as of {vector(cut)}")


def past(world: World, now: Source, flag: str, text: str) -> tuple[Source, Places]:
    """The ledger as it was at the moment that a flag names, and where that cuts it. Raises: UsageError; as `past.as_of`."""
    from ledger import wiring
    from ledger.core import moment

    try:
        wanted = moment.parse(text, now.clock.time())
    except ValueError as error:
        raise UsageError(f"{flag} {text[:200]}: {error}.", hint=f"It takes {moment.FORMS}.") from error
    return wiring.past(world.config, now, wanted)


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
