"""The options that every verb takes: the ledger, and the format of the answer.

    @app.command("show")
    @verb
    def show(world: World, job: Annotated[str, typer.Argument(metavar="JOB")]) -> None:
        '''One job.'''
        world.printer.one(row_of(read(world.config, job)), COLUMNS)

`verb` replaces `world` by the shared options. The environment sets the ledger, LEDGER_OUTPUT, LEDGER_DEBUG and the
settings, and no other flag: LEDGER_VERSION of an image must change nothing.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ledger.adapters.local.disk_space import without_room
from ledger.cli.output import Color, Format, Printer
from ledger.errors import ConfigError, LedgerError, OutcomeUnknown, Unreachable, UsageError
from ledger.util import failpoints, loggers

if TYPE_CHECKING:
    from ledger.app.ledger import Ledger
    from ledger.config.config import Config

WHICH = "Which ledger"
Dir = Annotated[
    Path | None,
    typer.Option("--dir", envvar="LEDGER_DIR", show_envvar=False, metavar="DIR", help="Folder of the embedded ledger.",
                 rich_help_panel=WHICH),
]  # fmt: skip
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", "-b", envvar="LEDGER_KAFKA__BOOTSTRAP_SERVERS", show_envvar=False, metavar="HOST:PORT[,…]",
        help="Use your own Kafka instead of the embedded one.", rich_help_panel=WHICH,
    ),
]  # fmt: skip
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", envvar="LEDGER_CONFIG", show_envvar=False, metavar="FILE", help="TOML file; default DIR/ledger.toml.",
        rich_help_panel=WHICH,
    ),
]  # fmt: skip
Client = Annotated[
    list[str] | None,
    typer.Option(
        "-X", metavar="NAME=VALUE", help="A librdkafka setting; repeatable. Not for secrets: everyone on the host can see "
        "the arguments.", rich_help_panel=WHICH,
    ),
]  # fmt: skip
Output = Annotated[
    Format,
    typer.Option("--output", "-o", envvar="LEDGER_OUTPUT", show_envvar=False, help="Format of the answer."),
]
Colour = Annotated[
    Color,
    typer.Option("--color", help="Colours; auto: on a terminal, unless NO_COLOR is set.", show_default=False),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", envvar="LEDGER_DEBUG", show_envvar=False, help="Show tracebacks and debug lines.",
                 show_default=False),
]  # fmt: skip
Bundle = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FILE", help="Read this file of `audit bundle` instead of a running ledger.",
                 rich_help_panel=WHICH, show_default=False),
]  # fmt: skip
#: The selection of jobs for verbs that take several; `ledger.cli.selection` reads them. The same flags in every verb.
InNamespace = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Only jobs of this namespace; repeatable."),
]
WithLabel = Annotated[
    list[str] | None,
    typer.Option(
        "--label", "-l", metavar="SELECTOR",
        help="Only jobs with this label: NAME=VALUE, NAME!=VALUE or NAME, several with commas; repeatable.",
    ),
]  # fmt: skip
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.", show_default=False)]


@dataclass
class Context:
    """The shared options of a verb, and the ledger that they name. The settings are read at their first use."""

    dir: Path | None = None
    config_file: Path | None = None
    sections: dict[str, Any] = field(default_factory=dict)
    output: Format = Format.table
    color: Color = Color.auto
    debug: bool = False
    bundle: Path | None = None
    #: Whether this process logs in JSON. Then the error that ends it is a line of that log (`cli.Frame`).
    json_log: bool = False
    #: Makes the ledger of the settings. A test passes its own as `obj` of the command.
    opened: Callable[[Config], Ledger] = field(default_factory=lambda: _open)

    @cached_property
    def config(self) -> Config:
        """The settings of the ledger that the options name. Raises: ConfigError."""
        from ledger.config.config import load_config

        return load_config(self.dir, self.config_file, **self.sections)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger that the options name. Raises: as `config`."""
        return self.opened(self.config)

    @cached_property
    def printer(self) -> Printer:
        return Printer(self.output, color=self.color)


#: Whether this process is the command alone; `main` sets it. A test that runs verbs keeps its own logging.
ALONE = False
_SHARED = {
    "dir_": Dir, "bootstrap": Bootstrap, "config_file": ConfigFile, "client": Client, "output": Output, "color": Colour,
    "debug": Debug,
}  # fmt: skip
_DEFAULTS = {"output": Format.table, "color": Color.auto, "debug": False}


