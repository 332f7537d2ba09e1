"""Makes and answers the calls of a runner in another process.

`CalledRunner` is the caller's side, which the roles hold. `answer` is the side of the other process. Arguments and
results travel as plain values (`plain`) over any connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ledger.adapters.runners import plain
from ledger.adapters.runners.one_instance import require_instance
from ledger.core.model.facts import FailureRule, GraphRef, RestorePoint
from ledger.core.model.registers import is_writer
from ledger.errors import LedgerError, PermanentError, TemporaryError, Unreachable
from ledger.ports import ObservedAttempt, Runner, RunnerEvent, RunnerStorage, StartAnswer, Verification

T = TypeVar("T")
ATTEMPTS_MAX = 1_000_000  # in one answer
_ERRORS = {"permanent": PermanentError, "temporary": TemporaryError, "unreachable": Unreachable}


class CalledRunner:
    """Implements `ports.Runner` over `ask`, which a subclass provides."""

    def ask(self, call: str, convert: Callable[[Any], T], *, expected: str = "", **arguments: Any) -> T:
        """Makes one call to the runner and returns its converted answer.

        convert: converts the answer from plain values (`plain`). If it raises any exception, the answer is invalid and
        counts as missing. expected: the instance that must answer; "" means any. Raises: the errors of `ports.Runner`.
        """
        raise NotImplementedError

    def instance(self) -> str:
        try:
            return self.ask("instance", _instance_name)
        except PermanentError:  # an agent of an older release has no such call
            return ""

    def only(self, instance: str) -> Runner:
        return _BoundRunner(self, instance) if instance else self

    def start(
        self,
        job_id: str,
        n: int,
        graph: GraphRef,
        restore_point: RestorePoint | None,
        environment: Mapping[str, str],
        failure_rules: Sequence[FailureRule] = (),
    ) -> StartAnswer:
        return self.ask(
            "start", StartAnswer, job_id=job_id, n=n, graph=plain.graph_to_json(graph), environment=dict(environment),
            restore_point=plain.point_to_json(restore_point),
            failure_rules=[plain.rule_to_json(rule) for rule in failure_rules],
        )  # fmt: skip

    def observe(self) -> list[ObservedAttempt]:
        return self.ask("observe", _listed(plain.attempt_from_json))

    def stop(self, job_id: str, n: int, outcome: str, savepoint: bool = False, reason: str = "") -> None:
        self.ask("stop", _nothing, job_id=job_id, n=n, outcome=outcome, savepoint=savepoint, reason=reason)

    def savepoint(self, job_id: str, n: int, ask: str) -> None:
        """Requests a savepoint from attempt n, once per ask. The event of that savepoint will name the ask."""
        self.ask("savepoint", _nothing, job_id=job_id, n=n, ask=ask)

    def fence(self, job_id: str, n: int) -> list[RunnerEvent]:
        """Refuses all starts up to attempt n, and returns events of the job that are not acknowledged: at most 5000 per
        call from an agent. Acknowledge these, then call again for the rest."""
        return self.ask("fence", _listed(plain.event_from_json), job_id=job_id, n=n)

    def acknowledge(self, job_id: str, keys: Sequence[bytes]) -> None:
        self.ask("acknowledge", _nothing, job_id=job_id, keys=[key.decode() for key in keys])

    def verify(self, restore_point: RestorePoint) -> Verification:
        return self.ask("verify", Verification, restore_point=plain.point_to_json(restore_point))

    def why_refused(self, restore_point: RestorePoint) -> str:
        try:
            return self.ask("why_refused", plain.shown, restore_point=plain.point_to_json(restore_point))
        except PermanentError:  # an agent of an older release has no such call
            return ""

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        self.ask("dispose", _nothing, job_id=job_id, restore_points=[plain.point_to_json(p) for p in restore_points])

    def forget(self, job_id: str) -> None:
        """Makes the runner forget the job and its fence. Raises: TemporaryError while an attempt of it is alive."""
        self.ask("forget", _nothing, job_id=job_id)

    def kept(self) -> list[RunnerStorage]:
        return self.ask("kept", _listed(plain.kept_from_json))


class _BoundRunner(CalledRunner):
    """A runner whose calls only one instance may answer. The process that receives a call compares the instance."""

    def __init__(self, runner: CalledRunner, instance: str) -> None:
        self._runner, self._instance = runner, instance

    def ask(self, call: str, convert: Callable[[Any], T], *, expected: str = "", **arguments: Any) -> T:
        return self._runner.ask(call, convert, expected=expected or self._instance, **arguments)


def error_from(failure: Mapping[str, Any]) -> LedgerError:
    """The error that `failed` encoded. Raises: KeyError or TypeError if the mapping encodes no error."""
    kind = _ERRORS.get(failure["error"], Unreachable)
    return kind(plain.shown(failure["message"]), hint=plain.shown(failure.get("hint", "")))


def failed(kind: str, error: BaseException) -> dict[str, str]:
    """The answer that reports an error instead of a result."""
    hint = error.hint if isinstance(error, LedgerError) else ""
    return {"error": kind, "message": str(error) or type(error).__name__, "hint": hint}


def kind_of(error: LedgerError) -> str:
    if isinstance(error, PermanentError):
        return "permanent"
    return "temporary" if isinstance(error, TemporaryError) else "unreachable"


def answer(runner: Runner, call: str, arguments: Mapping[str, Any], expected: str = "") -> Any:
    """Makes one call to `runner` and returns its result as a plain value. expected: the instance that the call is for;
    "" means any.

    Raises: the errors of the runner; PermanentError if no such call exists; Unreachable if `runner` is another
    instance."""
    if expected:
        require_instance(_instance(runner), expected)
    handler = _CALLS.get(call)
    if handler is None:
        raise PermanentError(f"this runner has no call {call!r}")
    return handler(runner, arguments)


def _instance(runner: Runner) -> str:
    """The instance of the runner; "" for a plug-in that has no such call."""
    return _instance_name(runner.instance()) if hasattr(runner, "instance") else ""


def _instance_name(value: object) -> str:
    if not isinstance(value, str) or not (value == "" or is_writer(value)):
        raise ValueError(f"not the name of an instance: {value!r}")
    return value


def _start(runner: Runner, a: Mapping[str, Any]) -> str:
    base, rules = plain.point_from_json(a["restore_point"]), [plain.rule_from_json(r) for r in a.get("failure_rules", ())]
    graph = plain.graph_from_json(a["graph"])
    return StartAnswer(runner.start(a["job_id"], a["n"], graph, base, a["environment"], rules)).value


def _verify(runner: Runner, a: Mapping[str, Any]) -> str:
    point = plain.point_from_json(a["restore_point"])
    if point is None:
        raise PermanentError("there is no restore point to verify")
    return Verification(runner.verify(point)).value


def _why_refused(runner: Runner, a: Mapping[str, Any]) -> str:
    """The runner's reason; "" for a plug-in that has no such call."""
    point = plain.point_from_json(a["restore_point"])
    return runner.why_refused(point) if point is not None and hasattr(runner, "why_refused") else ""


