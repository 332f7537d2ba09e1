"""The targets of fuzzing. Each draws an input and checks a reader on it. More are in `record` and `outside`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ledger.adapters import avro, cloudevents
from ledger.adapters.avro import KINDS, Undecodable
from ledger.core.model.published import epoch_of
from ledger.core.model.registers import (
    NUMBER_MAX,
    claim_key,
    is_job_id,
    key_of,
    parse_claim,
    parse_key,
    parse_register,
    register_name,
)
from ledger.reader.rejects import decode as decode_reject
from ledger.util import times
from tests.fuzz.spoil import TEXTS, spoiled, spoiled_plain
from tests.schemas.examples import FULL

TARGETS: dict[str, Target] = {}
GOLDEN = Path(__file__).parents[1] / "schemas" / "golden"


@dataclass(frozen=True)
class Target:
    """draw: returns a random input. check: raises if the reader misbehaves; returns True if it accepted the input."""

    draw: Callable[[Random], Any]
    check: Callable[[Any], bool]


def target(name: str, draw: Callable[[Random], Any]) -> Callable[[Callable[[Any], bool]], Callable[[Any], bool]]:
    def register(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
        TARGETS[name] = Target(draw, check)
        return check

    return register


# -- keys --------------------------------------------------------------------------------------------------------------

IDS = [b"job-1", b"a", b"...", b"x" * 128, b"0190a1b2-0000-7000-8000-000000000001", b"A.b_c-9"]
NUMBERS = [b"1", b"7", b"10", b"9007199254740992", b"9223372036854775807", b"0"]
WORDS = [b"agent-1", b"reconciler-7", b"u", b"x" * 64, b"0190a1b2-0000-7000-8000-000000000001"]
DIGEST = b"0123456789abcdef" * 4
FORMS: list[list[bytes | list[bytes]]] = [
    [b"spec", DIGEST], [b"admitted"], [b"intent", NUMBERS, WORDS], [b"attempt", NUMBERS, NUMBERS], [b"running", NUMBERS],
    [b"checkpoint", NUMBERS, NUMBERS], [b"ended", NUMBERS, [b"lost", b"failed-permanent", b"finished", b"canceled"], WORDS],
    [b"ask", WORDS], [b"disposed", NUMBERS, NUMBERS, WORDS], [b"result", [b"FINISHED", b"CANCELED", b"FAILED"]],
]  # fmt: skip


def a_key(rng: Random) -> bytes:
    form = rng.choice(FORMS)
    parts = [rng.choice(IDS), *(part if isinstance(part, bytes) else rng.choice(part) for part in form)]
    if rng.random() < 0.1:
        parts = [b"~claim", rng.choice((b"projector", b"reconciler")), rng.choice(NUMBERS)]
    key = b"/".join(parts)
    return key if rng.random() < 0.2 else spoiled(rng, key, NUMBERS)


@target("keys", a_key)
def check_key(key: bytes) -> bool:
    """Parsing and printing a key gives the same key, so no two spellings name one register."""
    name = key.partition(b"/")[2]
    register = parse_register(name)
    assert register is None or register_name(register).encode() == name
    if register is not None:
        assert parse_register(name.decode()) == register
    claim = parse_claim(key)
    assert claim is None or (claim_key(*claim).encode() == key and 0 < claim[1] <= NUMBER_MAX)
    parsed = parse_key(key)
    assert parsed is None or (key_of(*parsed).encode() == key and is_job_id(parsed[0]))
    assert parsed is None or claim is None
    return parsed is not None or claim is not None


# -- values ------------------------------------------------------------------------------------------------------------

VALUES = [avro.encode(fact) for fact in FULL] + [path.read_bytes() for path in sorted(GOLDEN.glob("*.bin"))]


def kind_of(value: bytes) -> type:
    return avro._readers()[value[: avro.HEADER_BYTES]].kind


def a_value(rng: Random) -> tuple[type, bytes]:
    value = rng.choice(VALUES)
    header, kind = value[: avro.HEADER_BYTES], kind_of(value)
    if rng.random() < 0.1:
        return rng.choice(KINDS), spoiled(rng, value, VALUES)
    return kind, header + spoiled(rng, value[avro.HEADER_BYTES :], VALUES)


@target("values", a_value)
def check_value(drawn: tuple[type, bytes]) -> bool:
    """For every version of every schema, decoding gives a fact or raises Undecodable. A fact survives encoding and
    decoding."""
    kind, value = drawn
    try:
        fact = avro.decode(kind, value)
    except Undecodable:
        return False
    assert type(fact) is kind
    again = avro.encode(fact)
    assert avro.decode(kind, again) == fact
    return True


# -- headers -----------------------------------------------------------------------------------------------------------

NAMES = ("ce_id", "ce_source", "ce_type", "ce_time", "ce_subject", "ce_sequence", "ledger_actor", "ledger_epoch", "", "x")
TEXTS_OF_HEADERS = (*NUMBERS, *WORDS, *(
    b"2025-01-31T12:00:00.25Z", b"0001-01-01T00:00:00+23:59", b"9999-12-31T23:59:59-23:59", b"2025-01-31t12:00:00z"
))  # fmt: skip


def some_headers(rng: Random) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = [(rng.choice(NAMES), rng.choice(TEXTS_OF_HEADERS)) for _ in range(rng.randrange(6))]
    if pairs and rng.random() < 0.8:
        at = rng.randrange(len(pairs))
        odd = rng.choice(TEXTS).encode("utf-8", "replace")
        pairs[at] = (pairs[at][0], rng.choice((None, spoiled(rng, pairs[at][1]), odd)))
    return pairs


@target("headers", some_headers)
def check_headers(pairs: list[tuple[str, Any]]) -> bool:
    said = cloudevents.parse(pairs)
    assert said.sequence is None or 0 < said.sequence <= NUMBER_MAX
    assert said.epoch is None or 0 < said.epoch <= NUMBER_MAX
    assert all(isinstance(text, str) for text in (said.id, said.source, said.type, said.subject, said.actor))
    assert 0 <= epoch_of(pairs) <= NUMBER_MAX
    firsts = {name for name, _ in pairs}
    if "ledger_epoch" in firsts:
        assert epoch_of(pairs) == (said.epoch or 0), "both readers of epochs must agree"
    if said.time_s is not None and 0 <= said.time_s < 2e11:
        assert times.parse_rfc3339(times.rfc3339(said.time_s)) == said.time_s
    return said.time_s is not None or said.sequence is not None


# -- rejects -----------------------------------------------------------------------------------------------------------

REJECT = {
    "topic": "ledger.events", "partition": 1, "offset": 7, "time_ms": 1, "key": "eA==", "value_head": None, "sha256": "",
    "size": 0, "reason": "why", "headers": [["ce_id", "eA=="]],
}  # fmt: skip


def a_reject(rng: Random) -> bytes:
    text = json.dumps(spoiled_plain(rng, REJECT)).encode()
    return spoiled(rng, text) if rng.random() < 0.3 else text


@target("rejects", a_reject)
def check_reject(value: bytes) -> bool:
    try:
        decode_reject(value)
    except ValueError:
        return False
    return True
