"""`jobledger audit anchor`: records the heads of all chains. `jobledger audit key`: makes a key that signs anchors.

Also chooses the anchors that `audit verify` and `archive restore` prove against."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli import parsing
from ledger.cli.options import Context, verb
from ledger.cli.output import Column
from ledger.errors import ConfigError, LedgerError, NotFound, Unreachable, UsageError

if TYPE_CHECKING:
    from ledger.archive.format.anchor import AnchorRecord, JudgedAnchors

_SHOWN = 10
HEAD = [
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("MANIFEST", "sequence"),
    Column("SEALED UP TO", "next"),
    Column("SHA-256", "sha256"),
]
To = Annotated[
    Path | None,
    typer.Option("--to", metavar="FILE", help="Append the anchors to this file instead of the topic. Keep it where nobody "
                 "who writes to the archive can change it. Kafka is not used."),
]  # fmt: skip
Anew = Annotated[
    str | None,
    typer.Option("--anew", metavar="REASON", help="Ignore all earlier anchors in the topic, since the chains were started "
                 "anew on purpose. The reason is recorded in the topic."),
]  # fmt: skip
Files = Annotated[
    list[Path] | None,
    typer.Option("--anchors", metavar="FILE", help="A file that `audit anchor --to` wrote; repeatable."),
]
NoTopic = Annotated[
    bool,
    typer.Option("--no-topic", help="Do not read the topic of anchors, for example without Kafka.", show_default=False),
]
PublicKey = Annotated[
    Path | None,
    typer.Option("--public-key", metavar="FILE", help="Count only anchors signed with one of these keys (PEM)."),
]
New = Annotated[Path, typer.Option("--new", metavar="FILE", help="The file to make; FILE.pub gets the public key.")]


@verb
def anchor(world: Context, to: To = None, anew: Anew = None) -> None:
    """Record the head of every chain in the topic of anchors, so that `audit verify` can prove against it.

    Archivers do the same on a schedule. Anchors are signed if there is a key (archive.anchor_key_file). Exit code 1: a
    chain contradicts an earlier anchor in the topic or in FILE; this chain is then not anchored.
    """
    from ledger.app import anchors, archives

    if to is not None and anew is not None:
        raise UsageError("--anew is for the topic: it can't be given with --to.", hint="Begin another file.")
    why = None if anew is None else parsing.reason(anew, "--anew")
    archive = world.ledger.archive
    if not archive.partitions():
        raise NotFound("There is nothing to anchor: the archive is empty.", hint=archives.where(world.config))
    with closing(anchors.anchoring(world.ledger, archive, archive.partitions, to)) as anchoring:
        _warn_of_the_key(world)
        written = anchoring.step() if why is None else anchoring.begin_anew(why)
    world.printer.rows([one.head._asdict() for one in written], HEAD, empty="every chain is anchored as it is")


@verb
def key(world: Context, new: New) -> None:
    """Make a key that signs anchors (Ed25519). Set archive.anchor_key_file to it where archivers run.

    Keep FILE.pub out of reach of everyone who can write to the archive: `audit verify --public-key` takes it.
    """
    from ledger.app.wiring import of_extra

    with of_extra("sign"):
        from ledger.adapters import ed25519
    public, fingerprint = ed25519.make(new)
    row = {"private": str(new), "public": str(public), "fingerprint": fingerprint}
    world.printer.one(row, [Column("PRIVATE", "private"), Column("PUBLIC", "public"), Column("KEY", "fingerprint")])


def judged(
    world: Context, files: Sequence[Path], public_key: Path | None, topic: str, of: Collection[str] | None = None
) -> tuple[JudgedAnchors, bool]:
    """Returns the anchors to prove against, and whether any anchor is wrong. Prints on stderr which anchors are wrong.

    files: as `audit anchor --to` wrote them. topic: the topic of anchors; "" = read no topic. public_key: a file of
    keys; None = by the settings. of: the topics whose anchors count; None = all.
    Raises: UsageError if a file can't be read or holds no anchor; ConfigError if a key is invalid."""
    from ledger.app import anchors
    from ledger.archive.format.anchor import going_back, judge

    keys = anchors.public_keys(world.config, public_key) if public_key or world.bundle is None else None
    kept = [one for file in files for one in _from_file(file)]
    unreadable: Sequence[str] = ()
    if topic:
        found, unreadable = _from_topic(world, topic)
        kept += found
        older = going_back(found, None if keys is None else keys.why_not)
        _tell(world, "an anchor that goes back: the newer one counts as long as the topic has it", older)
    kept = [one for one in kept if of is None or one.anchor.head.topic in of]
    result = judge(kept, None if keys is None else keys.why_not)
    _tell(world, "no anchor", unreadable)
    _tell(world, "an anchor that does not count", result.refused)
    _tell(world, "a fork", result.forks)
    return result, bool(unreadable or result.refused or result.forks)


def _from_file(file: Path) -> Sequence[AnchorRecord]:
    """Reads anchors from a file. An emptied file is an error: its owner must not be told that all is well."""
    from ledger.archive.anchors import anchors

    if not (kept := anchors.read(file)):
        raise UsageError(f"{file} holds no anchor, so nothing can be proved by it.", hint="See: audit anchor --to")
    return kept


def _from_topic(world: Context, topic: str) -> tuple[Sequence[AnchorRecord], Sequence[str]]:
    from ledger.app import anchors
    from ledger.archive.anchors.anchor_topic import standing

    try:
        with closing(anchors.anchor_topic(world.ledger, topic)) as opened:
            found = standing(opened.read())
    except (ConfigError, Unreachable) as error:
        world.printer.note(f"WARNING: the anchors in {topic} are not asked: {error} (--no-topic says that this is meant)")
        return (), ()
    _tell(world, "given up", found.given_up)
    return found.kept, found.unreadable


def _warn_of_the_key(world: Context) -> None:
    from ledger.app import anchors

    if (signer := anchors.signer(world.config)) is not None and signer.open_to_others:
        path = world.config.archive.anchor_key_file
        world.printer.note(f"WARNING: others than its owner can read or change {path}: chmod 600 {path}")


def _tell(world: Context, what: str, lines: Sequence[str]) -> None:
    for one in lines[:_SHOWN]:
        world.printer.note(f"{what}: {one}")
    if len(lines) > _SHOWN:
        world.printer.note(f"{what}: and {len(lines) - _SHOWN} more")


def must_be_sound(found: JudgedAnchors) -> None:
    """Checks that all anchors can be true together. Raises: LedgerError if two anchors contradict each other."""
    if found.forks:
        raise LedgerError(f"Two anchors can't both be true: {found.forks[0]} Nothing was restored.",
                          hint="See: jobledger audit verify")  # fmt: skip


def register(audit: typer.Typer) -> None:
    audit.command()(anchor)
    audit.command()(key)
