"""`jobledger audit verify`: compares the archive with its chains and anchors. `jobledger audit prove`: proves one
record.

The modules `anchoring`, `bundling` and `pinning` have the other verbs of this group."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli import anchoring, bundling, pinning, session
from ledger.cli.anchoring import Files, NoTopic, PublicKey
from ledger.cli.options import Context, bundle_verb
from ledger.cli.output import Column, Format, counted

if TYPE_CHECKING:
    from ledger.archive.store.verifying import PartitionVerdict

audit = typer.Typer(help="Prove that nothing in the archive was altered, left out or put in.", no_args_is_help=True)


#: An object that no manifest names is an orphan from this age on, or once it is older than two batches of the archiver. A
#: younger one may still get a manifest: a batch takes seconds, joining a day or redacting a large archive minutes.
YOUNG_S = 600.0


def _between(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


VERDICT = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("RECORDS", "records"),
    Column("SEALED UP TO", "sealed"),
    Column("ANCHORED UP TO", "anchored"),
    Column("PROVED UP TO", "proved"),
    Column("EXPIRED", "expired"),
    Column("REDACTED", "redacted"),
    Column("FIRST BAD", "bad", lambda bad: "-" if bad is None else _between(bad["from"], bad["to"])),
]


@audit.command()
@bundle_verb
def verify(world: Context, anchors: Files = None, no_topic: NoTopic = False, public_key: PublicKey = None) -> None:
    """Read the whole archive and compare it with its chain, and the chain with the anchors in the topic and in files.

    Exit code 1: something differs from what was sealed, or an anchor is invalid, contradicts another, or lacks a
    required signature. Without an anchor a chain only proves that it is consistent: everyone who can write to the
    archive could make another one. With --bundle the proofs in the bundle are checked too, by the anchors of the ledger
    that it comes from.
    """
    from ledger.archive.store.verifying import verify as verify_all
    from ledger.util.plain import to_plain

    topic = "" if no_topic or world.bundle is not None else world.config.topics.anchors
    judged, bad = anchoring.judged(world, anchors or (), public_key, topic)
    heads, remarks = list(judged.heads), list[str]()
    with world.printer.progress("verifying the archive"):
        if world.bundle is not None:
            found = bundling.verify(world, heads)
            verdicts, remarks = [verdict for verdict, _ in found], [line for _, lines in found for line in lines]
        else:
            young_s = max(YOUNG_S, 2 * world.config.archive.interval_s)
            verdicts = verify_all(session.archive(world), heads, young_s)
    rows = [{**to_plain(one), **_bad(one)} for one in verdicts]
    world.printer.rows(rows, VERDICT, empty="the archive is empty")
    for one in verdicts:
        _explain(world, one, anchored=bool(heads), bundled=world.bundle is not None)
    for line in remarks:
        world.printer.note(line)
    if not verdicts:  # a cron job that watches an archive may have named another folder
        world.printer.note(f"there is nothing to verify: {session.where(world)}")
    if bad or not verdicts or any(one.broken for one in verdicts):
        raise typer.Exit(1)


@audit.command()
@bundle_verb
def prove(
    world: Context,
    event_id: Annotated[
        str, typer.Argument(metavar="EVENT_ID", help="ce_id of the record, or its position as events[P]@OFFSET.")
    ],
) -> None:
    """Print a proof, as JSON, that the record of an event is in the archive. docs/check_proof.py checks it.

    Reads the archive from its beginning until it finds the record. With --bundle the proof says that the record is in the
    archive of the ledger that the bundle comes from.
    """
    from ledger.adapters import cloudevents
    from ledger.archive.proof.proving import prove as prove_one
    from ledger.archive.removal.redacting import parse_position
    from ledger.cli.output import to_json
    from ledger.core.model.published import headers_of

    archive = session.archive(world)
    ends = ("ledger.events", "ledger.recovery")
    topics = {
        end.removeprefix("ledger."): topic for topic, _ in archive.partitions() for end in ends if topic.endswith(end)
    }
    named = parse_position(event_id, topics) or event_id
    with world.printer.progress("looking for the record"):
        if world.bundle is not None:
            proof = bundling.prove(world, named, lambda record: cloudevents.parse(headers_of(record)).id)
        else:
            proof = prove_one(archive, named, lambda record: cloudevents.parse(headers_of(record)).id)
    print(to_json(proof, indent=None if world.printer.form is Format.jsonl else 2))
    last, chain = _last_of(proof), f"{proof['topic']}[{proof['partition']}]"
    first = last - len(proof["manifests"]) + 1
    world.printer.note(
        f"check it: python docs/check_proof.py PROOF.json SHA256 (this output; the field sha256 of an anchor of "
        f"{chain} with a sequence from {first} to {last}, as audit anchor --to FILE keeps them)"
    )


def _last_of(proof: Mapping[str, Any]) -> int:
    """The number of the last manifest of a proof."""
    return int(json.loads(proof["manifests"][-1])["sequence"])


def register(app: typer.Typer) -> None:
    anchoring.register(audit)
    bundling.register(audit)
    pinning.register(audit)
    app.add_typer(audit, name="audit", rich_help_panel="Audit")


def _bad(verdict: PartitionVerdict) -> dict[str, Any]:
    """first_bad: where it shows; bad: between which offsets the first bad record lies."""
    if not verdict.broken:
        return {"first_bad": None, "bad": None}
    shows = verdict.broken[0].offset
    first, last = verdict.bad_from, verdict.bad_to
    return {
        "first_bad": shows,
        "bad": {"from": shows if first is None else min(first, shows), "to": shows if last is None else last},
    }


def _explain(world: Context, verdict: PartitionVerdict, *, anchored: bool, bundled: bool) -> None:
    where = f"{verdict.topic}[{verdict.partition}]"
    if verdict.bad_from is not None and verdict.bad_to is not None and verdict.bad_from < verdict.bad_to:
        begin = f"offset {verdict.bad_from} (where the last anchor that holds ends)" if verdict.bad_from else "offset 0"
        world.printer.note(f"{where}: the first bad record lies somewhere from {begin} to {verdict.bad_to}: who writes a "
                           f"manifest can write those below it to fit")  # fmt: skip
    for one in verdict.broken[:10]:
        world.printer.note(f"{where}, offset {one.offset}, manifest {one.sequence}: {one.reason}")
    if len(verdict.broken) > 10:
        world.printer.note(f"{where}: and {len(verdict.broken) - 10} more")
    if verdict.orphans:
        world.printer.note(f"{where}: {len(verdict.orphans)} objects that no manifest names, such as {verdict.orphans[0]}")
    for note in verdict.notes[-10:]:
        what = f'is a note "{note.kind}"' if note.kind else "is a note that says nothing readable"
        stands = "an anchor stands for it" if note.anchored else "no anchor stands for it"
        world.printer.note(f"{where}: manifest {note.sequence} {what}, by {note.by or 'nobody'} at {note.at}; {stands}")
    if len(verdict.notes) > 10:
        world.printer.note(f"{where}: the last 10 of {len(verdict.notes)} notes are told here; -o json tells all")
    for remarks in verdict.gone[-10:]:
        why = f"redacted: {remarks.reason}" if remarks.why == "redacted" else f"expired of {remarks.namespace}"
        world.printer.note(f"{where}: {counted(remarks.records, 'record')} {why} ({remarks.by}, {remarks.at})")
    if len(verdict.gone) > 10:
        world.printer.note(f"{where}: the last 10 of {len(verdict.gone)} acts are told here; -o json tells all")
    if bundled:
        return  # a bundle's verdict says itself what is proved, and by which chain
    if anchored and not verdict.broken and verdict.unanchored == verdict.proved:
        world.printer.note(f"{where}: from offset {verdict.proved} on, something was taken out by retention or redaction "
                           f"and not anchored yet: jobledger audit anchor")  # fmt: skip
    elif anchored and not verdict.broken and verdict.proved < verdict.sealed:
        world.printer.note(f"{where}: nothing is proved from offset {verdict.proved} on, where the last anchor ends "
                           f"(manifest {verdict.proved_manifest}; the last one is {verdict.last_manifest})")  # fmt: skip
    elif anchored and not verdict.broken and verdict.proved_manifest < verdict.last_manifest:
        later = verdict.last_manifest - verdict.proved_manifest
        world.printer.note(f"{where}: all records are proved, but not the last {counted(later, 'manifest')}, which seal "
                           f"none (above manifest {verdict.proved_manifest})")  # fmt: skip
    if not anchored and not verdict.broken:
        world.printer.note(f"{where}: consistent, but without an anchor nothing is proved")
