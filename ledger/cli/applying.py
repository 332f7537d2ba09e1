"""`jobledger apply`: makes the jobs match their files. Equal jobs stay as they are; different jobs are reported or
replaced."""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from dataclasses import replace as with_
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli import job_files, rendering, session
from ledger.cli.interruption import unwinding
from ledger.cli.options import Context, verb
from ledger.cli.output import Column
from ledger.cli.specs import RUNNER, blob_of
from ledger.errors import LedgerError, Refused, Unreachable

if TYPE_CHECKING:
    from ledger.core.model.facts import JobSubmitted
    from ledger.core.model.recovery import RecoveryEntry
    from ledger.operations.client import Client

PANEL = "Jobs"
#: Fields that no file can change: how a job began, and the name of its graph.
_NOT_COMPARED = ("graph", "restore_from", "replaces", "replacement")


class ApplyOutcome(StrEnum):
    """The result of `apply` for one job."""

    CREATED = "created"
    UNCHANGED = "unchanged"
    DIFFERS = "differs"
    REPLACED = "replaced"
    OVER = "over"
    FAILED = "failed"


COLUMNS = [
    Column("NAME", "name"), Column("NAMESPACE", "namespace"), Column("OUTCOME", "outcome"), Column("STATE", "state"),
    rendering.ID, Column("WHY", "why", lambda why: "; ".join(why or ()) or "-", text=True),
]  # fmt: skip
Files = Annotated[
    list[Path],
    typer.Option("--file", "-f", metavar="FILE", help="A job file, or a folder of job files (*.toml); repeatable."),
]
Replace = Annotated[
    bool,
    typer.Option("--replace", help="Replace each job that differs, as jobledger replace does.", show_default=False),
]  # fmt: skip
Again = Annotated[
    bool, typer.Option("--again", help="Submit jobs again that are over: finished, canceled or failed.", show_default=False)
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why jobs are replaced; recorded in their history.")]


@verb
def apply(world: Context, file: Files, replace: Replace = False, again: Again = False, reason: Why = "") -> None:
    """Submit the jobs of files. A job that exists and is equal stays as it is; a different one is reported.

    Namespace and name identify a job. Exit code 0: all jobs match their files; 1: some differ, failed, or ended without
    finishing.
    """
    jobs = job_files.read(file)
    rows: list[dict[str, Any]] = []
    with unwinding(), session.client(world, "applying") as (client, tell):
        for job in jobs:
            tell(f"{len(rows)} of {len(jobs)} jobs")
            row = {"file": str(job.path), "name": job.spec.name, "namespace": job.spec.namespace}
            if rows and rows[-1].get("exit_code") == Unreachable.exit_code:
                failed = {"outcome": ApplyOutcome.FAILED, "why": ["not tried"], "exit_code": Unreachable.exit_code}
                rows.append(row | failed)
                continue
            try:
                rows.append(row | _applied(client, job, replace, again, reason.strip()))
            except LedgerError as error:
                rows.append({**row, "outcome": ApplyOutcome.FAILED, "why": [str(error)], "exit_code": error.exit_code})
    world.printer.rows(rows, COLUMNS)
    if any(row["outcome"] is ApplyOutcome.DIFFERS for row in rows):
        world.printer.note("Jobs that differ were left as they are. Add --replace to bring them in line with their files.")
    if any(row["outcome"] in (ApplyOutcome.DIFFERS, ApplyOutcome.FAILED) or _gave_up(row) for row in rows):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    app.command("apply", rich_help_panel=PANEL)(apply)


# -- one job -----------------------------------------------------------------------------------------------------------


def _gave_up(row: Mapping[str, Any]) -> bool:
    return bool(row["outcome"] is ApplyOutcome.OVER and row["state"] != "FINISHED")


def _applied(client: Client, job: job_files.JobFile, replacing: bool, again: bool, reason: str) -> dict[str, Any]:
    """Applies one file and returns the outcome. Raises: LedgerError."""
    blob = blob_of(job.options)
    try:
        entry = _standing(client, job.spec)
        if entry is None:
            over = None if again else _over(client, job.spec)
            if over is not None:
                job_id, state = over
                why = ["--again submits it again"]
                return {"outcome": ApplyOutcome.OVER, "job_id": job_id, "state": state, "why": why}
            job_id = client.submit(job.spec, blob, unique=True)
            return {"outcome": ApplyOutcome.CREATED, "job_id": job_id, "state": "CREATED", "why": []}
        row = {"job_id": entry.job_id, "state": str(entry.state)}
        old = client.spec(entry.job_id)
        why = [*spec_differences(old, job.spec), *_graph_differences(client, old, blob)]
        if not why:
            return {**row, "outcome": ApplyOutcome.UNCHANGED, "why": []}
        if not replacing:
            return {**row, "outcome": ApplyOutcome.DIFFERS, "why": why}
        job_id = client.replace(entry.job_id, job.spec, blob, reason=reason)
        outcome = ApplyOutcome.REPLACED
        return {"job_id": job_id, "replaces": entry.job_id, "state": "CREATED", "outcome": outcome, "why": why}
    finally:
        blob.unlink(missing_ok=True)


def _standing(client: Client, spec: JobSubmitted) -> RecoveryEntry | None:
    """The job of this name that is not over. While one job replaces another, the new one. Raises: Refused."""
    same = (spec.namespace, spec.name)
    live = [e for e in client.entries().values() if (e.namespace, e.name) == same and not e.terminal]
    taken_over = {e.replaces for e in live if e.state != "QUARANTINED"}
    left = [e for e in live if e.job_id not in taken_over]
    if len(left) > 1:
        ids = ", ".join(sorted(e.job_id for e in left))
        raise Refused(f"{spec.namespace}/{spec.name} names {len(left)} jobs: {ids}.", hint="Cancel all but one.")
    if left and left[0].state in ("CANCELLING", "FAILING"):
        raise Refused(f"{left[0].job_id} is {left[0].state}.", hint="Once it is over, --again submits it anew.")
    return left[0] if left else None


def _over(client: Client, spec: JobSubmitted) -> tuple[str, str] | None:
    """(id, state) of the last job of this name that is over, as far as the ledger still has any."""
    from ledger.reader.reading import all_registers, results

    same = (spec.namespace, spec.name)
    entries = client.entries().values()
    if over := [(e.job_id, str(e.state)) for e in entries if (e.namespace, e.name) == same and e.terminal]:
        return max(over)
    gone = results(client.source, all_registers(client.source)).values()
    last = max(
        ((r.result.when, r.job_id, r.state) for r in gone if (r.result.namespace, r.result.name) == same), default=None
    )
    return None if last is None else last[1:]


# -- what differs ------------------------------------------------------------------------------------------------------


def spec_differences(old: JobSubmitted, new: JobSubmitted) -> list[str]:
    """The fields in which two specs differ, one line each, such as `priority: 0 → 7`. The first restore point and the
    graph are not compared."""
    found: list[str] = []
    for field in fields(new):
        if field.name not in _NOT_COMPARED:
            _differences(field.name, getattr(old, field.name), getattr(new, field.name), found)
    return found


def _differences(name: str, old: Any, new: Any, found: list[str]) -> None:
    if old == new:
        return
    if is_dataclass(new) and type(old) is type(new):
        for field in fields(new):
            _differences(f"{name}.{field.name}", getattr(old, field.name), getattr(new, field.name), found)
    else:
        found.append(f"{name}: {_shown(old)} → {_shown(new)}")


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={inner}" for key, inner in sorted(value.items())) or "none"
    if isinstance(value, tuple) and all(isinstance(word, str) for word in value):
        return shlex.join(value) or "none"
    if isinstance(value, tuple):
        return f"{len(value)} of them" if value else "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _graph_differences(client: Client, old: JobSubmitted, blob: Path) -> list[str]:
    """Compares command, files and limits. For variables it lists names only, since a value may be secret."""
    from ledger.adapters.runners.subprocess.graph import unpack

    with blob.open("rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() == old.graph.sha256:
            return []
    if old.runner != RUNNER:
        return ["its graph"]
    with tempfile.TemporaryDirectory(prefix="jobledger-apply-") as folder:
        stored, before, after = Path(folder, "blob"), Path(folder, "before"), Path(folder, "after")
        client.fetch_graph(old, stored)
        was, is_ = unpack(stored, before), unpack(blob, after)
        found: list[str] = []
        names = {*was.environment, *is_.environment}
        changed = sorted(name for name in names if was.environment.get(name) != is_.environment.get(name))
        found += [f"env: {name}" for name in changed]
        _differences("graph", with_(was, environment={}), with_(is_, environment={}), found)
        one, other = _files(before), _files(after)
        found += [f"file: {name}" for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    return found


def _files(folder: Path) -> dict[str, tuple[bool, str]]:
    """path -> (whether it is executable, SHA-256) for each file in a graph."""
    from ledger.adapters.runners.subprocess.unpacking import MANIFEST

    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST:
            with path.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            found[name] = bool(path.stat().st_mode & 0o100), digest
    return found
