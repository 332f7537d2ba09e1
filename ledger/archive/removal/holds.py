"""Which jobs a pin holds, by one listing of the store: for whoever must know at once, and often.

The truth on pins stands in the chain (`pins`), and reading that means reading its manifests. So beside each note lies an
object that tells the same by its name: `pinned/job-<job id>/<pin id>/pin.json`, and `unpinned.json` once it is lifted. The
first is there before its note, the second only after: what is listed here as held may not be sealed yet, or not any more,
and what is sealed is held. Source: docs/decisions/0036.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledger.archive.format.objects import ObjectStore

PREFIX = "pinned/"
PIN, LIFTED = "pin.json", "unpinned.json"
_JOB = "job-"  # the name of an object must not begin with a dot, and a job's id may


def name_of(job_id: str, pin_id: str, which: str) -> str:
    """Raises: UsageError, once it is used, if the store takes no such name."""
    return f"{PREFIX}{_JOB}{job_id}/{pin_id}/{which}"


def held_jobs(store: ObjectStore) -> Mapping[str, str]:
    """job id -> the pin that holds it (the oldest of several). Raises: as the store."""
    return _open(store.names(PREFIX))


def held_by(store: ObjectStore, job_id: str) -> str:
    """The pin that holds this job; "" = none does. Raises: as the store."""
    return _open(store.names(f"{PREFIX}{_JOB}{job_id}/")).get(job_id, "")


def _open(names: list[str]) -> dict[str, str]:
    there = set(names)
    found: dict[str, str] = {}
    for name in names:
        match name.split("/"):
            case [_, job, pin_id, str(which)] if which == PIN and job.startswith(_JOB):
                job_id = job.removeprefix(_JOB)
                if name_of(job_id, pin_id, LIFTED) not in there:
                    found.setdefault(job_id, pin_id)
    return found
