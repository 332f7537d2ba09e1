"""`jobledger up` and `jobledger down`: start and stop an embedded ledger in one folder."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ledger.adapters.local.disk_space import is_full
from ledger.cli.options import Context, Yes, verb
from ledger.cli.output import Format

PANEL = "An embedded ledger"
Projectors = Annotated[
    int,
    typer.Option("--projectors", min=0, max=9, metavar="N", help="Number of projectors; one leads, the others stand by."),
]
Reconcilers = Annotated[
    int, typer.Option("--reconcilers", min=0, max=9, metavar="N", help="Number of reconcilers; each holds a JVM.")
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach", "-d", help="Return once the ledger is ready; it runs on in the background.", show_default=False
    ),
]
BrokerOnly = Annotated[
    bool,
    typer.Option(
        "--broker-only", help="Start the broker only, without topics and roles, for `archive restore`.", show_default=False
    ),
]
Jobs = Annotated[
    bool, typer.Option("--jobs", help="Stop the jobs too; the next `up` brings them back.", show_default=False)
]
Purge = Annotated[
    bool, typer.Option("--purge", help="Then delete everything that the ledger created in the folder.", show_default=False)
]


@verb
def up(
    world: Context, projectors: Projectors = 2, reconcilers: Reconcilers = 1, detach: Detach = False,
    broker_only: BrokerOnly = False,
) -> None:  # fmt: skip
    """Start a ledger in --dir and keep it running: a Kafka broker, projectors, a reconciler, a runner agent.

    Killing `up` stops nothing. Another `up` takes over the running processes; `jobledger down` stops them. With -o
    jsonl each line is a JSON object, as in the logs of the roles.
    """
    from ledger.embedded.up import Up, role_names

    roles = [] if broker_only else role_names(projectors, reconcilers)
    if detach:
        many = ["--projectors", str(projectors), "--reconcilers", str(reconcilers)]
        _detach(world, ["--broker-only"] if broker_only else many)
        return
    stopped = threading.Event()
    numbers: list[int] = []

    def ask(number: int, _frame: Any) -> None:
        numbers.append(number)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    say = _saying(world)
    Up(world.config, roles, say=say, stopped=stopped, source=world.ledger.source).run()
    say("up ends; the ledger runs on (`jobledger down` stops it)")
    if signal.SIGINT in numbers:
        raise typer.Exit(130)


@verb
def down(world: Context, jobs: Jobs = False, purge: Purge = False, yes: Yes = False) -> None:
    """Stop the ledger in --dir. Its jobs keep running, unless --jobs is given."""
    from ledger.embedded.down import down

    folder = world.config.dir
    if purge and not yes and sys.stdin.isatty() and not typer.confirm(f"Delete the ledger in {folder}, with all it knows?"):
        raise typer.Exit(1)
    down(folder, say=_say, runners=lambda: world.ledger.runners, jobs=jobs, purge=purge)


def register(app: typer.Typer) -> None:
    app.command("up", rich_help_panel=PANEL)(up)
    app.command("down", rich_help_panel=PANEL)(down)


def _detach(world: Context, arguments: list[str]) -> None:
    from ledger.embedded.detach import detach

    if world.debug:
        arguments = [*arguments, "--debug"]
    code = detach(world.config, arguments, say=_say, complain=lambda line: print(line, file=sys.stderr))
    if code:
        raise typer.Exit(code)


def _saying(world: Context) -> Callable[[str], None]:
    """A function that prints a line: as text, or in JSON as a line of the log."""
    if world.printer.for_people or world.output is Format.name:
        return _say
    import structlog

    from ledger.app import logs

    # These lines are the answer, so the log level does not apply.
    settings = world.config.log.model_copy(update={"format": "json", "level": "debug" if world.debug else "info"})
    logs.configure(settings, sys.stdout, process="up", pid=str(os.getpid()))
    log = structlog.get_logger("up")
    world.json_log = True
    report: Callable[[str], None] = log.info
    return report


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except OSError as error:
        if not is_full(error):  # output may be lost; the processes must keep running
            raise
