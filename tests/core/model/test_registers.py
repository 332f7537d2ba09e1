"""The key grammar: every legal form, and illegal ones."""

from __future__ import annotations

import itertools

import pytest

from ledger.core.model.registers import (
    CHECKPOINT_ID_MAX,
    NUMBER_MAX,
    OUTCOMES,
    Admitted,
    Ask,
    Attempt,
    Checkpoint,
    Disposed,
    Ended,
    Intent,
    Result,
    Running,
    Spec,
    claim_key,
    is_job_id,
    is_writer,
    key_of,
    murmur2,
    parse_claim,
    parse_key,
    parse_register,
    partition_of,
    register_name,
)

DIGEST = "0123456789abcdef" * 4
UUID = "0190a1b2-0000-7000-8000-000000000001"
LEGAL = {
    f"spec/{DIGEST}": Spec(DIGEST),
    "admitted": Admitted(),
    f"intent/1/{UUID}": Intent(1, UUID),
    f"intent/{NUMBER_MAX}/u": Intent(NUMBER_MAX, "u"),
    "intent/12/" + "x" * 64: Intent(12, "x" * 64),
    "attempt/1/1": Attempt(1, 1),
    f"attempt/{NUMBER_MAX}/{NUMBER_MAX}": Attempt(NUMBER_MAX, NUMBER_MAX),
    "running/10": Running(10),
    "checkpoint/1/0": Checkpoint(1, 0),
    "checkpoint/1/1": Checkpoint(1, 1),
    f"checkpoint/{NUMBER_MAX}/{CHECKPOINT_ID_MAX}": Checkpoint(NUMBER_MAX, CHECKPOINT_ID_MAX),
    **{f"ended/3/{outcome}/agent-7": Ended(3, outcome, "agent-7") for outcome in OUTCOMES},
    f"ended/{NUMBER_MAX}/failed-permanent/" + "w" * 64: Ended(NUMBER_MAX, "failed-permanent", "w" * 64),
    "ask/1": Ask("1"),
    f"ask/{DIGEST}": Ask(DIGEST),
    "disposed/1/0/u": Disposed(1, 0, "u"),
    f"disposed/{NUMBER_MAX}/{CHECKPOINT_ID_MAX}/" + "x" * 64: Disposed(NUMBER_MAX, CHECKPOINT_ID_MAX, "x" * 64),
    "ask/FINISHED": Ask("FINISHED"),
    **{f"result/{state}": Result(state) for state in ("FINISHED", "CANCELED", "FAILED")},
}
NUMBERS_THAT_ARE_NONE = [
    "", "0", "00", "01", "-1", "+1", "1.0", "1e3", " 1", "1 ", "1\n", "0x1", "0abc", "1_0", "１", "²", "x",
    str(NUMBER_MAX + 1), "9" * 19, "9" * 5000,
]  # fmt: skip
WORDS_THAT_ARE_NONE = ["", "x" * 65, "a b", "a\n", "ä", "a:b", "a\x00"]
ILLEGAL = [
    "", "/", "nonsense", "spec", "spec/", f"spec/{DIGEST.upper()}", f"spec/{DIGEST[:-1]}", f"spec/{DIGEST}0",
    f"spec/{DIGEST}/x", f"spec/{DIGEST}\n", "admitted/", "admitted/1", "Admitted", "admitted\n", " admitted",
    "intent/1", f"intent/1/{UUID}/x", "attempt/1", "attempt/1/1/1", "running", "running/", "running/1/", "checkpoint/1",
    "checkpoint/1/1/1", "ended/1/failed", "ended/1/failed/a/b", "ended/1/FAILED/a", "ended/1/canceled\n/a",
    "ended/1/cancelled/a", "ended/1//a", "ask", "ask/", "ask/1/2", "result/", "result/finished", "result/RUNNING",
    "result/FINISHED/1", "attempt//1", "/attempt/1/1", "attempt/1/1/",
    *[f"intent/{n}/u" for n in NUMBERS_THAT_ARE_NONE],
    *[f"attempt/{n}/1" for n in NUMBERS_THAT_ARE_NONE],
    *[f"attempt/1/{n}" for n in NUMBERS_THAT_ARE_NONE],
    *[f"running/{n}" for n in NUMBERS_THAT_ARE_NONE],
    *[f"checkpoint/{n}/1" for n in NUMBERS_THAT_ARE_NONE],
    *[f"ended/{n}/failed/a" for n in NUMBERS_THAT_ARE_NONE],
    "checkpoint/1/", "checkpoint/1/00", "checkpoint/1/01", "checkpoint/1/0abc", "checkpoint/1/-1", "checkpoint/1/1\n",
    f"checkpoint/1/{CHECKPOINT_ID_MAX + 1}", f"checkpoint/1/{'9' * 20}",
    *[f"intent/1/{word}" for word in WORDS_THAT_ARE_NONE],
    *[f"ended/1/failed/{word}" for word in WORDS_THAT_ARE_NONE],
    *[f"ask/{word}" for word in WORDS_THAT_ARE_NONE],
    "disposed/1/0", "disposed/1/0/u/x", "disposed/1/00/u", "disposed/1/-1/u", f"disposed/1/{CHECKPOINT_ID_MAX + 1}/u",
    *[f"disposed/{n}/0/u" for n in NUMBERS_THAT_ARE_NONE],
    *[f"disposed/1/0/{word}" for word in WORDS_THAT_ARE_NONE],
]  # fmt: skip


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_name_is_read_and_written_back_unchanged(name):
    assert parse_register(name) == parse_register(name.encode()) == LEGAL[name]
    assert type(parse_register(name)) is type(LEGAL[name])
    assert register_name(LEGAL[name]) == name
    assert key_of("job-1", LEGAL[name]) == f"job-1/{name}"
    assert parse_key(f"job-1/{name}".encode()) == ("job-1", LEGAL[name])


