"""Bad input: records on the ledger's topics that can't be used, and the checks of their rejects (I17)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from ledger.adapters.cloudevents import EPOCH
from ledger.core.model.facts import IntentDeclared, IntentKind
from ledger.core.model.registers import Result, Spec, parse_key, partition_of
from ledger.ports import Event
from ledger.reader import rejects
from tests.simulation import codec
from tests.simulation.copies import MAGIC, Copied, Delivery

Findings = list[str]
#: (partition, key, value) of a record on ledger.events -> prefixes of the reasons to reject it.
Bad = Mapping[tuple[int, bytes | None, bytes | None], Sequence[str]]

KEY, REGISTER, OWN = "the key does not begin with a job id", "the key names no register", "keys that begin with ~"
FRAMING, CONFLUENT = "the value is not in Avro single-object encoding", "Confluent framing"
FACT = "the value is not the fact that its register holds"
SPEC = ("the spec does not decode", "another spec is admitted under this job id", FACT)
ELSEWHERE = "registers of this job belong in partition"
HEADERS = (
    (), ((EPOCH, b"9999999999999999999"),), ((EPOCH, b"\xc2\xb2"),), ((EPOCH, b""), ("ce_time", b"yesterday")),
    (("ce_sequence", b"-1"), ("ce_id", b"\xff"), ("ce_type", b"io.jobledger.Nothing.v9")), (("", b""),) * 70,
)  # fmt: skip


class BadInput:
    """Makes bad records. Each has its own key, so that log compaction removes none of them."""

    def __init__(self, rng: random.Random, partitions: int) -> None:
        self.rng, self._partitions, self._made = rng, partitions, 0
        self.bad: dict[tuple[int, bytes | None, bytes | None], Sequence[str]] = {}
        self.beside: set[tuple[bytes, bytes | None]] = set()  # records on ledger.rejects that no leader wrote

    def draw(self, jobs: Sequence[str], ends: Mapping[tuple[str, int], int], sent: Sequence[Event]) -> tuple[str, Event]:
        """(kind of the record, bad record). jobs: ids of existing jobs. ends: partitions' ends. sent: good records."""
        self._made += 1
        kinds = [self._key, self._framing, self._fact, self._spec, self._elsewhere, self._recovery, self._rejects]
        make = self.rng.choice(kinds)
        event = make(self.rng.choice([*jobs, f"nobody-{self._made}"]), ends)
        if sent and self.rng.random() < 0.1:  # a copy of a good record, with useless headers
            return "bad headers", replace(self.rng.choice(sent), headers=self.rng.choice(HEADERS))
        return f"bad {make.__name__.strip('_')}", replace(event, headers=self.rng.choice(HEADERS))

    def note(self, kind: str, event: Event) -> None:
        """Remembers that the event is in the log."""
        if event.topic == "ledger.rejects":
            self.beside.add((event.key, event.value))
        elif event.topic == "ledger.events" and kind != "bad headers":
            self.bad[event.partition, event.key, event.value] = self._reasons

    def _key(self, job_id: str, _: object) -> Event:
        key, reason = self.rng.choice([
            (b"\xff\x00/%d", KEY), (b"../%d", KEY), (b"%d {}", KEY), (job_id.encode() + b"/nothing/%d", REGISTER),
            (job_id.encode() + b"/intent/0/bad-%d", REGISTER), (b"~mine/%d", OWN),
        ])  # fmt: skip
        head = job_id if key.startswith(job_id.encode()) else ""
        partition = partition_of(head, self._partitions) if head else self.rng.randrange(self._partitions)
        return self._event(partition, key % self._made, self.rng.choice([b"", b"?", MAGIC + b"?"]), reason)

    def _framing(self, job_id: str, _: object) -> Event:
        value, reason = self.rng.choice([(b"", FRAMING), (b'{"kind": "CANCEL"}', FRAMING), (b"\0\0\0\0\7?", CONFLUENT)])
        return self._of(job_id, b"intent/%d/bad" % (1_000 + self._made), value, reason)

    def _fact(self, job_id: str, _: object) -> Event:
        """A value with the framing of a fact that does not decode."""
        names = (b"intent/%d/bad", b"running/%d", b"checkpoint/9/%d", b"ask/bad-%d", b"disposed/9/%d/bad")
        name = self.rng.choice(names) % (1_000 + self._made)
        return self._of(job_id, name, MAGIC + self.rng.randbytes(self.rng.choice([0, 7, 8, 30])), FACT)

    def _spec(self, job_id: str, _: object) -> Event:
        digest = sha256(b"%d" % self._made).hexdigest()
        return self._of(job_id, f"spec/{digest}".encode(), MAGIC + self.rng.randbytes(20), *SPEC)

    def _elsewhere(self, job_id: str, _: object) -> Event:
        """A readable cancel, in the wrong partition."""
        key = f"{job_id}/intent/{1_000 + self._made}/bad".encode()
        partition = (partition_of(job_id, self._partitions) + 1) % self._partitions
        return self._event(partition, key, codec.encode(IntentDeclared(IntentKind.CANCEL, 1_000)), ELSEWHERE)

    def _recovery(self, job_id: str, _: object) -> Event:
        """A record on ledger.recovery, with the key of an entry or a meaningless key. No leader has claimed its epoch."""
        key = self.rng.choice([job_id.encode(), b"\xff%d" % self._made, b"~progress", job_id.encode() + b"/intent/1/bad"])
        value = self.rng.choice([None, b"", b"?", MAGIC + b"?"])
        return Event("ledger.recovery", self.rng.randrange(self._partitions), key, value)

    def _rejects(self, _: str, ends: Mapping[tuple[str, int], int]) -> Event:
        """A record on ledger.rejects, perhaps with the key of the next reject."""
        (topic, partition), end = self.rng.choice([one for one in sorted(ends.items()) if one[0][0] == "ledger.events"])
        key = self.rng.choice([f"{topic}/{partition}/{end}".encode(), b"\xff%d" % self._made])
        return Event("ledger.rejects", 0, key, self.rng.choice([b"", b"?", b"[]", b'{"topic": 1}']))

    def _of(self, job_id: str, name: bytes, value: bytes, *reasons: str) -> Event:
        return self._event(partition_of(job_id, self._partitions), job_id.encode() + b"/" + name, value, *reasons)

    def _event(self, partition: int, key: bytes, value: bytes, *reasons: str) -> Event:
        self._reasons = reasons
        return Event("ledger.events", partition, key, value)


