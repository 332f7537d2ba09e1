"""The verb `audit bundle`."""

from __future__ import annotations

import os
from contextlib import closing
from hashlib import file_digest
from pathlib import Path
from typing import Annotated

import typer

from ledger.cli import opening
from ledger.cli.opening import AsOf
from ledger.cli.options import World, verb
from ledger.cli.output import Column
from ledger.errors import UsageError

To = Annotated[Path, typer.Option("--to", metavar="FILE", help="The file to make; none may be there.")]
Jobs = Annotated[
    list[str] | None,
    typer.Option("--job", metavar="JOB", help="Only of this job; may be given again. Default: of all.", show_default=False),
]
Reason = Annotated[str, typer.Option("--reason", help="Why it is made: stands in it.")]
EVERYTHING = "9999-12-31"  # later than any record, by whosever clock
MADE = [
    Column("FILE", "file"),
    Column("RECORDS", "records"),
    Column("BYTES", "bytes"),
    Column("AS OF", "as_of", wide=True),
    Column("SHA-256", "sha256"),
]


@verb
def bundle(world: World, to: To, reason: Reason, job: Jobs = None, as_of: AsOf = None) -> None:
    """Put the ledger up to a moment into one file, with what the archive still has, for whoever looks into it elsewhere.

    Every verb that takes --as-of opens it with --bundle FILE, and so do audit verify and audit prove; no server is needed.
    Of jobs that are named there is a picture in it besides (timelines/JOB.html). What jobs are given in it (commands,
    environment, labels) is readable to whoever has the file; secrets of the configuration are masked.
    """
    from ledger import wiring
    from ledger.adapters.local.zipped import ZipObjects
    from ledger.drawing import html
    from ledger.finding import resolve
    from ledger.timeline import timeline_of

    part = to.with_name(f"{to.name}.{os.getpid()}.part")
    try:
        with opening.moments(world, "making a bundle") as at, closing(ZipObjects(part, new=True)) as store:
            then, cut = at("--as-of", EVERYTHING if as_of is None else as_of)
            jobs = [resolve(then, one, retired=True) for one in job or ()]
            records = wiring.make_bundle(world.config, store, then, cut, jobs, reason)
            for job_id in jobs:
                store.create(f"timelines/{job_id}.html", html(timeline_of(then, job_id)).encode())
        size, digest = part.stat().st_size, _digest(part)
        _name(part, to)
    finally:
        part.unlink(missing_ok=True)
    row = {"file": str(to), "records": records, "bytes": size, "as_of": opening.vector(cut), "sha256": digest}
    world.printer.one(row, MADE)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _name(part: Path, to: Path) -> None:
    """Gives a whole bundle its name. Raises: UsageError if that is taken."""
    try:
        os.link(part, to)
    except FileExistsError as error:
        raise UsageError(f"{to} is there already.", hint="Name another file.") from error
    except OSError as error:
        raise UsageError(f"{to} can't be made: {error}.") from error


def register(audit: typer.Typer) -> None:
    audit.command()(bundle)
