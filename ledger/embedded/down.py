"""`down`: stops an embedded ledger. `up` ends first, then the roles, the broker last."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledger.core.model.registers import Outcome
from ledger.embedded.folder import (
    PROJECTOR,
    RECONCILER,
    kind_of,
    noted,
    only_one,
    program,
    up_runs,
    users_of,
    wait_until,
)  # fmt: skip
from ledger.embedded.keeper import Say
from ledger.errors import LedgerError, OutcomeUnknown, Refused, Unreachable
from ledger.ports import ObservedAttempt, Runner
from ledger.util.processes import stop

GRACE_S = 30.0
#: The files of a ledger in its folder. Other files are not deleted: the folder may have other uses.
MADE = ("agent", "archive", "artifacts", "blobs", "broker", "log", "run", "runners", "spark")
JOBS_S = 90.0  # time for a savepoint, SIGTERM, SIGKILL, and the end of the supervisor
LOCK_S = 10.0
LEFT = "The named attempts may still run. Run `jobledger up`, correct the named cause, then run this command again."


def down(
    folder: Path, *, say: Say, runners: Callable[[], Mapping[str, Runner]], jobs: bool = False, purge: bool = False
) -> None:
    """Stops the ledger in a folder; idempotent. jobs: also stops all attempts, with outcome `stopped` and no intent, so
    that the next `up` brings the jobs back. purge: then deletes the ledger's files, and the folder if it is empty.

    A process that can't be stopped does not prevent the rest; it is reported at the end.

    Raises: Refused if purge is requested while jobs run (nothing was stopped). Unreachable if a runner did not accept
    stop orders for some attempts. OutcomeUnknown if some attempts still run after their stop order. After Unreachable
    and OutcomeUnknown everything else was stopped, and nothing was deleted.
    """
    if not (folder / "run" / "up.lock").exists():
        say(f"no ledger in {folder}")
        return
    if purge and not jobs and (users := users_of(folder)):
        raise Refused(f"Jobs still run in {folder}: pids {_some(users)}.", hint="Add --jobs to stop them first.")
    if (who := up_runs(folder)) is not None:
        stop(who, GRACE_S)
        say(f"stopped up pid {who.pid}")
    with only_one(folder, LOCK_S):
        # First the processes that would start the others again.
        _stop(folder, say, RECONCILER)
        left = _stop_jobs(folder, runners(), say) if jobs else NotStopped()
        _stop(folder, say, PROJECTOR)
        _stop(folder, say)
        if left.unasked or left.running:
            raise left.error(f" {folder} was not deleted." if purge else "")
        if purge:
            if not wait_until(lambda: not users_of(folder), JOBS_S):
                raise OutcomeUnknown(f"Jobs still run: pids {_some(users_of(folder))}. {folder} was not deleted.")
            _delete(folder, say)


def _delete(folder: Path, say: Say) -> None:
    for name in MADE:
        path = folder / name
        if path.is_symlink():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)
    if left := sorted(path.name for path in folder.iterdir()):
        say(f"deleted the ledger in {folder}; other files stay: {' '.join(left[:5])}")
    else:
        folder.rmdir()
        say(f"deleted {folder}")


def _stop(folder: Path, say: Say, kind: str | None = None) -> None:
    """Stops all processes of a kind; all processes if kind is None."""
    for name in noted(folder):
        if kind is not None and kind_of(name) != kind:
            continue
        process = program(folder, name)
        if process.adopt() is None:
            process.pid_file.unlink(missing_ok=True)
            continue
        ended_well = process.stop(GRACE_S)
        say(f"stopped {name} pid {process.pid}{'' if ended_well else f', killed after {GRACE_S:g} s'}")


@dataclass
class NotStopped:
    """The attempts that were not stopped, each as a text. unasked: their runner did not accept the stop order. running:
    the order was accepted, but the attempt still runs."""

    unasked: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)

    def error(self, then: str) -> LedgerError:
        named = [*self.unasked, *self.running]
        text = f"Stopped all but: {'; '.join(named[:10])}{' …' * (len(named) > 10)}.{then}"
        return OutcomeUnknown(text, hint=LEFT) if self.running else Unreachable(text, hint=LEFT)


def _stop_jobs(folder: Path, runners: Mapping[str, Runner], say: Say) -> NotStopped:
    left = NotStopped()
    ordered: dict[str, set[tuple[str, int]]] = {}
    for name, runner in runners.items():
        try:
            alive = _alive(folder, name, runner)
        except Unreachable as error:
            left.unasked.append(f"the jobs of runner {name}, which does not answer ({error})")
            continue
        for attempt in alive:
            named = f"attempt {attempt.n} of {attempt.job_id}"
            try:
                runner.stop(attempt.job_id, attempt.n, Outcome.STOPPED)
            except LedgerError as error:
                left.unasked.append(f"{named} ({error})")
            else:
                say(f"stopping {named}")
                ordered.setdefault(name, set()).add((attempt.job_id, attempt.n))
    for name, attempts in ordered.items():
        left.running += _wait_for(name, runners[name], attempts)
    return left


def _wait_for(name: str, runner: Runner, ordered: set[tuple[str, int]]) -> list[str]:
    """Waits until the attempts with a stop order are over. Returns those that are not."""
    running = sorted(ordered)

    def over() -> bool:
        nonlocal running
        running = sorted(ordered & {(one.job_id, one.n) for one in runner.observe() if one.alive})
        return not running

    try:
        if wait_until(over, JOBS_S):
            return []
    except Unreachable as error:
        return [f"the jobs of runner {name}, which stopped answering ({error})"]
    return [f"attempt {n} of {job_id} (it still runs {JOBS_S:g} s after the order to stop)" for job_id, n in running]


def _alive(folder: Path, name: str, runner: Runner) -> list[ObservedAttempt]:
    try:
        return [attempt for attempt in runner.observe() if attempt.alive]
    except Unreachable:
        # Without an agent, the processes on this host still show that there is nothing to stop.
        if name == "subprocess" and not users_of(folder):
            return []
        raise


def _some(pids: list[int]) -> str:
    return " ".join(map(str, pids[:10])) + (" …" if len(pids) > 10 else "")
