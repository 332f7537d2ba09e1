"""`jobledger topics create|check`: creates the ledger's topics, and checks their settings."""

from __future__ import annotations

import typer

from ledger.cli.archive import say_headroom
from ledger.cli.options import Context, verb
from ledger.cli.output import Column, Format, age

topics = typer.Typer(help="Create the topics, or check their settings.", no_args_is_help=True)

PROBLEM = [
    Column("TOPIC", "topic"),
    Column("SETTING", "setting"),
    Column("FOUND", "found"),
    Column("WANTED", "wanted"),
    Column("WHY", "why"),
    Column("MEND", "mend"),
]


@topics.command()
@verb
def create(world: Context) -> None:
    """Create the topics that are missing. Existing topics are not changed."""
    from ledger.adapters.kafka.topics import create_topics

    made = create_topics(world.config.client(), world.config.topic_settings())
    if world.printer.form is Format.table and not made:
        world.printer.text("all topics are there")
    else:
        world.printer.rows([{"topic": topic} for topic in made], [Column("MADE", "topic")], empty="all topics are there")


@topics.command()
@verb
def check(world: Context) -> None:
    """List each wrong setting, why it matters and the command that corrects it. Exit code 1: there is one.

    If there is an archive, it also shows how far the archive is ahead of compaction; exit code 1 too if it is behind.
    """
    from ledger.adapters.kafka.topics import check_topics
    from ledger.app import archives

    problems = check_topics(world.config.client(), world.config.topic_settings())
    if world.printer.form is Format.table:
        for problem in problems:
            world.printer.text(str(problem))  # not in a table: a command that is cut can't be used
        if not problems:
            world.printer.text("all topics are as they must be")
    else:
        world.printer.rows([problem._asdict() for problem in problems], PROBLEM, empty="all topics are as they must be")
    if problems:
        raise typer.Exit(1)
    if world.config.archive.adapter:
        found = archives.archive_progress(world.ledger)
        waiting = [one.headroom_s for one in found if one.headroom_s is not None]
        least = f"{age(max(0.0, min(waiting)))} at least" if waiting else "nothing waits"
        world.printer.note(f"headroom of the archive: {least}")
        say_headroom(world, found)


def register(app: typer.Typer) -> None:
    app.add_typer(topics, name="topics", rich_help_panel="Operate the ledger")