def verb(function: Callable[..., None], *, bundle: bool = False) -> Callable[..., None]:
    """A command for typer: the function, with the shared options in place of its first parameter, `world: World`.
    bundle: also offer --bundle. An option that the function declares itself is not replaced."""
    hints = get_type_hints(function, include_extras=True)
    own = [
        parameter.replace(annotation=hints.get(name, parameter.annotation))
        for name, parameter in list(inspect.signature(function).parameters.items())[1:]
    ]
    kind = inspect.Parameter.KEYWORD_ONLY
    types = {name: type_ for name, type_ in _SHARED.items() if name not in {parameter.name for parameter in own}}
    shared = [inspect.Parameter(name, kind, default=_DEFAULTS.get(name), annotation=t) for name, t in types.items()]
    context = inspect.Parameter("ctx", kind, annotation=typer.Context)
    if bundle:
        shared.append(inspect.Parameter("bundle", kind, default=None, annotation=Bundle))
    all_of_them = [parameter.replace(kind=kind) for parameter in own] + shared + [context]

    @functools.wraps(function)
    def run(**given: Any) -> None:
        ctx = given.pop("ctx")
        _arm_failpoints()
        if ALONE:
            _log_to_stderr(debug=bool(given.get("debug")))
        world = _world(ctx, _DEFAULTS | {name: given.pop(name) for name in types})
        world.bundle = given.pop("bundle", None)
        if callable(opened := ctx.find_root().obj):
            world.opened = opened
        ctx.find_root().obj = world
        try:
            function(world, **given)
        except (Unreachable, OutcomeUnknown) as error:
            if world.bundle is None and world.config.embedded:
                error.hint = _hint(world.config.dir, error)
            raise

    run.__signature__ = inspect.Signature(all_of_them)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in all_of_them}
    del run.__wrapped__
    return run


#: A verb that can read a bundle as well as a ledger.
bundle_verb = functools.partial(verb, bundle=True)


def _open(config: Config) -> Ledger:
    from ledger.app.ledger import Ledger

    return Ledger.open(config)


def _hint(folder: Path, error: LedgerError) -> str:
    """The hint for an error; it names a full disk. A broker whose disk is full ends, and reports that in its own log
    only."""
    full = without_room([folder / "broker" / "data", folder / "blobs", folder / "agent"])
    if full and not error.hint.startswith("Make room"):
        todo = "make room there; what was acknowledged is kept, and the ledger goes on by itself."
        return f"{error.hint} The disk of {full[0]} is full: {todo}".strip()
    return error.hint or (f"Does it run? jobledger up --dir {folder}" if isinstance(error, Unreachable) else "")


def _log_to_stderr(*, debug: bool) -> None:
    """Logs on stderr, so that stdout has the answer alone. `serve` configures the log of a role."""
    loggers.LEAST = logging.DEBUG if debug else logging.WARNING


def _arm_failpoints() -> None:
    """Raises: ConfigError if the variable is set and invalid: a test that hits nothing would prove nothing."""
    try:
        failpoints.arm(os.environ.get(failpoints.VARIABLE, ""))
    except ValueError as error:
        raise ConfigError(f"{failpoints.VARIABLE}: {error}.") from None


def _world(ctx: typer.Context, given: dict[str, Any]) -> Context:
    def flag(name: str) -> Any:
        """The value from the command line, before or behind the verb. `load_config` finds the other sources by
        itself and reports them in --sources."""
        if _typed(ctx, name):
            return given[name]
        return root.params[name] if _typed(root, name) else None

    def path(name: str) -> Path | None:
        text = flag(name)
        return None if text is None else Path(text)

    root = ctx.find_root()
    kafka = dict(_pair(text) for text in (*(root.params.get("client") or ()), *(given["client"] or ())))
    if bootstrap := flag("bootstrap"):
        kafka["bootstrap.servers"] = bootstrap
    sections: dict[str, Any] = {"kafka": kafka} if kafka else {}
    if given["debug"]:
        sections["log"] = {"level": "debug"}
    return Context(path("dir_"), path("config_file"), sections, given["output"], given["color"], given["debug"])


def _typed(ctx: Any, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"-X takes NAME=VALUE, not {text}.", hint="For example: -X socket.timeout.ms=5000")
    return name, value
