"""The ledger that a verb works on, with its progress told on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ledger.cli.options import World

if TYPE_CHECKING:
    from ledger.client import Client
    from ledger.reading import Progressed, Source

READING = "reading the log"


@contextmanager
def source(world: World, what: str = READING) -> Iterator[Source]:
    from ledger import wiring

    with world.printer.progress(what) as tell:
        yield wiring.source(world.config, _telling(tell))


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
