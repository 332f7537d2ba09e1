"""The verbs `audit verify|anchor|prove`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli import bundling, opening
from ledger.cli.options import World, bundle_verb, verb
from ledger.cli.output import Column, Format

if TYPE_CHECKING:
    from ledger.archive.verifying import Verdict

audit = typer.Typer(help="Prove that nothing in the archive was altered, left out or put in.", no_args_is_help=True)

VERDICT = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("RECORDS", "records"),
    Column("SEALED UP TO", "sealed"),
    Column("ANCHORED UP TO", "anchored"),
    Column("PROVED UP TO", "proved"),
    Column("FIRST BAD", "first_bad", lambda offset: "-" if offset is None else str(offset)),
]
HEAD = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("MANIFEST", "sequence"),
    Column("SEALED UP TO", "next"),
    Column("SHA-256", "sha256"),
]
To = Annotated[
    Path, typer.Option("--to", metavar="FILE", help="Append them here: a place that the archive's writers can't change.")
]
Anchors = Annotated[
    Path | None,
    typer.Option("--anchors", metavar="FILE", help="What `audit anchor --to` has kept. Without it nothing is proved."),
]


@audit.command()
@bundle_verb
def verify(world: World, anchors: Anchors = None) -> None:
    """Read the whole archive and compare it with its chain, and that with the anchors. Exit 1 if anything is not as sealed.

    A chain without an anchor shows only that it is consistent: who can write to the archive could make another one.
    """
    from ledger.archive import anchors as kept
    from ledger.archive.verifying import verify as verify_all
    from ledger.plain import to_plain

    heads = kept.read(anchors) if anchors is not None else []
    with world.printer.progress("verifying the archive"):
        verdicts = verify_all(opening.archive(world), heads)
    rows = [{**to_plain(one), "first_bad": one.broken[0].offset if one.broken else None} for one in verdicts]
    world.printer.rows(rows, VERDICT, empty="the archive is empty")
    for one in verdicts:
        _explain(world, one, anchored=bool(heads))
    if any(one.broken for one in verdicts):
        raise typer.Exit(1)


@audit.command()
@verb
def anchor(world: World, to: To) -> None:
    """Keep the head of every chain: what `audit verify` proves against."""
    from ledger import wiring
    from ledger.archive import anchors as kept

    archive = wiring.archive(world.config)
    heads = [head for place in archive.places() if (head := archive.head(*place)).sequence >= 0]
    kept.append(to, heads)
    world.printer.rows([head._asdict() for head in heads], HEAD, empty="the archive is empty")


@audit.command()
@bundle_verb
def prove(world: World, event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="ce_id of the record.")]) -> None:
    """Print a proof, as JSON, that the record of an event lies in the archive. docs/check_proof.py checks it.

    Reads the archive from its beginning until it finds the record.
    """
    from ledger.adapters import cloudevents
    from ledger.archive.proving import prove as prove_one
    from ledger.cli.output import to_json

    with world.printer.progress("looking for the record"):
        proof = prove_one(opening.archive(world), event_id, lambda record: cloudevents.parse(record.headers()).id)
    print(to_json(proof, indent=None if world.printer.form is Format.jsonl else 2))


def register(app: typer.Typer) -> None:
    bundling.register(audit)
    app.add_typer(audit, name="audit", rich_help_panel="Audit")


def _explain(world: World, verdict: Verdict, *, anchored: bool) -> None:
    where = f"{verdict.topic}[{verdict.partition}]"
    for one in verdict.broken[:10]:
        world.printer.note(f"{where}, offset {one.offset}, manifest {one.sequence}: {one.reason}")
    if len(verdict.broken) > 10:
        world.printer.note(f"{where}: and {len(verdict.broken) - 10} more")
    if verdict.strays:
        world.printer.note(f"{where}: {len(verdict.strays)} objects that no manifest names, such as {verdict.strays[0]}")
    if anchored and not verdict.broken and verdict.proved < verdict.sealed:
        world.printer.note(f"{where}: nothing is proved from offset {verdict.proved} on, where the last anchor ends")
    if not anchored and not verdict.broken:
        world.printer.note(f"{where}: consistent, but without an anchor nothing is proved")
