"""The jobs that pins protect, from one listing of the store, for callers that ask often and need a quick answer.

The chain holds the authoritative notes on pins (`pins`), but finding them means reading every manifest. So each note
has a marker object whose name holds the same facts: `pinned/job-<job id>/<pin id>/pin.json`, and `unpinned.json` once
the pin is removed. `pin.json` is created before its note, `unpinned.json` after its note. So every pin in the chain is
listed here; a pin that is listed here may not be in the chain yet, or may be removed there already. Source:
docs/decisions/0036.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledger.archive.format.objects import ObjectStore

PREFIX = "pinned/"
PIN, LIFTED = "pin.json", "unpinned.json"
_JOB = "job-"  # a job id may begin with a dot, and a part of an object's name must not


def name_of(job_id: str, pin_id: str, which: str) -> str:
    """The name of a marker object. A store that does not allow the name raises UsageError when the name is used."""
    return f"{PREFIX}{_JOB}{job_id}/{pin_id}/{which}"


def held_jobs(store: ObjectStore) -> Mapping[str, str]:
    """The jobs that pins protect: job id -> pin id, the oldest pin if there are several. Raises: as the store."""
    return _open(store.names(PREFIX))


def held_by(store: ObjectStore, job_id: str) -> str:
    """The id of a pin that protects this job; "" = none. Raises: as the store."""
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