def at_home(records: Iterable[Copied], partitions: int) -> list[Copied]:
    """The records without those in a partition that is not their job's. They have no effect."""
    out = []
    for record in records:
        parsed = parse_key(record.key)
        if parsed is None or partition_of(parsed[0], partitions) == record.partition:
            out.append(record)
    return out


# -- I17: rejects ------------------------------------------------------------------------------------------------------


def rejects_true(
    events: Sequence[Copied], rejected: Sequence[Copied], bad: Bad, beside: Iterable[tuple[bytes, bytes | None]]
) -> Findings:
    """I17: a reject names the place of a bad record and gives its right key, value and reason. It is the same each time
    that it is written. beside: records that others put on the topic."""
    found: Findings = []
    at = {(r.partition, r.offset): r for r in events}
    others = set(beside)
    said: dict[tuple[bytes | None, str], bytes | None] = {}
    for record in rejected:
        if record.value is None or (record.key, record.value) in others:
            continue
        told = rejects.decode(record.value)
        about = at.get((told.partition, told.offset))
        reasons = bad.get((about.partition, about.key, about.value), ()) if about else ()
        if about is None or not any(told.reason.startswith(reason) for reason in reasons):
            found.append(f"I17 {record.key!r} was rejected: {told.reason}; expected: {list(reasons)}")
            continue
        value = about.value or b""
        true = (about.key, value, sha256(value).hexdigest(), len(value), f"{about.topic}/{about.partition}/{about.offset}")
        if (told.key, told.value_head, told.sha256, told.size, (record.key or b"").decode()) != true:
            found.append(f"I17 the reject {record.key!r} does not match the record")
        if said.setdefault((record.key, told.reason), record.value) != record.value:
            found.append(f"I17 {record.key!r} was rejected again with another value")
    return found


def rejected_once(told: Sequence[Delivery]) -> Findings:
    """I17: a leader rejects a record once in a term for each reason."""
    found: Findings = []
    in_term: dict[str, set[tuple[bytes, bytes | None]]] = defaultdict(set)
    claims: dict[str, bytes] = {}
    for one in told:
        if one.kind != "ok":
            continue
        if one.key.startswith(b"~claim/projector/") and claims.get(one.who) != one.key:
            claims[one.who] = one.key
            in_term[one.who].clear()
        elif one.topic == "ledger.rejects" and one.value is not None:
            if (one.key, one.value) in in_term[one.who]:
                found.append(f"I17 {one.who} rejected {one.key!r} twice in one term")
            in_term[one.who].add((one.key, one.value))
    return found


def rejects_complete(events: Sequence[Copied], rejected: Sequence[Copied], bad: Bad) -> Findings:
    """I17, when all is quiet: every bad record was rejected, with two exceptions. A fact that does not decode is rejected
    only when a leader reads it, which happens if something depends on it; specs are always read. A spec of a job that is
    over needs no reject: the sender sees the job's result. If several records have one key, only the last is checked,
    because log compaction may have removed the others before they were read."""
    over = {of[0] for r in events if (of := parse_key(r.key)) is not None and isinstance(of[1], Result)}
    must = {where for where, reasons in bad.items() if reasons != (FACT,)}
    last = {(r.partition, r.key): r for r in events if (r.partition, r.key, r.value) in must}
    there = {r.key for r in rejected if r.value is not None}
    found: Findings = []
    for r in last.values():
        of = parse_key(r.key)
        heard = of is not None and isinstance(of[1], Spec) and of[0] in over
        place = f"{r.topic}/{r.partition}/{r.offset}"
        found += [] if heard or place.encode() in there else [f"I17 {place} was never rejected"]
    return found
