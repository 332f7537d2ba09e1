"""Looks up the job that a user names. `namespace/name` need not be unique; job ids are."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.core.model.registers import is_job_id
from ledger.errors import NotFound, UsageError
from ledger.reader.reading import Source, all_registers, entries_of, registers_of, results

PREFIX_CHARS_MIN = 4
SEE_ALL = "List all jobs: jobledger list --all"

#: (id, namespace, name)
Named = tuple[str, str, str]


def resolve(source: Source, ref: str, retired: bool = False, taking_over: bool = True) -> str:
    """The id of the job that `ref` names: an id, `namespace/name`, a name, or the first 4 or more characters of an id. Live
    jobs win over terminal ones, and those over retired ones.

    retired: also look among retired and not yet admitted jobs. taking_over: False = if one job replaces another of the same
    name, the name means the replaced one. Raises: UsageError if several jobs match; NotFound; LedgerError if the job's past
    has expired.
    """
    entries = entries_of(source)
    if ref in entries:
        return ref
    hidden = source.expiry_gaps
    if ref in hidden.jobs:  # a full id wins over ids that begin with it
        raise hidden.refuse(ref)
    if not taking_over:
        there = {job_id for job_id, e in entries.items() if not e.terminal}
        found = one(ref, ((j, entries[j].namespace, entries[j].name) for j in there if entries[j].replaces not in there))
        if found is not None:
            return found
    for over in (False, True):
        found = one(ref, ((e.job_id, e.namespace, e.name) for e in entries.values() if e.terminal is over))
        if found is not None:
            return found
    if retired:
        if is_job_id(ref) and registers_of(source, ref).known:
            return ref
        gone = results(source, all_registers(source)).values()
        found = one(ref, ((r.job_id, r.result.namespace, r.result.name) for r in gone))
        if found is not None:
            return found
    if (found := one(ref, ((job_id, *named) for job_id, named in hidden.jobs.items()))) is not None:
        raise hidden.refuse(found)
    raise NotFound(f"There is no job {ref}.", hint=SEE_ALL)


def one(ref: str, jobs: Iterable[Named]) -> str | None:
    """The id of the job that `ref` names; None = none matches. Raises: UsageError if several match."""
    found = {
        job_id: f"{namespace}/{name}"
        for job_id, namespace, name in jobs
        if ref in (job_id, name, f"{namespace}/{name}") or (len(ref) >= PREFIX_CHARS_MIN and job_id.startswith(ref))
    }
    if ref in found:
        return ref
    if len(found) > 1:
        listed = "\n".join(f"  {job_id}  {name}" for job_id, name in sorted(found.items()))
        raise UsageError(f"{ref} names {len(found)} jobs:\n{listed}", hint="Name one by its id.")
    return next(iter(found), None)
