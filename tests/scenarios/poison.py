"""Poison, which must harm only its own job: unusable events, specs, graphs, checkpoints, runners and plug-ins.

Each poison is one line of a table: a function that puts it into the ledger, and the words that the ledger must report.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Producer

from ledger.adapters import avro
from ledger.adapters.runners.subprocess.graph import pack
from ledger.app.ledger import Ledger
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptStarted,
    Fact,
    FailureRule,
    GraphRef,
    IntentDeclared,
    IntentKind,
    JobSubmitted,
    RestartKind,
    RestartPolicy,
)  # fmt: skip
from ledger.core.model.registers import (
    NUMBER_MAX,
    Attempt,
    Ended,
    Intent,
    Register,
    Running,
    Spec,
    key_of,
    partition_of,
)
from ledger.producer.outside import NO_GRAPH
from tests.foreign import value_of
from tests.support.folder import Folder

PARTITIONS = 4
PYTHON = (sys.executable, "-I", "-S", "-c")
ONCE = RestartPolicy(RestartKind.NONE)
TWICE = RestartPolicy(RestartKind.FIXED_DELAY, attempts_max=1, delay_s=0.2)
MEMORY_BYTES = 256 << 20

SEGFAULTS = "import ctypes; ctypes.string_at(0)"
EATS_MEMORY = "held = []\nwhile True: held.append(bytearray(16 << 20))"
#: A program that makes a checkpoint, waits for the test's signal, corrupts the checkpoint, and fails. {restores}: its code
#: for a restore.
SPOILS = """
import ctypes, os, sys, time
chk = os.environ["LEDGER_CHECKPOINT_DIR"] + "/chk-1"
if "LEDGER_RESTORE_FROM" in os.environ:
    {restores}
    sys.exit(9)
open(chk + ".part", "w").write({content!r})
os.rename(chk + ".part", chk)
while not os.path.exists({go!r}):
    time.sleep(0.2)
{spoils}
sys.exit(1)
"""


class Hand:
    """Puts things into a ledger as a foreign producer could, without any checks. go: a file; once it exists, the programs
    corrupt their checkpoints."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.go = folder, folder.path.parent / "go"
        self._blobs = Ledger.open(folder.config).blobs
        self._producer = Producer({"bootstrap.servers": folder.config.bootstrap})

    def event(self, job_id: str, register: Register, fact: Fact) -> None:
        self.record(key_of(job_id, register).encode(), avro.encode(fact), partition_of(job_id, PARTITIONS))

    def record(self, key: bytes, value: bytes, partition: int) -> None:
        self._producer.produce("ledger.events", value, key, partition)

    def graph(self, job_id: str, *command: str, memory_bytes: int | None = None) -> GraphRef:
        blob = pack(command, memory_bytes=memory_bytes)
        try:
            return self._blobs.put(job_id, blob)
        finally:
            blob.unlink()

    def blob(self, job_id: str, path: Path) -> GraphRef:
        return self._blobs.put(job_id, path)

    def spec(self, job_id: str, graph: GraphRef, policy: RestartPolicy = ONCE, runner: str = "subprocess") -> None:
        self.submit(JobSubmitted(job_id, "default", runner, graph, policy))

    def submit(self, spec: JobSubmitted) -> None:
        """Submits a spec. The job's id is the spec's name."""
        self.event(spec.name, Spec(avro.spec_digest(spec)), spec)

    def job(self, job_id: str, *command: str) -> None:
        """Submits a good job."""
        self.spec(job_id, self.graph(job_id, *command), RestartPolicy())

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def close(self) -> None:
        """Closes the producer. Call it before the broker stops: a remaining producer would log errors for ever."""
        self.flush()
        del self._producer


@dataclass(frozen=True)
class Poison:
    """One poison. put: puts it into the ledger, given the job's id. words: expected in the reason of the quarantine. If
    `rejected`, they are expected in the reason of the reject instead; if `waits`, in the reason why the job waits for its
    runner."""

    name: str
    put: Callable[[Hand, str], None]
    words: str
    rejected: bool = False
    checkpoint: bool = False
    waits: bool = False


# -- events ------------------------------------------------------------------------------------------------------------


