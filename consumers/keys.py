"""The grammar of the keys of `ledger.events` (docs/PROTOCOL.md, section 2). Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

NUMBER_MAX, CHECKPOINT_MAX = 2**53, 2**63 - 1
_JOB = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_WORD = r"[A-Za-z0-9._-]{1,64}"
_N = r"([1-9][0-9]{0,15})"
_REGISTERS = {
    name: re.compile(pattern, re.ASCII)
    for name, pattern in {
        "spec": r"[0-9a-f]{64}",
        "admitted": r"",
        "intent": rf"{_N}/{_WORD}",
        "attempt": rf"{_N}/{_N}",
        "running": _N,
        "checkpoint": rf"{_N}/(?:0|[1-9][0-9]{{0,18}})",
        "ended": rf"{_N}/(?:lost|failed|failed-permanent|stopped|abandoned|canceled|finished)/{_WORD}",
        "ask": _WORD,
        "disposed": rf"{_N}/(?:0|[1-9][0-9]{{0,18}})/{_WORD}",
        "result": r"FAILED|CANCELED|FINISHED",
    }.items()
}
#: Register -> the fact that it holds.
FACTS: Mapping[str, str] = {
    "spec": "JobSubmitted", "admitted": "JobAdmitted", "intent": "IntentDeclared", "attempt": "AttemptStarted",
    "running": "AttemptRunning", "checkpoint": "CheckpointCompleted", "ended": "AttemptEnded", "ask": "SavepointAsked",
    "disposed": "SavepointDisposed", "result": "JobResult",
}  # fmt: skip


class Key(NamedTuple):
    """A parsed key. job: the job id, "" for a key of the ledger itself. n: the attempt or the revision; 0 if the
    register has none."""

    job: str
    register: str
    n: int = 0


def parse(key: bytes | None) -> Key | None:
    """The parsed key of a record; None if the key does not match the grammar."""
    try:
        text = (key or b"").decode()
    except UnicodeDecodeError:
        return None
    if text.startswith("~"):
        return Key("", text)
    job, _, register = text.partition("/")
    name, slash, rest = register.partition("/")
    pattern = _REGISTERS.get(name)
    if _JOB.fullmatch(job) is None or job in (".", "..") or pattern is None or bool(slash) != bool(pattern.pattern):
        return None
    match = pattern.fullmatch(rest)
    if match is None or any(int(number) > NUMBER_MAX for number in match.groups()):
        return None
    if name in ("checkpoint", "disposed") and int(rest.split("/")[1]) > CHECKPOINT_MAX:
        return None
    return Key(job, name, int(match[1]) if match.groups() else 0)
