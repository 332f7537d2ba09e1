"""`jobledger serve projector|reconciler|agent|archiver`: runs one role in this process, until SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import threading
from functools import partial
from typing import Annotated, Any

import typer

from ledger.adapters.local.private import private_folder
from ledger.cli.options import Context, verb

serve = typer.Typer(help="Run one role of the ledger in this process.", no_args_is_help=True)

ForceLead = Annotated[
    bool, typer.Option("--force-lead", help="Lead without the lock, to test the fencing.", show_default=False)
]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Name of this process in its log.")]


@serve.command()
@verb
def projector(world: Context, force_lead: ForceLead = False, name: Name = "projector") -> None:
    """Fold events into the recovery set. One projector leads, the others stand by."""
    stop = _begin(world, name)
    from ledger.app.roles_main import run_projector

    run_projector(world.ledger, force_lead=force_lead, stop=stop)


@serve.command()
@verb
def reconciler(world: Context, force_lead: ForceLead = False, name: Name = "reconciler") -> None:
    """Start and stop attempts, so that the running jobs match the recovery set."""
    stop = _begin(world, name)
    from ledger.app.roles_main import run_reconciler

    run_reconciler(world.ledger, force_lead=force_lead, stop=stop)


@serve.command()
@verb
def agent(world: Context, name: Name = "agent") -> None:
    """Run the jobs of this host (runner subprocess) and report their events."""
    stop = _begin(world, name, private=False)
    from ledger.adapters.runners.subprocess.digests import Limits
    from ledger.adapters.runners.subprocess.holds import Holds
    from ledger.adapters.runners.subprocess.server import run_agent
    from ledger.app import agent_folder, pinning

    config = world.config
    sender = agent_folder.agent_sender(world.ledger)
    try:
        agent_folder.claim_agent_folder(world.ledger)
        held = Holds(partial(pinning.listed_holds, world.ledger)) if config.archive.adapter else None
        limits = Limits(config.agent.digest_bytes_per_s, config.agent.digest_wait_s)
        run_agent(config.agent_folder, world.ledger.blobs, sender, world.ledger.clock, stop, held=held, limits=limits)
    finally:
        sender.close()


@serve.command()
@verb
def archiver(world: Context, name: Name = "archiver") -> None:
    """Copy every record into the archive and seal it. Several archivers slow each other down, and do no harm."""
    stop = _begin(world, name)
    from ledger.app.roles_main import run_archiver

    run_archiver(world.ledger, stop=stop)


def register(app: typer.Typer) -> None:
    app.add_typer(serve, name="serve", rich_help_panel="Operate the ledger")


def _begin(world: Context, name: str, *, private: bool = True) -> threading.Event:
    """Configures logging, and returns the event that SIGTERM and SIGINT set. A second signal ends the process at
    once. private: new files are the owner's alone. Not for the agent: its jobs keep the rights that they would
    have without it."""
    from ledger.app import logs

    if private:
        os.umask(0o077)
    logs.configure(world.config.log, process=name, pid=str(os.getpid()))
    world.json_log = logs.is_json(world.config.log, sys.stderr)
    for folder in (world.config.dir, world.config.dir / "run"):
        private_folder(folder)
    stop = threading.Event()

    def ask(number: int, _frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    return stop