def _garbage(hand: Hand, name: str) -> None:
    for partition in range(PARTITIONS):
        hand.record(f"\x00{name}".encode(), b"\xff" * 100, partition)


def _endless_text(hand: Hand, name: str) -> None:
    """A spec that claims a name of 2^61 bytes."""
    head = avro.encode(JobSubmitted(name, "default", "subprocess", NO_GRAPH))[: avro.HEADER_BYTES]
    value = head + b"\xfe" + b"\xff" * 7 + b"\x3f"
    hand.record(key_of(name, Spec("0" * 64)).encode(), value, partition_of(name, PARTITIONS))


def _endless_list(hand: Hand, name: str) -> None:
    """An attempt record that claims 2^40 refused restore points. The job itself must not be started."""
    head = avro.encode(AttemptStarted("d"))[: avro.HEADER_BYTES]
    value = head + b"\x00\x00" + b"\x80" * 5 + b"\x40"
    hand.record(key_of(name, Attempt(1, 1)).encode(), value, partition_of(name, PARTITIONS))
    hand.record(key_of(name, Running(1)).encode(), value, partition_of(name, PARTITIONS))
    hand.event(name, Ended(1, "failed-permanent", "agent-x"), AttemptEnded("poison among its events"))
    hand.job(name, "true")


def _last_number(hand: Hand, name: str) -> None:
    hand.event(name, Ended(NUMBER_MAX, "failed", "agent-x"), AttemptEnded("the last of all attempts"))
    hand.job(name, "true")


def _unknown_intent(hand: Hand, name: str) -> None:
    hand.event(name, Intent(1, "u"), IntentDeclared(IntentKind.UNKNOWN))
    hand.job(name, "true")


# -- specs -------------------------------------------------------------------------------------------------------------


def _policy(**fields: object) -> Callable[[Hand, str], None]:
    policy = replace(RestartPolicy(), **fields)  # type: ignore[arg-type]
    return lambda hand, name: hand.spec(name, hand.graph(name, "true"), policy)


def _endless_pattern(hand: Hand, name: str) -> None:
    """A job with a failure rule whose evaluation would practically never end."""
    policy = replace(ONCE, failure_rules=(FailureRule("slow", None, "(a+)+$", False),))
    hand.spec(name, hand.graph(name, *PYTHON, "raise SystemExit('a' * 80 + '!')"), policy)


def _huge(hand: Hand, name: str) -> None:
    hand.submit(JobSubmitted(name, "default", "subprocess", NO_GRAPH, labels={"x": "y" * 600_000}))


def _elsewhere(hand: Hand, name: str) -> None:
    hand.spec(name, GraphRef("../../../../../../etc/passwd", "0" * 64, 1))


# -- graphs ------------------------------------------------------------------------------------------------------------


def _program(text: str, policy: RestartPolicy = TWICE) -> Callable[[Hand, str], None]:
    return lambda hand, name: hand.spec(name, hand.graph(name, *PYTHON, text, memory_bytes=MEMORY_BYTES), policy)


def _rubbish(hand: Hand, name: str) -> None:
    path = hand.folder.path.parent / name
    path.write_bytes(b"this is no archive" * 1000)
    hand.spec(name, hand.blob(name, path))


def _member(member: tarfile.TarInfo) -> Callable[[Hand, str], None]:
    def put(hand: Hand, name: str) -> None:
        path = hand.folder.path.parent / name
        path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
        hand.spec(name, hand.blob(name, path))

    return put


def _escaping() -> tarfile.TarInfo:
    return tarfile.TarInfo("../../escaped")


def _vast() -> tarfile.TarInfo:
    member = tarfile.TarInfo("vast")
    member.size = 1 << 60
    return member


# -- checkpoints -------------------------------------------------------------------------------------------------------


def _checkpoint(spoils: str = "", restores: str = "pass", content: str = "12345") -> Callable[[Hand, str], None]:
    def put(hand: Hand, name: str) -> None:
        program = SPOILS.format(spoils=spoils, restores=restores, content=content, go=str(hand.go))
        graph = hand.graph(name, *PYTHON, program, memory_bytes=MEMORY_BYTES)
        hand.spec(name, graph, replace(TWICE, attempts_max=2))

    return put