def _kept(runner: Runner, _: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The data that the runner stores; [] for an older plug-in that has no such call, because nothing is known then."""
    return [plain.kept_to_json(kept) for kept in runner.kept()] if hasattr(runner, "kept") else []


_CALLS: Mapping[str, Callable[[Runner, Mapping[str, Any]], Any]] = {
    "instance": lambda runner, _: _instance(runner),
    "start": _start,
    "observe": lambda runner, _: [list(attempt) for attempt in runner.observe()],
    "stop": lambda runner, a: runner.stop(a["job_id"], a["n"], a["outcome"], a["savepoint"], a.get("reason", "")),
    "savepoint": lambda runner, a: runner.savepoint(a["job_id"], a["n"], a["ask"]),
    "fence": lambda runner, a: [plain.event_to_json(event) for event in runner.fence(a["job_id"], a["n"])],
    "acknowledge": lambda runner, a: runner.acknowledge(a["job_id"], [key.encode() for key in a["keys"]]),
    "verify": _verify,
    "why_refused": _why_refused,
    "dispose": lambda runner, a: runner.dispose(a["job_id"], plain.points_from_json(a["restore_points"])),
    "forget": lambda runner, a: runner.forget(a["job_id"]),
    "kept": _kept,
}


def _nothing(_: Any) -> None:
    """Ignores the result: the call has none."""


def _listed(convert: Callable[[Any], T]) -> Callable[[Any], list[T]]:
    def converted(values: Any) -> list[T]:
        if not isinstance(values, list) or len(values) > ATTEMPTS_MAX:
            raise ValueError("not a list, or too long a list")
        return [convert(value) for value in values]

    return converted
