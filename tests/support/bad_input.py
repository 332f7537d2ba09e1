"""Faulty records: a description of each, and the reaction that the ledger must have.

Most records have a job of their own. Some have the key of a good job, which they must not harm. A projector in memory
reads each record alone and all at once (`tests/roles/test_bad_input.py`), and all of them on a broker
(`tests/adapters/test_bad_input_on_kafka.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256

from ledger.adapters import avro
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    Fact,
    GraphRef,
    IntentDeclared,
    IntentKind,
    JobAdmitted,
    JobResult,
    JobSubmitted,
    RestartKind,
    RestartPolicy,
    SavepointAsked,
)  # fmt: skip
from ledger.core.model.registers import (
    CHECKPOINT_ID_MAX,
    NUMBER_MAX,
    Admitted,
    Ask,
    Attempt,
    Checkpoint,
    Ended,
    Intent,
    Outcome,
    Register,
    Result,
    Running,
    Spec,
    key_of,
    partition_of,
    register_name,
)  # fmt: skip
from ledger.ports import Event
from ledger.util.times import rfc3339

SPEC = JobSubmitted(
    "name", "default", "memory", GraphRef("graphs/x", "0" * 64, 1), RestartPolicy(RestartKind.FIXED_DELAY, 3, 1.0)
)
DIGEST = avro.spec_digest(SPEC)
GOOD = tuple(f"good-{n}" for n in range(8))
TARGET = GOOD[0]  # the job in the keys of faulty records without a job of their own
YEAR_S = 365 * 86_400.0


class Fate(Enum):
    REJECTED = "it is rejected"
    HARMLESS = "it is folded, or ignored"


@dataclass(frozen=True)
class Bad:
    """A faulty record. key, value: as a producer would send them. job: the record's own job, "" = none; a valid spec of
    the job is sent first. state: the state of that job afterwards, "" = no entry. elsewhere: the record goes to the wrong
    partition. alone: no spec is sent before it."""

    what: str
    key: bytes | None
    value: bytes | None
    fate: Fate = Fate.REJECTED
    headers: tuple[tuple[str, bytes], ...] = ()
    job: str = ""
    state: str = "CREATED"
    elsewhere: bool = False
    alone: bool = False

    def partition(self, partitions: int) -> int:
        home = partition_of((self.key or b"").partition(b"/")[0].decode("ascii", "replace"), partitions)
        return (home + self.elsewhere) % partitions

    def event(self, topic: str, partitions: int) -> Event:
        return Event(topic, self.partition(partitions), self.key or b"", self.value, self.headers)


def everything() -> list[Bad]:
    found = [*_keys(), *_values(), *_numbers(), *_orders(), *_clocks()]
    assert len({bad.what for bad in found}) == len(found)
    return found


def good_records() -> Iterator[tuple[str, Register, Fact]]:
    """The records of good jobs that run, each with a checkpoint."""
    for job_id in GOOD:
        yield job_id, Spec(DIGEST), SPEC
        yield job_id, Attempt(1, 1), AttemptStarted(DIGEST)
        yield job_id, Running(1), AttemptRunning("4711")
        yield job_id, Checkpoint(1, 1), CheckpointCompleted("/c/chk-1")


def number(n: int) -> bytes:
    """A long as Avro encodes it."""
    n, out = (n << 1) ^ (n >> 63), bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


# -- keys --------------------------------------------------------------------------------------------------------------

RUNNING = avro.encode(AttemptRunning("x"))


def _keys() -> Iterator[Bad]:
    target = TARGET.encode()
    for what, key in {
        "no key": None, "an empty key": b"", "a slash": b"/", "slashes": b"/" * 5_000, "a NUL": b"\0",
        "a NUL behind": target + b"/running/2\0", "a NUL before": b"\0" + target + b"/running/2",
        "a NUL in the id": b"go\0od/running/2", "no UTF-8": b"\xff\xfe/running/2", "no UTF-8 behind": target + b"/\xff\xfe",
        "UTF-8 that is no ASCII": "jöb/running/2".encode(), "a long way round to /": target + b"\xc0\xaf" + b"running/2",
        "a line break": target + b"/running/2\n", "an escape": b"\x1b[2J\x1b]0;x\x07/running/2", "a space": b"a b/admitted",
        "a step up": b"../running/2", "two steps up": b"../../etc/passwd", "an id too long": b"x" * 129 + b"/admitted",
        "a key of 200 KB": target + b"/" + b"k" * 200_000, "an id alone": target, "an id and a slash": target + b"/",
        "a register twice": target + b"/running/2/running/2", "a register of no kind": target + b"/runnning/2",
        "capitals": target + b"/Running/2", "a tilde": b"~", "tildes": b"~~~", "a tilde before an id": b"~" + target,
        "a tilde and a register": b"~/running/2", "progress among the facts": b"~progress", "no claim": b"~claim",
        "a claim of nobody": b"~claim//1", "a claim of 0": b"~claim/projector/0", "a claim with a NUL": b"~claim/p\0/1",
        "a claim past all": b"~claim/projector/9007199254740993", "a claim without UTF-8": b"~claim/\xff/1",
    }.items():  # fmt: skip
        yield Bad(what, key, RUNNING)
        if key is not None:
            yield Bad(f"{what}, tombstoned", key, None)
    for name in ("running/1", f"spec/{DIGEST}", "result/FINISHED", "ended/1/finished/agent-x"):
        yield Bad(f"{name} in the wrong partition", target + b"/" + name.encode(), RUNNING, elsewhere=True)
        yield Bad(f"{name} tombstoned in the wrong partition", target + b"/" + name.encode(), None, elsewhere=True)


# -- values ------------------------------------------------------------------------------------------------------------

ENTRY_MAX = 1_000_000


def _values() -> Iterator[Bad]:
    """Unreadable values of important registers. They count as absent, so the job is in the same state as without them."""
    started = avro.encode(AttemptStarted(DIGEST))
    asked = avro.encode(SavepointAsked("why", "who"))
    header = started[: avro.HEADER_BYTES]
    bodies = {
        "nothing": b"", "a byte": b"\0", "zeros": bytes(100), "JSON": b'{"digest":"x"}', "null as text": b"null",
        "the magic alone": avro.MAGIC, "half a fingerprint": avro.MAGIC + b"\1\2\3",
        "a schema that nobody knows": avro.MAGIC + b"\x11" * 8 + b"x", "a fingerprint turned": avro.MAGIC + header[:1:-1],
        "Confluent framing": b"\0\0\0\0\7body", "Confluent framing of a GUID": b"\1" + bytes(16) + b"body",
        "an Avro file": b"Obj\1" + bytes(40), "another fact": RUNNING, "an entry": avro.MAGIC + bytes(8),
        "a fact with more behind": started + b"\0", "a fact twice": started * 2, "a fact without its end": started[:-1],
        "a fact without a body": header, "a string that never ends": header + number(1 << 40) + b"x" * 100,
        "a string of less than nothing": header + number(-1), "a string of 2^62": header + number(1 << 62),
        "a block of 2^62": started[:-4] + number(1 << 62) + b"\0" * 50,
        "a block of -2^62": started[:-4] + number(-(1 << 62)) + number(1 << 62) + b"\0" * 50,
        "a block of 2^63-1 and its size": started[:-4] + number(-(2**63) + 1) + number(2**63 - 1),
        "a number that never ends": header + b"\xff" * 1000, "text that is no UTF-8": header + number(2) + b"\xff\xfe",
        "a number that is none": avro.encode(AttemptStarted(DIGEST, failure_times=(1.0,))).replace(
            struct.pack("<d", 1.0), struct.pack("<d", float("nan"))
        ),
    }  # fmt: skip
    for what, value in bodies.items():
        job = f"value-{len(what)}-{what.translate(str.maketrans(' ^', '-p'))}"
        yield Bad(what, f"{job}/attempt/1/1".encode(), value, job=job)
    for what, value in {"nothing": b"", "another fact": started, "an ask cut short": asked[:-1]}.items():
        job = f"ask-{len(what)}"
        yield Bad(f"an ask that is {what}", f"{job}/ask/a".encode(), value, job=job)
    job = "spec-of-another"
    yield Bad("a spec under another's digest", key_of(job, Spec("0" * 64)).encode(), avro.encode(SPEC), job=job)
    job = "second-spec"
    second = replace(SPEC, name="second")
    yield Bad("a second spec", key_of(job, Spec(avro.spec_digest(second))).encode(), avro.encode(second), job=job)
    yield from _sizes()


def _sizes() -> Iterator[Bad]:
    limit, header = avro.VALUE_BYTES_MAX, RUNNING[: avro.HEADER_BYTES]
    text = number(limit - avro.HEADER_BYTES - 3) + b"x" * (limit - avro.HEADER_BYTES - 3)
    assert len(header + text) == limit
    yield Bad("a value of the limit", b"size-0/running/1", header + text, Fate.HARMLESS, job="size-0", state="RUNNING")
    yield Bad("a value above the limit", b"size-1/running/1", header + text + b"x", job="size-1")
    huge = avro.encode(replace(SPEC, labels={"a": "x" * 600_000}))
    digest = sha256(huge[avro.HEADER_BYTES :]).hexdigest()
    yield Bad("a spec that leaves no room", f"size-2/spec/{digest}".encode(), huge, job="size-2", state="", alone=True)
    intent = avro.encode(IntentDeclared(IntentKind.SUSPEND, reason="\x1b[31m\0" + "r" * (ENTRY_MAX - 100), actor="a"))
    yield Bad("a reason of a megabyte", b"size-3/intent/1/u", intent, Fate.HARMLESS, job="size-3", state="QUARANTINED")
    headers = tuple((f"h{n}", b"\xff" * 1_000) for n in range(200))
    yield Bad("200 headers", b"size 4", RUNNING, headers=headers)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _numbers() -> Iterator[Bad]:
    target = TARGET.encode()
    for n in (-1, 0, NUMBER_MAX + 1, 2**63 - 1, 2**63, 2**64, 10**30, 10**5000):
        text = b"1" + b"0" * 5000 if n > 10**1000 else str(n).encode()
        what = text[:40].decode()
        yield Bad(f"attempt {what}", target + b"/attempt/" + text + b"/1", RUNNING)
        yield Bad(f"running {what}", target + b"/running/" + text, RUNNING)
        yield Bad(f"epoch {what}", target + b"/attempt/1/" + text, RUNNING)
        yield Bad(f"end {what}", target + b"/ended/" + text + b"/finished/agent-x", RUNNING)
        if n not in (0, NUMBER_MAX + 1, 2**63 - 1):
            yield Bad(f"checkpoint id {what}", target + b"/checkpoint/1/" + text, RUNNING)
    for text in (b"+1", b"01", b"1.0", b"1e3", b"0x1", b" 1", "１".encode(), b"1_0"):
        yield Bad(f"attempt {text!r}", target + b"/attempt/" + text + b"/1", RUNNING)
    top: dict[str, tuple[Register, Fact, str]] = {
        "running": (Running(NUMBER_MAX), AttemptRunning("x"), "RUNNING"),
        "attempt": (Attempt(NUMBER_MAX, NUMBER_MAX), AttemptStarted(DIGEST), "RUNNING"),
        "end": (Ended(NUMBER_MAX, Outcome.FAILED, "agent-x"), AttemptEnded("x", 2**63 - 1, 1e308), "QUARANTINED"),
    }
    for what, (register, fact, state) in top.items():
        job = f"top-{what}"
        key = key_of(job, register).encode()
        yield Bad(f"{what} of attempt 2^53", key, avro.encode(fact), Fate.HARMLESS, job=job, state=state)
    counts = AttemptStarted(DIGEST, failures=2**63 - 1, failure_times=(1e308, -1e308), recorded_at=-1e308)
    yield Bad("counters at their ends", b"counts/attempt/1/1", avro.encode(counts), Fate.HARMLESS, (), "counts", "RUNNING")
    bad_policies = replace(SPEC, restart_policy=RestartPolicy(delay_s=1e308, attempts_max=-1), slots=-(2**63))
    digest = avro.spec_digest(bad_policies)
    yield Bad("numbers that are no policy", f"policy/spec/{digest}".encode(), avro.encode(bad_policies), Fate.HARMLESS,
              job="policy", state="QUARANTINED", alone=True)  # fmt: skip


# -- missing predecessors ----------------------------------------------------------------------------------------------


def _orders() -> Iterator[Bad]:
    """Facts that refer to attempts, specs or jobs that were never recorded."""

    def fact(what: str, job: str, register: Register, value: Fact, state: str, spec: bool = True) -> Bad:
        key = f"{job}/{register_name(register)}".encode()
        return Bad(what, key, avro.encode(value), Fate.HARMLESS, job=job, state=state, alone=not spec)

    point = CheckpointCompleted("/somewhere\0\x1b[2J", 2**63 - 1, "\0", None)
    yield fact("a checkpoint of attempt 7 of which nobody knows", "order-1", Checkpoint(7, 3), point, "CREATED")
    yield fact("a checkpoint at the end of all ids", "order-2", Checkpoint(NUMBER_MAX, CHECKPOINT_ID_MAX), point, "CREATED")
    yield fact("a checkpoint of no job", "order-3", Checkpoint(1, 1), point, "", spec=False)
    result = JobResult("n", "d", "memory", "0" * 64, "r", 1e308, 2**63 - 1)
    yield fact("a result before its spec", "order-4", Result("FINISHED"), result, "", spec=False)
    yield fact("an admission of a spec that is not there", "order-5", Admitted(), JobAdmitted("0" * 64),
               "", spec=False)  # fmt: skip
    retry = IntentDeclared(IntentKind.RETRY, 2**63 - 1, "9/9", True, "\0", "\x1b[2J")
    yield fact("a retry of an attempt that never was", "order-6", Intent(NUMBER_MAX, "u"), retry, "CREATED")
    yield fact("an intent of no kind", "order-7", Intent(1, "u"), IntentDeclared(IntentKind.UNKNOWN), "QUARANTINED")
    yield fact("an ask of a job that does not run", "order-8", Ask("u"), SavepointAsked("\0" * 1000), "CREATED")
    yield fact("an end without a beginning", "order-9", Ended(5, Outcome.FINISHED, "x"), AttemptEnded("\0"), "FINISHED")


# -- headers and clocks ------------------------------------------------------------------------------------------------

NOW_S = 1_763_700_000.0


def _clocks() -> Iterator[Bad]:
    """Wrong headers. A producer writes them, so the ledger must neither trust them nor raise."""
    times = {
        "a year ago": rfc3339(NOW_S - YEAR_S), "in a year": rfc3339(NOW_S + YEAR_S),
        "the first day": "0001-01-01T00:00:00Z",
        "before it": "0001-01-01T00:00:00+23:59", "the last day": "9999-12-31T23:59:59.999999999999-23:59",
        "no day": "2025-02-30T00:00:00Z", "no offset": "2025-01-01T00:00:00+99:99", "no time": "yesterday",
        "a time of a megabyte": "1" * 300_000,
    }  # fmt: skip
    for n, (what, text) in enumerate(times.items()):
        headers = (("ce_time", text.encode()), ("ce_sequence", b"9" * 30), ("ledger_epoch", b"-1"))
        job, key = f"clock-{n}", f"clock-{n}/spec/{DIGEST}".encode()
        yield Bad(f"a spec of {what}", key, avro.encode(SPEC), Fate.HARMLESS, headers, job, alone=True)
    odd = {
        "twice": (("ce_time", b"x"), ("ce_time", b"y")), "no UTF-8": (("ce_id", b"\xff\xfe"), ("ce_time", b"\xff")),
        "empty": (("", b""), ("ce_id", b"")), "control": (("\0\x1b[2J", b"\0\x1b[2J"),),
        "epochs": (("ledger_epoch", b"9007199254740993"), ("ledger_epoch", b"1" * 4000)),
    }  # fmt: skip
    for what, pairs in odd.items():
        job = f"headers-{what.replace(' ', '-')}"
        key = f"{job}/spec/{DIGEST}".encode()
        yield Bad(f"headers: {what}", key, avro.encode(SPEC), Fate.HARMLESS, pairs, job, alone=True)
