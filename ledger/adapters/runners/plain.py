"""Converts the arguments and results of runners to JSON values, and back.

The functions `…_from_json` raise KeyError, TypeError or ValueError for an invalid value, since it may come from foreign
code."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ledger.core.model.facts import CheckpointKind, FailureRule, GraphRef, RestorePoint
from ledger.core.model.registers import NUMBER_MAX, is_job_id
from ledger.ports import ObservedAttempt, RunnerEvent, RunnerStorage

TEXT_MAX = 2_000  # characters of a name or reason; the rest is cut off


def shown(value: object) -> str:
    """A foreign text that is safe to show: cut to a bounded length, with "?" for unprintable characters except line
    ends.

    Raises: TypeError if the value is not a text."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not a text")
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in value[:TEXT_MAX])


def attempt_from_json(value: object) -> ObservedAttempt:
    if not isinstance(value, list) or len(value) != 4:
        raise ValueError("not an attempt")
    job_id, n, alive, engine_id = value
    if not isinstance(job_id, str) or not is_job_id(job_id) or not isinstance(alive, bool):
        raise ValueError("not an attempt")
    return ObservedAttempt(job_id, number_from_json(n), alive, shown(engine_id))


def number_from_json(value: object) -> int:
    """The number of an attempt."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= NUMBER_MAX:
        raise ValueError("not the number of an attempt")
    return value


def graph_to_json(graph: GraphRef) -> dict[str, Any]:
    return {"uri": graph.uri, "sha256": graph.sha256, "size": graph.size}


def graph_from_json(value: Mapping[str, Any]) -> GraphRef:
    return GraphRef(value["uri"], value["sha256"], value["size"])


def point_to_json(point: RestorePoint | None) -> dict[str, Any] | None:
    if point is None:
        return None
    return {
        "attempt": point.attempt, "id": point.id, "location": point.location, "size": point.size,
        "digest": point.digest, "kind": point.kind.value,
    }  # fmt: skip


def point_from_json(value: dict[str, Any] | None) -> RestorePoint | None:
    if value is None:
        return None
    return RestorePoint(
        int(value["attempt"]), int(value["id"]), str(value["location"]), int(value["size"]), str(value["digest"]),
        CheckpointKind(value["kind"]),
    )  # fmt: skip


def points_from_json(values: list[dict[str, Any] | None]) -> list[RestorePoint]:
    return [point for value in values if (point := point_from_json(value)) is not None]


def rule_to_json(rule: FailureRule) -> dict[str, Any]:
    return {"label": rule.label, "exit_code": rule.exit_code, "pattern": rule.pattern, "permanent": rule.permanent}


def rule_from_json(value: dict[str, Any]) -> FailureRule:
    exit_code = value["exit_code"]
    return FailureRule(
        str(value["label"]), None if exit_code is None else int(exit_code), str(value["pattern"]), bool(value["permanent"])
    )


def event_to_json(event: RunnerEvent) -> dict[str, Any]:
    return {
        "key": event.key.decode(),
        "headers": [[name, base64.b64encode(value).decode()] for name, value in event.headers],
        "value": None if event.value is None else base64.b64encode(event.value).decode(),
    }


def event_from_json(value: Mapping[str, Any]) -> RunnerEvent:
    key, headers, body = value["key"], value["headers"], value["value"]
    if not isinstance(key, str) or not isinstance(headers, list) or not isinstance(body, str | None):
        raise ValueError("not an event")
    return RunnerEvent(
        key.encode(),
        tuple((str(name), base64.b64decode(text, validate=True)) for name, text in headers),
        None if body is None else base64.b64decode(body, validate=True),
    )


def kept_to_json(kept: RunnerStorage) -> dict[str, Any]:
    points = {"checkpoints": kept.checkpoints, "savepoints": kept.savepoints}
    return kept._asdict() | {name: [point_to_json(point) for point in found] for name, found in points.items()}


def kept_from_json(value: Mapping[str, Any]) -> RunnerStorage:
    if not isinstance(value["job_id"], str) or not is_job_id(value["job_id"]) or not isinstance(value["rest"], bool):
        raise ValueError("not the stored data of a job")
    return RunnerStorage(
        value["job_id"], shown(value["where"]), float(value["age_s"]), value["rest"], int(value["rest_size"]),
        tuple(number_from_json(n) for n in value["alive"]), tuple(points_from_json(value["checkpoints"])),
        int(value["checkpoint_size"]), tuple(points_from_json(value.get("savepoints", []))),
    )  # fmt: skip
