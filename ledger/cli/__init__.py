"""The command `jobledger`: parses the arguments, makes one call into the library, and prints the answer.

Each other module of this package adds its verbs by `register(app)`. Verbs import heavy modules themselves, so that
`--help` and completion answer at once."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ledger._version import __version__
from ledger.cli import examples, options
from ledger.cli.output import lines_of
from ledger.errors import LedgerError

#: Exit code of an unforeseen error (EX_SOFTWARE); no answer uses it.
BUG = 70
INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES = {
    0: "done",
    1: "the answer is no: differs, not found, unhealthy",
    2: "wrong usage or settings; nothing was done",
    3: "Kafka, the agent or the blob store can't be reached",
    4: "timed out: the outcome is not known",
    5: "refused, overtaken or fenced",
    BUG: "a bug; --debug shows where",
}

#: In the order of --help.
_MODULES = (
    "embedded", "demo", "jobs", "applying", "savepoints", "replacing", "reading", "state_diff", "planning", "logs",
    "garbage", "archive", "audit", "serve", "topics", "leader", "config",
)  # fmt: skip


class Frame(TyperGroup):
    """Turns an exception of a verb into a sentence on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LedgerError as error:
            say_error(error, json_log=getattr(ctx.obj, "json_log", False))
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader of stdout has exited, such as `head`. Python must not flush the rest at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from None
        except Exception as error:
            if type(error).__module__.startswith("typer"):
                raise  # wrong usage and exits: typer prints them
            say_bug(error, json_log=getattr(ctx.obj, "json_log", False))
            raise typer.Exit(BUG) from error


def say_error(error: LedgerError, *, json_log: bool = False) -> None:
    if json_log:
        _log(str(error), error.hint)
        return
    for line in (f"error: {error}", *([f"hint: {error.hint}"] if error.hint else [])):
        print("\n".join(lines_of(line)), file=sys.stderr)  # it may quote what a job printed
    _say_traceback()


def say_bug(error: Exception, *, json_log: bool = False) -> None:
    first_line = (lines_of(str(error)) or [""])[0]
    message = f"{type(error).__name__}: {first_line}"
    hint = "This is a bug of jobledger. Run it again with --debug, and report what it shows."
    if json_log:
        _log(message, hint)
        return
    print(f"error: {message}", file=sys.stderr)
    print(f"hint: {hint}", file=sys.stderr)
    _say_traceback()


def _log(message: str, hint: str) -> None:
    """Logs the error that ends a process whose output is a log in JSON."""
    import structlog

    structlog.get_logger("ledger").error(message, hint=hint, exc_info=debugging())


def debugging() -> bool:
    """Whether --debug was given, before the verb or behind it."""
    return "--debug" in sys.argv or os.environ.get("LEDGER_DEBUG", "").lower() in ("1", "true", "yes", "on")


def _say_traceback() -> None:
    if debugging():
        traceback.print_exc()


def _version(asked: bool) -> None:
    if asked:
        print(f"jobledger {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="jobledger",
    cls=Frame,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + ".",
)


@app.callback()
def jobledger(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.", show_default=False)
    ] = False,
    # `options.verb` reads them from here, unless they stand behind the verb too.
    dir_: options.Dir = None,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    client: options.Client = None,
) -> None:
    """Which jobs must be brought back, from which checkpoint, and why: an event-sourced ledger of jobs on Kafka.

    The environment sets the ledger (LEDGER_DIR, LEDGER_CONFIG), the answers (LEDGER_OUTPUT, LEDGER_DEBUG) and every
    setting (LEDGER_SECTION__KEY), never another flag. `jobledger config describe` lists the settings. The options that
    name the ledger may stand before the verb or behind it; behind it they win.
    """


def load_verbs() -> None:
    for name in _MODULES:
        import_module(f"ledger.cli.{name}").register(app)
    examples.attach(app)


load_verbs()


def main() -> None:
    # Warnings of the client library are no answer; errors that matter come as exceptions.
    logging.getLogger("ledger").setLevel(logging.DEBUG if debugging() else logging.CRITICAL)
    options.ALONE = True
    app()
