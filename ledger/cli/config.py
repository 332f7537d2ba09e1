"""`jobledger config show|describe|check`: the settings in force, their meaning, and their check."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from ledger.cli.options import Context, verb
from ledger.cli.output import Column, Format
from ledger.errors import ConfigError

config = typer.Typer(help="Show the settings in force and their sources; check them.", no_args_is_help=True)

Sources = Annotated[bool, typer.Option("--sources", help="Show the source of each setting.", show_default=False)]
DESCRIBED = [Column("DEFAULT", "default"), Column("MEANING", "meaning"), Column("VARIABLE", "variable", wide=True)]
SETTING, VALUE, SOURCE = Column("SETTING", "setting"), Column("VALUE", "value"), Column("SOURCE", "source")


@config.command()
@verb
def show(world: Context, sources: Sources = False) -> None:
    """Show the settings in force, with secrets masked, and the address of the broker."""
    settings = world.config.shown() | {"bootstrap": _bootstrap(world)}
    rows = [
        {"setting": name, "value": value, "source": world.config.origins().get(name, "default")}
        for name, value in flat(settings)
    ]
    if world.printer.form in (Format.json, Format.jsonl) and not sources:
        world.printer.one(settings, [])
    else:
        world.printer.rows(rows, [SETTING, VALUE, SOURCE] if sources else [SETTING, VALUE])


@config.command()
@verb
def describe(
    world: Context,
    name: Annotated[str, typer.Argument(help="A section, or one setting such as log.level. Default: all.")] = "",
) -> None:
    """List each setting with its meaning, its default and its environment variable."""
    from ledger.cli.settings_reference import matching

    found = matching(name)
    if not found:
        raise ConfigError(f"There is no section or setting {name!r}.", hint="jobledger config describe lists all of them.")
    world.printer.rows([{"setting": one.name, **one._asdict()} for one in found], [SETTING, *DESCRIBED])


@config.command()
@verb
def check(world: Context) -> None:
    """Check the settings: known names, readable secrets, options that the clients of Kafka (Spark's too) and S3
    accept."""
    from confluent_kafka.admin import AdminClient

    from ledger.adapters.kafka.errors import made
    from ledger.adapters.kafka.java_client import java_settings
    from ledger.app import anchors, notifying
    from ledger.app.s3_settings import s3_settings
    from ledger.app.zookeeper_settings import zookeeper_settings

    made(AdminClient, world.config.client(), logging.getLogger("ledger.kafka"))
    java_settings(world.config.client())  # Spark reads Kafka by another client
    world.config.topic_settings()
    if world.config.leadership.adapter == "zookeeper":
        zookeeper_settings(world.config)
    if world.config.blobs.adapter == "s3":
        world.ledger.blobs  # noqa: B018  # raises if boto3 is missing
        from ledger.adapters.s3.client import connect

        connect(s3_settings(world.config.blobs, "blobs"))
    if world.config.archive.adapter == "s3":
        world.ledger.archive  # noqa: B018
        from ledger.adapters.s3.client import connect

        connect(s3_settings(world.config.archive, "archive"))
    anchors.signer(world.config)
    anchors.public_keys(world.config)
    notifying.notifier(world.config)
    world.printer.text("the settings can be used")


def register(app: typer.Typer) -> None:
    app.add_typer(config, name="config", rich_help_panel="Operate the ledger")


def flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting in nested tables, as (dotted name, value). before: a prefix for the names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _bootstrap(world: Context) -> str | None:
    """The address of the broker; None if no ledger runs there yet. The other settings are shown all the same."""
    try:
        return world.config.bootstrap
    except ConfigError:
        return None
