"""`jobledger logs`: prints the output of an attempt, from the files of the runner agent on this host."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli import session
from ledger.cli.jobs import Job as Name
from ledger.cli.options import Context, verb
from ledger.core.model.facts import JobResult

if TYPE_CHECKING:
    from ledger.core.fold.job import Job

Attempt = Annotated[
    int | None, typer.Option("--attempt", min=1, metavar="N", help="Number of the attempt. Default: the last one.")
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep printing new output until the attempt is over.", show_default=False)
]


@verb
def logs(world: Context, job: Name, follow: Follow = False, attempt: Attempt = None) -> None:
    """Print the output of an attempt of a job: its stdout on stdout, its stderr on stderr."""
    from ledger.adapters.runners.subprocess import attempt_output
    from ledger.errors import NotFound
    from ledger.reader.job_lookup import resolve
    from ledger.reader.watching import Watch

    with session.source(world, "looking for the attempt") as source:
        job_id = resolve(source, job, retired=True)
        with Watch(source, job_id) as watch:
            watch.read()
            n = attempt or watch.until(lambda: _last(watch.job()), None if follow else 0.0)
    if n is None:
        raise NotFound(f"{job_id} has not been started yet.", hint="-f waits for it.")
    if n == 0:
        raise NotFound(f"{job_id} was over before it was started.")
    out = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
    for stream, data in attempt_output.read(world.config.agent_folder, job_id, n, world.ledger.clock if follow else None):
        out[stream].write(data)
        out[stream].flush()


def _last(job: Job) -> int | None:
    """The number of the last attempt; 0: there never was one, and never will be; None: there is none yet.

    The facts of a retired job's attempts are gone; its result has their number.
    """
    result = job.result and job.fact(job.result, JobResult)
    return max(job.top, result.attempts if result else 0) or (0 if result else None)


def register(app: typer.Typer) -> None:
    app.command("logs", rich_help_panel="Look")(logs)
