"""Targets for whole records: the fold and the readers never raise, and records of one job do not affect another."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from random import Random

from ledger.adapters import avro
from ledger.cli import rendering
from ledger.core.explain import explain
from ledger.core.fold.fold import fold_job, prunable
from ledger.core.fold.job import Job
from ledger.core.garbage import claims_of
from ledger.core.model.facts import (
    FACT_OF,
    GraphRef,
    IntentDeclared,
    IntentKind,
    JobAdmitted,
    JobSubmitted,
    LeaderClaimed,
    Progress,
)
from ledger.core.model.published import Published
from ledger.core.model.recovery import RecoveryEntry, same_meaning
from ledger.core.model.registers import NUMBER_MAX, parse_key, partition_of
from ledger.core.model.table import RegisterTable
from ledger.core.plan.plan import Action, GiveUp, Start, StartAgain, decide
from ledger.core.plan.runner_report import RunnerReport
from ledger.errors import UsageError
from ledger.ports import MemoryRecord
from ledger.reader.rejects import judge, reject_of
from tests.fuzz.spoil import spoiled
from tests.fuzz.targets import NUMBERS, VALUES, a_key, kind_of, target

PARTITIONS = 2
OF_KIND: dict[type, list[bytes]] = {}
for _value in VALUES:
    OF_KIND.setdefault(kind_of(_value), []).append(_value)
OF_KIND[IntentDeclared] += [
    avro.encode(IntentDeclared(kind, attempt, force=force))
    for kind in IntentKind for attempt in (0, 1, 7, NUMBER_MAX) for force in (False, True)
]  # fmt: skip


def admitted(spec: bytes) -> dict[bytes, bytes]:
    digest = sha256(spec[avro.HEADER_BYTES :]).hexdigest()
    return {b"spec/" + digest.encode(): spec, b"admitted": avro.encode(JobAdmitted(digest))}


SPEC = OF_KIND[JobSubmitted][0]  # has all fields set, many of them wrong, so the job is not started
DIGEST = sha256(SPEC[avro.HEADER_BYTES :]).hexdigest()
ADMITTED = admitted(SPEC)
STARTABLE = admitted(avro.encode(JobSubmitted("orders", "prod", "subprocess", GraphRef("file:///g", "0" * 64, 1))))
Record = tuple[bytes, bytes | None]


def a_record(rng: Random) -> Record:
    """A random record. Its value is mostly of the kind of fact that its key requires."""
    key = a_key(rng)
    parsed = parse_key(key)
    value = rng.choice(OF_KIND[FACT_OF[type(parsed[1])]] if parsed and rng.random() < 0.9 else VALUES)
    if rng.random() < 0.05:
        return key, None
    return key, _spoiled_body(rng, value) if rng.random() < 0.6 else value


def _spoiled_body(rng: Random, value: bytes) -> bytes:
    return value[: avro.HEADER_BYTES] + spoiled(rng, value[avro.HEADER_BYTES :], VALUES)


# -- the fold ----------------------------------------------------------------------------------------------------------


def some_registers(rng: Random) -> dict[bytes, bytes]:
    """Registers of one job, which is mostly admitted: name -> value."""
    found = dict(rng.choice((ADMITTED, STARTABLE))) if rng.random() < 0.9 else {}
    for _ in range(rng.randrange(1, 6)):
        key, value = a_record(rng)
        if value is not None:
            found[key.partition(b"/")[2]] = value
    return found


@target("fold", some_registers)
def check_fold(registers: dict[bytes, bytes]) -> bool:
    """The fold never raises, nor do `prunable`, `explain`, `claims_of` and `decide` on its result. The entry either
    survives encoding unchanged, or encoding refuses it as a whole."""
    job = Job("job-1", registers, avro.read)
    entry = fold_job(job)
    gone = prunable(job)
    assert all(register in job.names for register in gone)
    explain(Job("job-1", registers, avro.read))
    claims_of(Job("job-1", registers, avro.read), entry, 3)
    if entry is None:
        return False
    for alive in (frozenset({entry.attempt}), frozenset[int](), None):
        check_actions(entry, decide(entry, RunnerReport(alive)))
    try:
        assert same_meaning(avro.decode(RecoveryEntry, avro.encode(entry)), entry)
    except UsageError:
        return False
    return True


def check_actions(entry: RecoveryEntry, actions: Sequence[Action]) -> None:
    """An intent of a kind that this version does not know starts nothing. An attempt is abandoned without an answer of
    its runner only if an operator forced it."""
    kind, forced = (entry.intent.kind, entry.intent.force) if entry.intent else ("", False)
    starts = [action for action in actions if isinstance(action, Start | StartAgain)]
    given_up = [action for action in actions if isinstance(action, GiveUp)]
    assert kind != IntentKind.UNKNOWN or not starts, f"{starts} by an intent of unknown kind"
    assert forced or not given_up, f"{given_up} without force"


# -- the register table ------------------------------------------------------------------------------------------------

GOOD = "good"
HOME = partition_of(GOOD, PARTITIONS)


def some_records(rng: Random) -> list[MemoryRecord]:
    """Random records of other jobs, mixed with the records of a good job."""
    records = [MemoryRecord("e", HOME, n, b"good/" + name, value) for n, (name, value) in enumerate(ADMITTED.items())]
    for n in range(rng.randrange(1, 6)):
        key, value = a_record(rng)
        if key.startswith(b"good/"):
            continue
        home = partition_of(key.partition(b"/")[0].decode("ascii", "replace"), PARTITIONS)
        partition = home if rng.random() < 0.9 else 1 - home
        record = MemoryRecord("e", partition, n, None if rng.random() < 0.02 else key, value)
        records.insert(rng.randrange(len(records) + 1), record)
    return records


@target("table", some_records)
def check_table(records: list[MemoryRecord]) -> bool:
    """The register table accepts the same records as `judge`, and holds exactly the registers of the good job."""
    table = RegisterTable(PARTITIONS)
    _, foreign = table.apply(records)
    others = {id(f.record) for f in foreign}
    for record in records:
        key = record.key()
        judged = judge(record, PARTITIONS) is not None
        assert (key or b"").startswith(b"~") or judged == (id(record) in others)
        if judged:
            reject_of(record, "why")
    assert {name: value for name, (value, _) in table.registers(GOOD.encode(), HOME).items()} == ADMITTED
    assert not table.registers(GOOD.encode(), 1 - HOME)
    return not foreign


# -- ledger.recovery ---------------------------------------------------------------------------------------------------

CLAIM = avro.encode(LeaderClaimed("projector", 7, "x"))
PROGRESS = avro.encode(Progress(0, 9, 7))
ENTRIES = OF_KIND[RecoveryEntry]
GOOD_ENTRY = avro.encode(RecoveryEntry(GOOD, "n", "d", "memory", "RUNNING", DIGEST))  # type: ignore[arg-type]


def some_entries(rng: Random) -> list[MemoryRecord]:
    def epoch() -> tuple[tuple[str, bytes], ...]:
        return (("ledger_epoch", b"7" if rng.random() < 0.7 else rng.choice(NUMBERS)),) if rng.random() < 0.95 else ()

    records = [
        MemoryRecord("r", 0, 0, b"~claim/projector/7", CLAIM, epoch()),
        MemoryRecord("r", 0, 1, GOOD.encode(), GOOD_ENTRY, (("ledger_epoch", b"7"),)),
    ]
    for n in range(2, rng.randrange(3, 7)):
        key, value = rng.choice(((b"orders-1", rng.choice(ENTRIES)), (b"~progress", PROGRESS), (b"orders-1", None)))
        if rng.random() < 0.5 and value is not None:
            value = _spoiled_body(rng, value)
        key = spoiled(rng, key) if rng.random() < 0.1 else key
        if key != GOOD.encode() and not key.startswith(b"~claim"):
            records.append(MemoryRecord("r", 0, n, key, value, epoch()))
    return records


@target("entries", some_entries)
def check_entries(records: list[MemoryRecord]) -> bool:
    published = Published(avro.decode)
    for record in records:
        published.apply(record)
    assert published.entries[GOOD].digest == DIGEST
    for job_id, entry in published.entries.items():
        assert entry.job_id == job_id
        for alive in (None, frozenset[int](), frozenset({1, entry.attempt})):
            decide(entry, RunnerReport(alive))
        row = rendering.entry_row(entry)
        assert all(column.of(rendering._for_people(row)) is not None for column in rendering.JOBS)
        published.as_of(job_id, 0)
    return len(published.entries) > 1
