"""The invariants, as pure functions over evidence (`copies`): the records of the topics, the answers that clients and
writers got, and the attempts that ran. So they check simulations and real servers alike.

Each returns its findings, [] if there are none. Events without a common clock are compared only by their order within
their list. Checkers cost n log n in the number of records; folds of prefixes are per job.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import groupby
from typing import Any

from ledger.adapters import cloudevents
from ledger.core.fold.fold import fold
from ledger.core.model.facts import AttemptStarted, IntentDeclared, JobSubmitted
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import OUTCOMES, Admitted, Attempt, Ended, Intent, Result, Spec, parse_key
from ledger.core.plan.replacing import STOP, intent_id, is_stop
from tests.simulation import codec
from tests.simulation.copies import (
    Copied,
    Delivery,
    Leased,
    Ran,
    Taken,
    alike,
    by_partition,
    claim_of,
    effective,
    epoch_of,
    folded,
    header,
    registers_of,
)  # fmt: skip

Findings = list[str]
CLOCK_S = 0.002  # records carry whole milliseconds


def differences(what: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Findings:
    return [
        f"{what}: {job_id}: {_short(one.get(job_id))} | {_short(other.get(job_id))}"
        for job_id in sorted({*one, *other})
        if not alike(one.get(job_id), other.get(job_id))
    ]


def _short(entry: RecoveryEntry | None) -> str:
    return "none" if entry is None else f"{entry.state} attempt {entry.attempt} next {entry.next_attempt}"


# -- I1, I2, I3: the fold ----------------------------------------------------------------------------------------------


def compaction_stable(events: Sequence[Copied], left: Sequence[Copied]) -> Findings:
    """I1: the compacted log folds like the full copy, up to the offset where the compacted log was read."""
    return differences("I1 left by compaction | full copy", folded(left), folded(events))


def idempotent(events: Sequence[Copied], rng: random.Random, samples: int = 5) -> Findings:
    """I2: repeating any records of the log at its end changes nothing. Pruned checkpoints are excepted: once a later
    attempt started from an older checkpoint, they may be offered again (docs/CRITIQUES.md)."""
    before, found = _live(events), []
    gone = {record.key for record in events if record.value is None and b"/checkpoint/" in (record.key or b"")}
    old = [record for record in events if record.key not in gone]
    for _ in range(samples if old else 0):
        again = rng.choices(old, k=3)
        found += differences("I2 repeated | once", _live([*events, *again]), before)
    return found


def order_free(events: Sequence[Copied], rng: random.Random, samples: int = 5) -> Findings:
    """I3: the fold does not depend on the order between keys. The order within a key is kept."""
    before, found = _live(events), []
    for _ in range(samples):
        keys = [record.key for record in events]
        rng.shuffle(keys)
        queues: dict[Any, list[Copied]] = defaultdict(list)
        for record in reversed(events):
            queues[record.key].append(record)
        found += differences("I3 in another order | in order", _live(queues[key].pop() for key in keys), before)
    return found


def _live(records: Iterable[Copied]) -> dict[str, RecoveryEntry]:
    """The folded entries without those of retiring jobs: the leader still removes registers beside their `result`. The
    entries are compared without `registers` and `disposals`: a repeated record may bring back a pruned register or a
    deleted savepoint, which is removed with the rest."""
    entries = folded(records).items()
    return {job_id: replace(entry, registers=(), disposals=()) for job_id, entry in entries if not entry.retiring}


# -- I4: terminal jobs stay terminal -----------------------------------------------------------------------------------


def no_resurrection(
    events: Sequence[Copied], recovery: Sequence[Copied], taken: Sequence[Taken], ran: Sequence[Ran]
) -> Findings:
    """I4: a terminal job stays terminal. This holds in the log (every prefix after a terminal fact), in the effective
    entries and in the entries that readers took. At the runner, no attempt starts after `result`."""
    found: Findings = []
    over: dict[str, Copied] = {}
    retired: dict[str, float] = {}
    registers: dict[str, dict[bytes, bytes]] = defaultdict(dict)
    for record in events:
        if (parsed := parse_key(record.key)) is None:
            continue
        job_id, register = parsed
        registers[job_id] |= registers_of([record])[job_id]
        if record.value is None:
            registers[job_id].pop((record.key or b"").partition(b"/")[2], None)
        if job_id in over:
            entry = fold(job_id, registers[job_id], codec.read)
            if entry is not None and entry.in_recovery_set:
                found.append(f"I4 {job_id} is {entry.state} after {over[job_id].key!r} at {record.offset}")
        elif _final(register) and record.value is not None and fold(job_id, registers[job_id], codec.read) is not None:
            over[job_id] = record
        if isinstance(register, Result) and record.value is not None:
            retired.setdefault(job_id, record.time_s)
    entries = ((r.key, codec.decode(RecoveryEntry, r.value)) for r in effective(recovery) if _is_entry(r))
    found += _terminal_then_live("I4 in the entries", ((key.decode(), entry) for key, entry in entries if key))
    found += _terminal_then_live("I4 as readers see it", ((t.job_id, t.entry) for t in taken if t.entry is not None))
    found += [
        f"I4 {run.job_id}/{run.n} started after its result"
        for run in ran
        if run.kind == "start" and run.at > retired.get(run.job_id, float("inf"))
    ]
    return found


def never_vanishes(events: Sequence[Copied]) -> Findings:
    """I4, at every prefix of the log: an admitted job has its registers, or a result that says how it ended. No result
    expires in these runs."""
    found: Findings = []
    admitted: set[str] = set()
    held: dict[str, set[bytes | None]] = defaultdict(set)
    for record in events:
        match parse_key(record.key):
            case (job_id, Admitted() | Result() as register):
                if record.value is not None:
                    held[job_id].add(record.key)
                    admitted.add(job_id)
                    continue
                held[job_id].discard(record.key)
                if job_id in admitted and not held[job_id]:
                    found.append(f"I4 {job_id} has vanished without a result after {register.word} at {record.offset}")
    return found


def _final(register: Any) -> bool:
    return isinstance(register, Result) or (
        isinstance(register, Ended) and register.outcome in ("finished", "canceled", "abandoned")
    )


def _is_entry(record: Copied) -> bool:
    return record.value is not None and record.key is not None and not record.key.startswith(b"~")


def _terminal_then_live(what: str, entries: Iterable[tuple[str, RecoveryEntry]]) -> Findings:
    over: set[str] = set()
    found = []
    for job_id, entry in entries:
        if entry.terminal:
            over.add(job_id)
        elif entry.in_recovery_set and job_id in over:
            found.append(f"{what}: {job_id} is {entry.state} again, as of {entry.as_of}")
    return found


# -- I5: acknowledged is durable ---------------------------------------------------------------------------------------


def acked_is_durable(told: Sequence[Delivery], records: Sequence[Copied]) -> Findings:
    """I5: an acknowledged event is at its offset (or anywhere, if no offset was returned). A failed event is nowhere."""
    at = {(r.topic, r.partition, r.offset): (r.key, r.value) for r in records}
    anywhere = {(r.topic, r.key, r.value) for r in records}
    ids = {(r.topic, header(r, "ce_id")) for r in records}
    found = []
    for t in told:
        if t.kind == "ok":
            if t.offset is not None and at.get((t.topic, t.partition, t.offset)) != (t.key, t.value):
                found.append(f"I5 {t.key!r} of {t.who} was acknowledged, but is not at {t.topic}[{t.partition}]@{t.offset}")
            elif t.offset is None and (t.topic, t.key, t.value) not in anywhere:
                found.append(f"I5 {t.key!r} of {t.who} was acknowledged, but is not in {t.topic}")
        elif t.kind == "fail" and header(t, "ce_id") and (t.topic, header(t, "ce_id")) in ids:
            found.append(f"I5 {t.key!r} of {t.who} failed, but is in {t.topic}")
    return found


# -- I6: one effective writer per epoch --------------------------------------------------------------------------------


def one_writer_per_epoch(records: Sequence[Copied], taken: Sequence[Taken], leases: Sequence[Leased] = ()) -> Findings:
    """I6: (a) an epoch of a role is claimed once per partition, and its records have rising sequences, as from one writer;
    (b) in a partition, the epochs that readers accepted never fall; (c) no accepted record comes after a claim of a
    higher epoch; (d) an instance whose lease has ended does not claim after another one has claimed."""
    found: Findings = []
    claims: dict[tuple[str, str, int, int], set[str]] = defaultdict(set)
    highest: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for record in records:
        if (claim := claim_of(record)) is not None:
            claims[record.topic, *claim, record.partition].add(header(record, "ce_id"))
            if claim[0] == "projector":
                highest[record.partition].append((record.offset, claim[1]))
    found += [
        f"I6a {role} {epoch} was claimed by {len(ids)} in {topic}[{p}]"
        for (topic, role, epoch, p), ids in claims.items()
        if len(ids) > 1
    ]
    found += _sequences(records)
    last: dict[int, tuple[int, int]] = {}
    for t in sorted(taken, key=lambda t: (t.partition, t.offset)):
        before = last.get(t.partition, (0, 0))
        if t.epoch < before[1] and t.offset > before[0]:
            found.append(f"I6b {t.job_id}: epoch {t.epoch} at {t.offset} was accepted after {before[1]} at {before[0]}")
        last[t.partition] = max(before, (t.offset, t.epoch))
        claimed = max((e for offset, e in highest[t.partition] if offset < t.offset), default=0)
        if t.epoch < claimed:
            found.append(f"I6c {t.job_id}: epoch {t.epoch} at {t.offset} was accepted after a claim of {claimed}")
    return found + _claims_without_lease(records, leases)


def _sequences(records: Sequence[Copied]) -> Findings:
    """Copies of a record (the same ce_id) may be repeated at any time. A new record must have a higher sequence."""
    found: Findings = []
    seen: dict[tuple[str, str, int], int] = defaultdict(int)
    ids: set[str] = set()
    for record in records:
        source, id_, sequence = (header(record, name) for name in ("ce_source", "ce_id", "ce_sequence"))
        if epoch_of(record) == 0 or not sequence or id_ in ids:
            continue
        ids.add(id_)
        place = (source, record.topic, record.partition)
        if int(sequence) <= seen[place]:
            found.append(f"I6a {source} wrote {sequence} after {seen[place]} in {record.topic}[{record.partition}]")
        seen[place] = max(seen[place], int(sequence))
    return found


def _claims_without_lease(records: Sequence[Copied], leases: Sequence[Leased]) -> Findings:
    """I6d. The header ledger_actor names the instance."""
    found: Findings = []
    before: dict[tuple[str, int], list[tuple[float, str]]] = defaultdict(list)
    ids: set[tuple[int, str]] = set()
    for record in records:
        again = (record.partition, header(record, "ce_id"))
        if (claim := claim_of(record)) is None or again in ids:
            continue
        ids.add(again)
        who, at = header(record, cloudevents.ACTOR), record.time_s
        others = before[claim[0], record.partition]
        held = [lease for lease in leases if lease.role == claim[0] and lease.who == who and lease.since <= at + CLOCK_S]
        if held and (until := max(lease.until for lease in held)) < at:
            since = [other for when, other in others if other != who and until < when < at]
            found += [f"I6d {who} claimed {claim[0]} {claim[1]} without a lease, and after {other}" for other in since[:1]]
        others.append((at, who))
    return found


# -- I7: the projection is exact ---------------------------------------------------------------------------------------


def projection_exact(events: Sequence[Copied], recovery: Sequence[Copied]) -> Findings:
    """I7, at every record: an effective entry equals the fold of the log below its as_of."""
    found: Findings = []
    logs = by_partition(events)
    per_job = {p: {job: list(of) for job, of in groupby(sorted(log, key=_job_order), key=_job)} for p, log in logs.items()}
    for record in effective(recovery):
        if not _is_entry(record):
            continue
        entry = codec.decode(RecoveryEntry, record.value or b"")
        log = per_job.get(record.partition, {}).get(entry.job_id, [])
        expected = folded(r for r in log if r.offset < entry.as_of).get(entry.job_id)
        if not alike(expected, entry):
            found.append(
                f"I7 {entry.job_id} at {record.offset} of epoch {entry.epoch}, as of {entry.as_of}: "
                f"{_short(entry)}, but the log says {_short(expected)}"
            )
    return found


def _job(record: Copied) -> str:
    return (record.key or b"").partition(b"/")[0].decode("ascii", "replace")


def _job_order(record: Copied) -> tuple[str, int]:
    return _job(record), record.offset


def view_exact(view: Mapping[str, RecoveryEntry], events: Sequence[Copied], what: str) -> Findings:
    """I7, when all is quiet: the entries of a reader equal the fold of the whole log."""
    return differences(f"I7 {what} | log", view, folded(events))


def view_faithful(view: Mapping[str, RecoveryEntry], recovery: Sequence[Copied]) -> Findings:
    """I7, at any time: a reader that has read exactly these records holds their effective entries."""
    last = {r.key.decode(): r.value for r in effective(recovery) if r.key and not r.key.startswith(b"~")}
    counts = {job_id: codec.decode(RecoveryEntry, value) for job_id, value in last.items() if value is not None}
    return differences("I7 a reader holds | what counts", view, counts)


def replaced_by(events: Iterable[Copied]) -> dict[str, str]:
    """Job -> the job that it replaces."""
    out = {}
    for record in events:
        parsed = parse_key(record.key)
        if parsed is not None and isinstance(parsed[1], Spec) and record.value is not None:
            spec = codec.read(parsed[1], record.value)
            if isinstance(spec, JobSubmitted) and spec.replaces is not None:
                out[parsed[0]] = spec.replaces
    return out


def links(events: Iterable[Copied], jobs: Mapping[str, RecoveryEntry]) -> set[str]:
    """Jobs that replace a job that is not terminal, and jobs that such a job replaces. The latter are also found through
    terminal jobs in between: the newest job may have started from a restore point of the oldest."""
    found = set()
    replaces = replaced_by(events)
    for new, old in replaces.items():
        if (there := jobs.get(old)) is not None and not there.terminal:
            found.add(new)
    for newest in [job_id for job_id, entry in jobs.items() if not entry.terminal]:
        chain = [newest]
        while (older := replaces.get(chain[-1])) is not None and older not in chain:
            chain.append(older)
        found |= {*chain[1:]}
    return found


def held_for_nothing(entry: RecoveryEntry, jobs: Mapping[str, RecoveryEntry], full: bool) -> Findings:
    """When all is quiet: a job that is suspended for a replacement stays so only if the new job is itself suspended or
    waits for slots. And a job that replaced another one still has a valid restore point: none of them was deleted."""
    lost = entry.begun and "no restore point verifies" in entry.reason
    found = [f"replacing: {entry.job_id}: {entry.reason}"] * lost
    if entry.state is not JobState.SUSPENDED or entry.intent is None or not is_stop(entry.intent.id):
        return found
    by = next((other for job_id, other in jobs.items() if intent_id(job_id, STOP) == entry.intent.id), None)
    if by is None:
        return [*found, f"replacing: {entry.job_id} is stopped for no other job"]
    waits = by.state is JobState.SUSPENDED or (full and by.state in (JobState.CREATED, JobState.RESTARTING))
    return found + [f"replacing: {entry.job_id} is {entry.state} for {by.job_id}, which is {by.state}"] * (not waits)


# -- I8: each attempt starts once --------------------------------------------------------------------------------------


def started_once(ran: Sequence[Ran], events: Sequence[Copied]) -> Findings:
    """I8: an attempt starts at most once, after its record, while no other attempt of its job is alive, and none of a job
    that it replaces or that replaces it. I12: it starts from the newest checkpoint of its job, or else of the job that
    it replaces. It may skip checkpoints that were damaged by then. With `force` an operator gives up the guarantee that
    one attempt runs, and that all checkpoints of the previous attempt are known. With a retry from elsewhere he gives up
    the start from the newest checkpoint."""
    found: Findings = []
    forced, elsewhere = told_otherwise(events)
    damaged: dict[str, set[tuple[int, int]]] = defaultdict(set)
    places: dict[str, set[tuple[int, int]]] = defaultdict(set)
    replaces = replaced_by(events)
    partners: dict[str, set[str]] = defaultdict(set)
    for new, old in replaces.items():
        partners[new].add(old)
        partners[old].add(new)
    recorded: dict[tuple[str, int], float] = {}
    cuts: dict[tuple[str, int], str] = {}
    for record in events:
        if (parsed := parse_key(record.key)) is not None and isinstance(parsed[1], Attempt) and record.value is not None:
            recorded.setdefault((parsed[0], parsed[1].n), record.time_s)
            if isinstance(fact := codec.read(parsed[1], record.value), AttemptStarted) and fact.together:
                cuts[parsed[0], parsed[1].n] = fact.together.consistency
    started: set[tuple[str, int]] = set()
    alive: dict[str, set[int]] = defaultdict(set)
    newest: dict[str, tuple[int, int]] = {}
    for run in ran:
        job_id, n = run.job_id, run.n
        if run.kind == "checkpoint" and run.place is not None:
            newest[job_id] = max(run.place, newest.get(job_id, run.place))
            places[job_id].add(run.place)
        elif run.kind == "damage" and run.place is not None:
            damaged[job_id].add(run.place)
        elif run.kind == "end":
            alive[job_id].discard(n)
        elif run.kind == "start":
            if (job_id, n) in started:
                found.append(f"I8 {job_id}/{n} started twice")
            if alive[job_id] and job_id not in forced:
                found.append(f"I8 {job_id}/{n} started while {sorted(alive[job_id])} ran")
            if recorded.get((job_id, n), float("inf")) > run.at:
                found.append(f"I8 {job_id}/{n} started before it was recorded")
            beside = [other for other in partners[job_id] if alive[other]]
            found += [f"replacing: {job_id}/{n} started while {other} ran" for other in beside]
            if run.place in places[job_id] and cuts.get((job_id, n)) == str(run.place[1] / 2).removesuffix(".0"):
                newest[job_id] = run.place  # the job went back to the cut of its region
            owner = job_id
            while owner not in newest and owner in replaces:
                owner = replaces[owner]
            expected = ("", None) if owner not in newest else (owner, newest[owner])
            passed_over = {place for place in places[owner] if run.place is not None and place > run.place}
            told = job_id in forced | elsewhere and (run.place is None or run.place in places[job_id])
            sound = run.owner == owner and run.place in places[owner] and passed_over <= damaged[owner]
            if (run.owner, run.place) != expected and not told and not sound:
                found.append(f"I12 {job_id}/{n} started from {run.place} of {run.owner or 'no job'}, not from {expected}")
            started.add((job_id, n))
            alive[job_id].add(n)
    return found


def told_otherwise(events: Sequence[Copied]) -> tuple[set[str], set[str]]:
    """(jobs with an intent that has `force`, jobs that an operator retried from elsewhere than the latest checkpoint)."""
    forced, elsewhere = set(), set()
    for record in events:
        match parse_key(record.key) if record.value is not None else None:
            case (job_id, Intent() as register) if isinstance(fact := codec.read(register, record.value), IntentDeclared):
                forced |= {job_id} if fact.force else set()
                elsewhere |= {job_id} if fact.from_ != "latest" else set()
    return forced, elsewhere


def began_unverified(unverified: Sequence[str]) -> Findings:
    """I12: no attempt starts from a restore point that no runner found valid."""
    return [f"I12 an attempt started from {location}, which was never verified" for location in unverified]


# -- regions -----------------------------------------------------------------------------------------------------------


def regions_went_back(events: Sequence[Copied]) -> Findings:
    """Once all is quiet, no running attempt is older than a failure in its region. If an attempt of another member failed
    later and was restarted, the region should have restarted with it. A job that takes part in a replacement belongs to
    no region meanwhile (decision 22), so such jobs are not checked."""
    paired: set[str] = set()
    ends: dict[tuple[str, int], list[str]] = defaultdict(list)
    began: dict[tuple[str, int], float] = {}
    ended: dict[tuple[str, int], float] = {}
    for record in events:
        match parse_key(record.key) if record.value is not None else None:
            case (job_id, Attempt(n, _)):
                began.setdefault((job_id, n), record.time_s)
            case (job_id, Ended(n, outcome, _)):
                ends[job_id, n].append(outcome)
                ended.setdefault((job_id, n), record.time_s)
            case (job_id, Spec() as register) if isinstance(spec := codec.read(register, record.value), JobSubmitted):
                paired |= {job_id, spec.replaces} if spec.replaces else set()
    stopped = OUTCOMES.index("stopped")  # the weakest outcome that is no failure
    failed = {job: n for job, n in sorted(ends) if max(map(OUTCOMES.index, ends[job, n])) < stopped}
    running = [e for e in folded(events).values() if e.region and e.state is JobState.RUNNING and e.job_id not in paired]
    return [
        f"regions: {one.job_id}/{one.attempt} started beside {other.job_id}/{n}, which failed"
        for one in running
        for other in running
        if one is not other and (one.namespace, one.region) == (other.namespace, other.region)
        and (n := failed.get(other.job_id, 0)) and n >= (one.together.beside.get(other.job_id, 0) if one.together else 0)
        and began[one.job_id, one.attempt] <= ended[other.job_id, n]
    ]  # fmt: skip


# -- savepoints --------------------------------------------------------------------------------------------------------


def savepoints_as_wanted(
    events: Sequence[Copied], jobs: Mapping[str, RecoveryEntry], saved: Set[str], given_up: Set[str], stored: Set[str]
) -> Findings:
    """Once all is quiet, a savepoint was deleted only if somebody disposed of it or a policy demanded it. Each disposed
    savepoint is deleted, unless it is still needed, or its job was over by then (the garbage collector deletes it). Each
    job has at most one open periodic savepoint request."""
    keeps = {}
    for record in events:
        match parse_key(record.key) if record.value is not None else None:
            case (job_id, Spec() as register) if isinstance(spec := codec.read(register, record.value), JobSubmitted):
                keeps[job_id] = spec.savepoint_policy.keep_max
    found: Findings = []
    for location in sorted(saved - stored - given_up):
        if not keeps.get(location.split("/")[2]):
            found.append(f"savepoints: {location} was deleted, but never disposed of")
    points = [point for entry in jobs.values() for point in (*entry.restore_points, entry.base)]
    needs = {point.location for point in points if point is not None}
    for job_id, entry in jobs.items():
        left = [point.location for point in entry.disposals if point.location not in needs and point.location in stored]
        found += [f"savepoints: {location} is disposed of, but not deleted" for location in left]
        periodic = [ask for ask in entry.asks if ask.startswith("periodic-")]
        found += [f"savepoints: {job_id} has several open periodic requests: {periodic}"] if len(periodic) > 1 else []
    return found
