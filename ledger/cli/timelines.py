"""`jobledger history --timeline`: draws the life of a job as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledger.cli import session
from ledger.cli.options import Context
from ledger.errors import ConfigError, UsageError

File = Annotated[
    Path | None,
    typer.Option("--timeline", metavar="FILE", help="Draw the history into this file, .svg or .html.", show_default=False),
]


def draw(world: Context, job: str, path: Path, as_of: str | None, follow: bool) -> None:
    """Draws the timeline of a job into the file `path`. Raises: UsageError; ConfigError if the file can't be written;
    NotFound."""
    from ledger.history import moment, timeline_svg
    from ledger.history.timeline import timeline_of
    from ledger.reader.job_lookup import resolve

    if follow:
        raise UsageError("--timeline and --follow don't go together: a picture does not change.")
    kinds = {".svg": timeline_svg.svg, ".html": timeline_svg.html}
    if path.suffix not in kinds:
        raise UsageError(f"--timeline {path}: a file that ends in .svg or .html.")
    with session.source(world, as_of=as_of) as source:
        now_s = source.clock.time()  # with --as-of: that time
        if as_of is not None:
            moment_s = None if moment.parse(as_of, now_s).time_s is None else now_s
        else:
            moment_s = now_s if world.bundle is None else None  # a bundle ends at its last record
        line = timeline_of(source, resolve(source, job, retired=True), moment_s)
    try:
        path.write_text(kinds[path.suffix](line), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Can't write {path}: {error}") from error
    world.printer.note(f"drawn: {path}")
