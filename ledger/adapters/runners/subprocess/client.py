"""The runner as the roles see it: calls to the agent of this host."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.adapters.runners.subprocess import wire
from ledger.adapters.runners.subprocess.events import from_json
from ledger.adapters.runners.subprocess.folders import point_to_json, rule_to_json
from ledger.adapters.runners.subprocess.kept import kept_from_json
from ledger.core.facts import FailureRule, GraphRef, RestorePoint
from ledger.errors import PermanentError, TemporaryError, Unreachable
from ledger.ports import Kept, ObservedAttempt, RunnerEvent, StartAnswer, Verification

_ERRORS = {"permanent": PermanentError, "temporary": TemporaryError, "unreachable": Unreachable}


class SubprocessRunner:
    """folder: of the agent. timeout_s: for a whole call; a start may need longer, it then goes on without us."""

    def __init__(self, folder: Path, timeout_s: float = 10.0) -> None:
        self.folder, self.timeout_s = Path(folder), timeout_s

    def start(
        self, job_id: str, n: int, graph: GraphRef, restore_point: RestorePoint | None, environment: Mapping[str, str],
        failure_rules: Sequence[FailureRule] = (),
    ) -> StartAnswer:
        plain = {"uri": graph.uri, "sha256": graph.sha256, "size": graph.size}
        arguments = {"graph": plain, "restore_point": point_to_json(restore_point), "environment": dict(environment)}
        rules = [rule_to_json(rule) for rule in failure_rules]
        return StartAnswer(self._call("start", job_id=job_id, n=n, failure_rules=rules, **arguments))

    def observe(self) -> list[ObservedAttempt]:
        return [ObservedAttempt(*attempt) for attempt in self._call("observe")]

    def stop(self, job_id: str, n: int, outcome: str, savepoint: bool = False) -> None:
        self._call("stop", job_id=job_id, n=n, outcome=outcome, savepoint=savepoint)

    def savepoint(self, job_id: str, n: int, ask: str) -> None:
        """Asks attempt n for a savepoint, once per ask; its checkpoint event will name the ask."""
        self._call("savepoint", job_id=job_id, n=n, ask=ask)

    def fence(self, job_id: str, n: int) -> list[RunnerEvent]:
        """At most 5000 events at a time: acknowledge them and ask again for the rest."""
        return [from_json(event) for event in self._call("fence", job_id=job_id, n=n)]

    def acknowledge(self, job_id: str, keys: Sequence[bytes]) -> None:
        self._call("acknowledge", job_id=job_id, keys=[key.decode() for key in keys])

    def verify(self, restore_point: RestorePoint) -> Verification:
        return Verification(self._call("verify", restore_point=point_to_json(restore_point)))

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        self._call("dispose", job_id=job_id, restore_points=[point_to_json(point) for point in restore_points])

    def forget(self, job_id: str) -> None:
        """Raises: TemporaryError while an attempt of the job is alive."""
        self._call("forget", job_id=job_id)

    def kept(self) -> list[Kept]:
        return [kept_from_json(kept) for kept in self._call("kept")]

    def _call(self, call: str, **arguments: Any) -> Any:
        deadline = time.monotonic() + self.timeout_s
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self.timeout_s)
                with wire.socket_path(self.folder) as path:
                    connection.connect(path)
                wire.send_line(connection, {"call": call, "arguments": arguments}, deadline)
                answer = wire.read_line(connection, wire.ANSWER_BYTES_MAX, deadline)
        except (OSError, ValueError) as error:
            raise Unreachable(
                f"the agent in {self.folder} did not answer {call}: {error}",
                hint="Start it with `jobledger serve agent`. What runs goes on meanwhile.",
            ) from error
        if "error" in answer:
            raise _ERRORS.get(answer["error"], Unreachable)(str(answer["message"]), hint=str(answer.get("hint", "")))
        return answer["result"]