@pytest.mark.parametrize("name", ILLEGAL, ids=lambda name: repr(name)[:40])
def test_what_the_grammar_does_not_know_names_no_register(name):
    assert parse_register(name) is None
    assert parse_register(name.encode()) is None
    assert parse_key(b"job-1/" + name.encode()) is None


def test_registers_of_different_kinds_are_never_the_same_key_of_a_dict():
    alike = [
        Attempt(1, 1), Checkpoint(1, 1), Running(1), Spec(DIGEST), Ask(DIGEST), Ask("FINISHED"), Result("FINISHED"),
        Admitted(), Intent(1, "1"), Ask("admitted"),
    ]  # fmt: skip
    for a, b in itertools.combinations(alike, 2):
        assert a != b
    assert len(dict.fromkeys(alike)) == len(alike)


@pytest.mark.parametrize("name", [b"\xff", b"running/\xff", b"ask/\xc3\xa4", b"\x00", b"running/1\x00"])
def test_bytes_that_are_no_text_name_no_register(name):
    assert parse_register(name) is None
    assert parse_key(b"job-1/" + name) is None


@pytest.mark.parametrize(
    "key", [None, b"", b"job-1", b"job-1/", b"/admitted", b"~job/admitted", b"j b/admitted", b"j\xff/admitted",
            b"../admitted", b"./admitted", b"x" * 129 + b"/admitted", b"job-1\n/admitted", b"a/b/admitted"],
)  # fmt: skip
def test_a_key_needs_a_job_id_and_a_register(key):
    assert parse_key(key) is None


@pytest.mark.parametrize("text", ["a", "...", ".a", "A.b_c-9", "x" * 128, "0190a1b2-0000-7000-8000-000000000001"])
def test_job_ids(text):
    assert is_job_id(text)


@pytest.mark.parametrize("text", ["", ".", "..", "~a", "a/b", "a b", "ä", "a\n", "x" * 129, "a\x00"])
def test_what_is_no_job_id(text):
    """A job id names folders and blob prefixes, so it must not lead out of them."""
    assert not is_job_id(text)


def test_writers():
    assert is_writer("agent-1") and is_writer("reconciler-7") and is_writer("x" * 64)
    assert not any(map(is_writer, ["", "x" * 65, "a/b", "a b", "a\n"]))


@pytest.mark.parametrize(("role", "epoch"), [("projector", 1), ("reconciler", NUMBER_MAX)])
def test_claims_have_a_key_for_each_epoch(role, epoch):
    assert parse_claim(claim_key(role, epoch).encode()) == (role, epoch)
    assert parse_key(claim_key(role, epoch).encode()) is None


@pytest.mark.parametrize(
    "key", [None, b"", b"job-1/admitted", b"~progress", b"~claim/", b"~claim/projector", b"~claim/projector/",
            b"~claim//1", b"~claim/projector/0", b"~claim/projector/01", b"~claim/projector/1/2", b"~claim/p\xff/1",
            b"~claim/projector/1\n", b"~claim/projector/9007199254740993"],
)  # fmt: skip
def test_what_is_no_claim(key):
    assert parse_claim(key) is None


@pytest.mark.parametrize(
    ("text", "signed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(text, signed):
    """Source: Apache Kafka, UtilsTest.testMurmur2."""
    assert murmur2(text.encode()) == signed % 2**32


@pytest.mark.parametrize("partitions", [1, 4, 24])
def test_the_partition_is_kafkas_default_for_the_job_id(partitions):
    """Kafka clears the sign bit before it divides: -973932308 & 0x7fffffff = 1173551340."""
    assert partition_of("21", partitions) == 1173551340 % partitions
    assert partition_of("abc", partitions) == 479470107 % partitions
