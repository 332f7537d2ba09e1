"""`jobledger audit bundle`: writes the ledger into one file. Also `audit verify` and `audit prove` for such a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.archive.format.chain import Broken
from ledger.cli import parsing, session
from ledger.cli.options import Context, verb
from ledger.cli.output import Column, counted
from ledger.cli.session import AsOf
from ledger.errors import UsageError

if TYPE_CHECKING:
    from ledger.archive.format.chain import Head
    from ledger.archive.format.objects import ObjectStore
    from ledger.archive.removal.redacting import RecordPosition
    from ledger.archive.store.sealing import SealCheck
    from ledger.archive.store.verifying import PartitionVerdict
    from ledger.ports import Record, TopicPartition
    from ledger.reader.reading import Source

To = Annotated[Path, typer.Option("--to", metavar="FILE", help="The file to write; it must not exist.")]
Jobs = Annotated[
    list[str] | None,
    typer.Option("--job", metavar="JOB", help="Only this job; repeatable. Default: all jobs.", show_default=False),
]
Reason = Annotated[str, typer.Option("--reason", help="Why the bundle is made; recorded in it.")]
Logs = Annotated[
    bool,
    typer.Option("--logs", help="Add the output of the named jobs, as far as it is on this host.", show_default=False),
]
PICTURES = 20  # jobs at most, unless --job names them
MADE = [
    Column("FILE", "file"),
    Column("RECORDS", "records"),
    Column("BYTES", "bytes"),
    Column("AS OF", "as_of", wide=True),
    Column("SHA-256", "sha256"),
]


@verb
def bundle(world: Context, to: To, reason: Reason, job: Jobs = None, as_of: AsOf = None, logs: Logs = False) -> None:
    """Write the ledger up to a moment into one file, with all that the archive has, for analysis elsewhere.

    Every reading verb opens it with --bundle FILE, and so do audit verify and audit prove; no server is needed. It has
    a picture of each job named by --job, or of all jobs if there are at most 20 (timelines/job-JOB.html). With --logs
    it has the output of the named jobs too (logs/job-JOB/ATTEMPT/). To prove its records by anchors of the ledger:
    audit verify --bundle FILE --anchors FILE.

    Everyone who has the file can read what the log says of jobs: names, labels, reasons, causes. Secrets of the
    settings are masked. Commands and environments are in graphs, which it does not hold.
    """
    from ledger.adapters.local.zipped import ZipObjects
    from ledger.app import archives
    from ledger.history.timeline import timeline_of
    from ledger.history.timeline_svg import html
    from ledger.reader.job_lookup import resolve

    if logs and not job:
        raise UsageError("--logs needs --job: of which jobs?")
    why = parsing.reason(reason)
    if to.exists():
        raise _taken(to)
    part = to.with_name(f"{to.name}.{os.getpid()}.part")
    try:
        with session.moments(world, "making a bundle") as at, closing(ZipObjects(part, new=True)) as store:
            then, cut = at("--as-of", as_of)
            jobs = [resolve(then, one, retired=True) for one in job or ()]
            records = archives.make_bundle(world.ledger, store, then, cut, jobs, why)
            for job_id in jobs or _few(then):
                store.create(f"timelines/job-{job_id}.html", html(timeline_of(then, job_id)).encode())
                if logs and not _printed(world, store, job_id):
                    world.printer.note(f"this host has no logs of {job_id}: they lie where its agent runs")
            archives.seal_bundle(store)
        size, digest = part.stat().st_size, _digest(part)
        _name(part, to)
    finally:
        part.unlink(missing_ok=True)
    session.say_left_out(world, then)
    row = {"file": str(to), "records": records, "bytes": size, "as_of": session.vector(cut), "sha256": digest}
    world.printer.one(row, MADE)


def _few(then: Source) -> list[str]:
    """All jobs, unless there are too many: each picture reads a whole partition."""
    from ledger.reader.reading import all_registers

    found = sorted(job_id.decode() for jobs in all_registers(then).jobs for job_id in jobs)
    return found if len(found) <= PICTURES else []


def _printed(world: Context, store: ObjectStore, job_id: str) -> int:
    """Puts the logs of a job from this host into a bundle. Returns the number of attempts that had any."""
    from ledger.adapters.runners.subprocess.attempt_output import read
    from ledger.adapters.runners.subprocess.log_retention import attempts_with_logs
    from ledger.errors import NotFound

    folder, found = world.config.agent_folder, 0
    for n in attempts_with_logs(folder, job_id):
        streams: dict[str, list[bytes]] = {}
        with suppress(NotFound):  # the agent may be about to drop them
            for stream, data in read(folder, job_id, n):
                streams.setdefault(stream, []).append(data)
        for stream, parts in streams.items():
            store.create(f"logs/job-{job_id}/{n}/{stream}.log", b"".join(parts))
        found += bool(streams)
    return found


def verify(world: Context, anchors: Sequence[Head]) -> list[tuple[PartitionVerdict, list[str]]]:
    """Returns the finding for each partition of a bundle, and the notes to print: whether the file matches its own
    chain and seal, and what the ledger's chain (as far as the bundle has it) proves by the ledger's anchors.

    Raises: UsageError if the file is no bundle."""
    from ledger.adapters.local.zipped import ZipObjects
    from ledger.app.wiring import of_extra

    with of_extra("archive"):
        from ledger.archive.proof import bundle_proofs
        from ledger.archive.store import sealing
    from ledger.archive.format.segments import leaves_of
    from ledger.archive.store.archive import Archive
    from ledger.archive.store.verifying import verify_partition
    from ledger.errors import LedgerError

    assert world.bundle is not None
    archive, found = Archive(ZipObjects(world.bundle)), []
    any_proofs, here = bundle_proofs.carries_any(archive.store), set(archive.partitions())
    seal = sealing.check(archive.store)
    reported = _reaching(archive.store, seal)
    for tp in sorted({*here, *bundle_proofs.partitions(archive.store), *reported, *seal.broken}):
        own = verify_partition(archive.store, *tp, [])
        own = replace(own, broken=(*own.broken, *seal.broken.get(tp, ())))
        where, lines = f"{own.topic}[{own.partition}]", list[str]()
        # A chain that ends earlier may lack no record: the end of a transaction has an offset too.
        if tp in reported and (tp not in here or own.sealed > reported[tp] + 1):
            goes = "nothing of it is in the bundle" if tp not in here else f"it goes up to offset {own.sealed - 1}"
            other = Broken(0, 0, f"{goes}, and the bundle says up to offset {reported[tp]}")
            own = replace(own, broken=(*own.broken, other))
        try:
            carried = bundle_proofs.read(archive.store, tp)
            leaves = leaves_of(archive.records(*tp))
        except LedgerError as error:  # the finding of its own chain reports that already
            found.append((own if own.broken else replace(own, broken=(Broken(0, 0, str(error)),)), lines))
            continue
        if carried is None:
            why = "the bundle carries no proofs"
            if any_proofs:
                why += " of it: none of its records was archived when it was made, or somebody took them out"
            found.append((own, [*lines, f"{where}: nothing is proved by the ledger's own chain: {why}"]))
            continue
        checked = bundle_proofs.check(carried, tp, leaves, anchors)
        broken = tuple(sorted({*own.broken, *checked.broken}, key=lambda one: (one.offset, one.sequence)))
        # The ledger's chain goes further than a bundle of an earlier moment; only the bundle's part is judged.
        anchored = min(checked.anchored, own.sealed)
        proved = min([checked.proved, own.sealed, *(one.offset for one in own.broken)])
        if not checked.anchored:
            none = "no anchor was given" if not anchors else "none of the anchors stands in the chain that it carries"
            lines.append(f"{where}: {none}, so nothing is proved of the ledger's own chain")
        elif not broken and proved < own.sealed:
            lines.append(f"{where}: proved by the ledger's own chain up to offset {proved}, where the last anchor ends")
        if checked.bad is not None:
            first, last = checked.bad
            if own.bad_from is not None and own.bad_to is not None:
                first, last = min(first, own.bad_from), min(last, own.bad_to)
            own = replace(own, bad_from=first, bad_to=last)
        if checked.later:
            lines.append(f"{where}: {checked.later} records, from offset {carried.next} on, were not archived at that time")
        if checked.unproved:
            lines.append(f"{where}: {checked.unproved} records are not as they were sealed: redacted, says its maker")
        found.append((replace(own, anchored=anchored, proved=proved, broken=broken), lines))
    if found:
        found[-1][1].append(_said_of(seal, world.bundle))
    return found


def _reaching(store: ObjectStore, seal: SealCheck) -> dict[TopicPartition, int]:
    """The offsets up to which the bundle claims to reach. Raises: UsageError if it does not say, and a broken seal
    does not explain that."""
    from ledger.errors import LedgerError
    from ledger.history.bundle_about import ABOUT, decode

    try:
        return decode(store.read(ABOUT)).reaching()
    except LedgerError:
        if any(one.reason.startswith(f"{ABOUT} ") for broken in seal.broken.values() for one in broken):
            return {}
        raise


def _said_of(seal: SealCheck, file: Path) -> str:
    compare = f"Compare the SHA-256 of the file with what its maker told you: {_digest(file)}"
    if not seal.sealed:
        return (f"the bundle is unsealed: nothing shows that bundle.json, or anything else beside the records, is as it "
                f"was made. Either an older version made it, or somebody removed the seal. {compare}")  # fmt: skip
    if any(seal.broken.values()):
        return f"the bundle is not as it was sealed. {compare}"
    return f"bundle.json and {counted(seal.objects - 1, 'other object')} are as sealed, which no key signs. {compare}"


def prove(world: Context, named: str | RecordPosition, id_of: Callable[[Record], str]) -> dict[str, Any]:
    """The proof of one record in a bundle, by the chain of the ledger that the bundle comes from. If the bundle has no
    such chain, the proof is by the bundle's own chain. Raises: as `bundle_proofs.prove` and `proving.prove`."""
    from ledger.archive.proof import bundle_proofs
    from ledger.archive.proof.proving import prove as by_its_own

    archive = session.archive(world)
    if bundle_proofs.carries_any(archive.store):
        return bundle_proofs.prove(archive, named, id_of)
    world.printer.note("the bundle carries no proofs of the ledger's chain: this one is of its own, which no anchor knows")
    return by_its_own(archive, named, id_of)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _name(part: Path, to: Path) -> None:
    """Moves a complete bundle to its name. Raises: UsageError if the name is taken."""
    try:
        os.link(part, to)
    except FileExistsError as error:
        raise _taken(to) from error
    except OSError as error:
        raise UsageError(f"{to} can't be made: {error}.") from error


def _taken(to: Path) -> UsageError:
    return UsageError(f"{to} is there already.", hint="Name another file.")


def register(audit: typer.Typer) -> None:
    audit.command()(bundle)
