"""`jobledger demo`: runs jobs on real input from submit to retirement, with a crash and a failover, on a new ledger."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

Input = Annotated[
    list[Path] | None,
    typer.Option(
        "--input",
        exists=True,
        metavar="PATH",
        help="Count the words of these files instead of Python's own sources.",
    ),
]
Dir = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Keep the ledger in this folder. Default: a folder that is deleted at the end.",
    ),
]


def demo(input_: Input = None, folder: Dir = None) -> None:
    """Show the life of jobs on real input: submit, crash, restart from a checkpoint, failover, quarantine, finish,
    retire.

    Runs a separate ledger for the demonstration. Exit code 1: something went wrong."""
    from ledger.demo.story import play
    from ledger.errors import UsageError

    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty.", hint="The demonstration wants a folder of its own.")
    into = folder or Path(tempfile.mkdtemp(prefix="jobledger-demo-"))
    holds = play(into.resolve(), input_ or (), lambda line: print(line, flush=True))
    if folder is None and holds:
        shutil.rmtree(into, ignore_errors=True)
    elif not holds:
        print(f"what happened lies in {into}")
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    app.command("demo", rich_help_panel="An embedded ledger")(demo)