def _eats() -> str:
    return EATS_MEMORY.replace("\n", "\n    ")


# -- runners -----------------------------------------------------------------------------------------------------------


def _runner(runner: str) -> Callable[[Hand, str], None]:
    return lambda hand, name: hand.spec(name, hand.graph(name, "true"), runner=runner)


# -- plug-ins ----------------------------------------------------------------------------------------------------------


def _plugin(name: str, call: str, deed: str, words: str) -> Poison:
    """A job with a foreign runner plug-in. A plug-in that can't report its attempts counts as silent, and silence is no
    verdict. A start that breaks the plug-in is a failed start."""
    return Poison(f"plugin-{name}", _runner(f"foreign-{call}-{deed}"), words, waits=call in ("import", "observe"))


PLUGINS = (
    _plugin("import", "import", "leaves", "can't be loaded: SystemExit: 7"),
    _plugin("hangs", "observe", "hangs", "the foreign-observe-hangs runner does not answer"),
    _plugin("lies", "observe", "nonsense", "the foreign-observe-nonsense runner does not answer"),
    _plugin("segfault", "start", "segfault", "its process died by SIGSEGV"),
    _plugin("memory", "start", "memory", "MemoryError"),
    _plugin("exits", "start", "exits", "its process ended with exit code 7"),
    _plugin("raises", "start", "raises", "ValueError: no such"),
    _plugin("nonsense", "start", "nonsense", "is not a valid StartAnswer"),
)
#: The entry points of all plug-ins: name -> value.
FOREIGN = {
    f"foreign-{call}-{deed}": value_of(call, deed)
    for call, deeds in {
        "import": ("leaves",), "observe": ("hangs", "nonsense"),
        "start": ("segfault", "memory", "exits", "raises", "nonsense"),
    }.items()
    for deed in deeds
}  # fmt: skip

POISONS = (
    Poison("event-garbage", _garbage, "", rejected=True),
    Poison("event-endless-text", _endless_text, "", rejected=True),
    Poison("event-endless-list", _endless_list, "poison among its events"),
    Poison("event-last-number", _last_number, "has the highest number that there is"),
    Poison("event-unknown-intent", _unknown_intent, "intent is of a kind that this version does not know"),
    Poison("spec-negative", _policy(delay_s=-1.0), "restart_policy.delay_s is -1"),
    Poison("spec-unknown", _policy(kind=RestartKind.UNKNOWN), "policy is of a kind that this version does not know"),
    Poison("spec-pattern", _endless_pattern, "its failure rules can't be judged"),
    Poison("spec-elsewhere", _elsewhere, "Not a graph of this store"),
    Poison("spec-huge", _huge, "bytes", rejected=True),
    Poison("graph-segfault", _program(SEGFAULTS), "killed by SIGSEGV"),
    Poison("graph-memory", _program(EATS_MEMORY), "MemoryError"),
    Poison("graph-rubbish", _rubbish, "the job graph can't be read"),
    Poison("graph-escape", _member(_escaping()), "leads out of the folder"),
    Poison("graph-vast", _member(_vast()), "the job graph can't be read"),
    Poison("checkpoint-gone", _checkpoint("os.remove(chk)"), "no restore point verifies", checkpoint=True),
    Poison("checkpoint-cut", _checkpoint("open(chk, 'w').write('1')"), "no restore point verifies", checkpoint=True),
    Poison("checkpoint-pipe", _checkpoint("os.remove(chk); os.mkfifo(chk)", content=""), "no restore point verifies",
           checkpoint=True),
    Poison("checkpoint-segfault", _checkpoint(restores="ctypes.string_at(0)"), "killed by SIGSEGV", checkpoint=True),
    Poison("checkpoint-memory", _checkpoint(restores=_eats()), "MemoryError", checkpoint=True),
    Poison("runner-missing", _runner("nowhere"), "there is no runner"),
    Poison("runner-nameless", _runner(""), "there is no runner"),
    Poison("runner-path", _runner("../../subprocess"), "there is no runner"),
    Poison("runner-control", _runner("\x1b[2J\x00"), "there is no runner"),
    Poison("runner-long", _runner("r" * 100_000), "there is no runner"),
    *PLUGINS,
)  # fmt: skip
