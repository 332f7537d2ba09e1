"""Facts for tests: one of each class with every field set, and hypothesis strategies for random facts."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ledger.adapters.avro import KINDS
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    CheckpointRetention,
    FailureRule,
    GraphRef,
    IntentDeclared,
    IntentKind,
    JobAdmitted,
    JobResult,
    JobSubmitted,
    LeaderClaimed,
    OnExhausted,
    OnStall,
    Progress,
    RefusedRestorePoint,
    Replacement,
    RestartKind,
    RestartPolicy,
    RestoreBy,
    RestorePoint,
    SavepointAsked,
    SavepointDisposed,
    SavepointPolicy,
    StallPolicy,
    Together,
)  # fmt: skip
from ledger.core.model.recovery import JobState, RecoveryEntry, WinningIntent

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_GRAPH = GraphRef(f"file:///var/lib/jobledger/blobs/graphs/orders-1/{_DIGEST}", _DIGEST, 20_480)
_CHECKPOINT = RestorePoint(2, 17, "file:///var/lib/jobledger/runs/orders-1/2/chk-17", 1 << 33, "sha256:00ff")
_SAVEPOINT = RestorePoint(2, 12, "s3://bucket/orders/sav-12", 5, "", CheckpointKind.SAVEPOINT)
_OUTSIDE = RestorePoint(0, 0, "hdfs:///old/checkpoint-ü-✓")
_LABELS = {"team": "payments", "a": "", "größe": "✓"}
_RULES = (FailureRule("config", 64, "", True), FailureRule("ünreachable", None, "timed? out ✓"))
_TOGETHER = Together({"billing-1": 4, "orders-0": 1}, "2025-01-31T12:00", "attempt 3 of prod/billing failed")
_STALLS = StallPolicy(30.5, 4, OnStall.RESTART)
_SAVEPOINTS = SavepointPolicy(600.5, 3)
_REPLACEMENT = Replacement("2/12", 5, "release 7 ✓")

#: One fact of each class with no field at its default. The files in golden/ were written from these.
FULL: tuple[Any, ...] = (
    JobSubmitted(
        "orders", "prod", "subprocess", _GRAPH,
        RestartPolicy(RestartKind.FAILURE_RATE, 5, 2.5, 30.0, 3.0, 0.25, 600.0, OnExhausted.FAIL, 4, 900.5, _RULES),
        3, -7, _LABELS, "eu", _OUTSIDE, "orders-0", CheckpointRetention.KEEP, _STALLS,
        _REPLACEMENT, _SAVEPOINTS, RestoreBy.EXTERNAL,
    ),
    JobAdmitted(_DIGEST),
    IntentDeclared(IntentKind.RETRY, 2, "2/12", True, "the disk is replaced", "alice@ops", True),
    AttemptStarted(_DIGEST, _CHECKPOINT, (RefusedRestorePoint(_SAVEPOINT, "missing"),), 2, (1738324800.25, 1738324900.5),
                   1738324910.75, _TOGETHER, "agent-h1"),
    AttemptRunning("application_1738324800000_0042"),
    CheckpointCompleted("file:///c/chk-18", 4096, "sha256:11", _CHECKPOINT, CheckpointKind.SAVEPOINT, "ask-1", "2025-01-31T12:00"),
    AttemptEnded("exit status 3", 18, 3605.125),
    SavepointAsked("before the upgrade", "bob@ops"),
    SavepointDisposed("s3://bucket/orders/sav-12", _CHECKPOINT, "ask-1", "the disk is full ✓", "dora@ops"),
    JobResult("orders", "prod", "subprocess", _DIGEST, "finished", 1738328400.0, 3, _LABELS, _CHECKPOINT),
    LeaderClaimed("projector", 7, "host-1:4711", "the lease of epoch 6 ended", {"subprocess": "agent-h1", "übersee": "✓"}),
    Progress(3, 9_007_199_254_740_993, 7),
    RecoveryEntry(
        "orders-1", "orders", "prod", "subprocess", JobState.RESTARTING, _DIGEST, 2, next_attempt=3, outcome="failed",
        outcome_writer="agent-h1", known=True, graph=_GRAPH, base=_CHECKPOINT,
        restore_points=(_CHECKPOINT, _SAVEPOINT, _OUTSIDE), restore_from_named=True, restart_delay_s=2.5, failures=2,
        failure_times=(1738324800.25,), reason="attempt 2 failed: exit status 3",
        intent=WinningIntent("RUN", 4, "uuid-4", 2, "latest", True, "go on", "carol", True), retiring=True, slots=3,
        priority=-7, region="eu", labels=_LABELS, replaces="orders-0", checkpoint_retention=CheckpointRetention.KEEP,
        registers=("admitted", "running/1"), partition=3, as_of=4711, epoch=7, due_at=1738324805.5, due=True,
        failed_at=1738324901.5, failure_rate_interval_s=900.5, failure_rules=_RULES, stall_policy=_STALLS,
        stalls_at=1738324999.5, stalled=True, asks=("ask-1", "ask-2"), replacement=_REPLACEMENT, inherits=True,
        begun=True, consistency=("2025-01-31T12:00", "", ""), together=_TOGETHER, savepoint_policy=_SAVEPOINTS,
        next_ask="periodic-2-12-0", savepoint_at=1738325404.5, savepoint_due=True, disposals=(_SAVEPOINT,),
        instance="agent-h1", restore=RestoreBy.EXTERNAL, marker=_CHECKPOINT,
    ),
)  # fmt: skip
assert {type(fact) for fact in FULL} == set(KINDS)

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_LONG = st.integers(-(2**63), 2**63 - 1)
_DOUBLE = st.floats(allow_nan=False, allow_infinity=False)


@cache
def any_of(kind: type) -> st.SearchStrategy[Any]:
    """A strategy for any value of a class, from its type hints."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{f.name: _any(hints[f.name]) for f in fields(kind)})


def _any(hint: Any) -> st.SearchStrategy[Any]:
    simple = {str: _TEXT, int: _LONG, float: _DOUBLE, bool: st.booleans()}
    if hint in simple:
        return simple[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return st.none() | _any(args[0])
    if origin is tuple:
        return st.lists(_any(args[0]), max_size=4).map(tuple)
    if origin is Mapping:
        return st.dictionaries(_TEXT, _any(args[1]), max_size=4)
    if is_dataclass(hint):
        return any_of(typing.cast(type, hint))
    assert issubclass(hint, StrEnum), hint
    return st.sampled_from(hint)


def anything() -> st.SearchStrategy[Any]:
    return st.one_of([any_of(kind) for kind in KINDS])


def plain(value: Any) -> Any:
    """A fact as a JSON value with the schema's names."""
    if is_dataclass(value):
        return {f.name.removesuffix("_"): plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value.value if isinstance(value, StrEnum) else value
