"""The life of one attempt, from the claim of its run folder to the fact of its end.

Run folder: `attempt.json` (what to start), `supervisor.json` (the supervisor that claimed the attempt; created once, so
the attempt runs at most once), `child.json` (the job's process), `order.json` (created once: the stop order, or the end
if that came first), `asks/` (requested savepoints), `checkpoints/`, `logs/`, `facts/<number>.json` (what the supervisor
observed), `ran_for_s`.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from . import procs
from .child import Child, become_subreaper
from .files import create_once, numbered, read_json, say, to_json, write_durably
from .logs import Log, tail
from .verdicts import NOT_EXECUTED, failure, ordered, verdict
from .watch import CheckpointWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

ASK_SUFFIX = ".ask"  # asks/<number>-<id of the ask>.ask; .answered is appended after the answer
POLL_S = 0.2
RETRY_S = 1.0
SIGN_OF_LIFE_S = 5.0
STAYS_AFTER_END_S = 10.0
GIVE_UP_S = 30.0  # a disk may be missing for a moment


def main(folder: str) -> None:
    # Signals to the whole machine reach the job too. The supervisor stays to observe how the job ends.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    Supervisor(os.path.realpath(folder)).run()


class Supervisor:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.attempt = read_json(self._path("attempt.json")) or {}
        self.facts = len(numbered(self._path("facts")))
        self.watch = CheckpointWatch(self._path("checkpoints"))
        self.order: dict[str, Any] = {}
        self.signalled: list[str] = []  # asks for which the job was signalled, oldest first
        self.savepoint_by: float | None = None
        self.kill_at: float | None = None
        self.logs: list[Log] = []
        self.pid = 0  # of the job; 0 once the number can be reused
        self.started_at = self.lived_at = self.folder_seen_at = time.monotonic()

    def _path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    # -- the whole life ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        me = to_json(procs.identity(os.getpid()))
        if not self._insist("the claim", create_once, self._path("supervisor.json"), me):
            say("this attempt was claimed before, and is not started again")
            return
        self._read_order()
        if self.order:
            self._end("failed", "ordered to stop before it was started", 0.0)
            return
        become_subreaper()
        limits = int(self.attempt["log_bytes_max"]), int(self.attempt["log_files"])
        self.logs = [Log(self._path("logs", name), *limits) for name in ("stdout.log", "stderr.log")]
        child = Child(self.attempt, self.logs[0].fd, self.logs[1].fd)
        self.pid, who = child.pid, procs.identity(child.pid)
        self._insist("child.json", write_durably, self._path("child.json"), to_json(who))
        self.started_at = self.lived_at = time.monotonic()
        problem, for_ever = child.release()
        if problem:
            self._reap()
            self._clear_away()
            cause = f"the command could not be executed: {problem}"
            rules = self.attempt.get("failure_rules", ())
            self._end(*failure(NOT_EXECUTED, cause, rules, "failed-permanent" if for_ever else "failed"), 0.0)
            return
        self._fact({"fact": "running", **who})
        exit_code = self._watch()
        ran_for_s = time.monotonic() - self.started_at
        self._clear_away()
        self._last_checkpoints()
        rules = () if self.order else self.attempt.get("failure_rules", ())
        self._end(*verdict(*exit_code, tail(self.logs[1].path), rules), ran_for_s)

    def _watch(self) -> tuple[int, int]:
        """Watches the job until it has exited and its process group is killed. Returns (code, status) of `waitid`."""
        while True:
            signal.sigtimedwait([signal.SIGCHLD], POLL_S)
            exited = self._exited()
            if exited:
                procs.kill_group(self.pid)
                self._reap()
                return exited
            self._try("checkpoints", self._checkpoints)
            self._try("orders", self._orders)
            for log in self.logs:
                self._try("logs", log.rotate)
            self._sign_of_life()

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
        self.pid = 0

    def _exited(self) -> tuple[int, int] | None:
        """Reaps other processes that have ended. Returns (code, status) once the job itself has ended."""
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return None
            if found.si_pid == self.pid:
                return found.si_code, found.si_status
            os.waitpid(found.si_pid, 0)

    def _clear_away(self) -> None:
        """Kills all remaining processes of the job, whichever group they are in: orphans become our children, and so do
        theirs. Returns once none is left. A process that can't be killed (stuck in the kernel) rightly keeps the
        attempt alive."""
        said_at = time.monotonic() + STAYS_AFTER_END_S
        while True:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            for pid in procs.children(os.getpid()):
                procs.kill(pid)
            signal.sigtimedwait([signal.SIGCHLD], 0.05)
            if time.monotonic() > said_at:
                say(f"can't be killed: {procs.children(os.getpid())}")
                said_at += 60

    def _insist(self, what: str, write: Callable[..., T], *arguments: Any) -> T:
        """Retries until the data is written: a full disk delays a fact, but does not lose it."""
        tries = 0
        while True:
            try:
                return write(*arguments)
            except OSError as error:
                if tries & (tries - 1) == 0:  # logged less and less often
                    say(f"{what} can't be written, trying again: {error}")
                tries += 1
                self._give_up_without_folder()
                time.sleep(RETRY_S)

    def _give_up_without_folder(self) -> None:
        """Ends the attempt if its run folder is gone. It is an orphan then: nobody can order it to stop or learn of its
        end."""
        now = time.monotonic()
        if os.path.isdir(self.folder):
            self.folder_seen_at = now
        elif not self.logs or now - self.folder_seen_at >= GIVE_UP_S:  # without logs nothing was started
            say("the run folder is gone: the attempt is ended")
            if self.pid:
                procs.kill_group(self.pid)
            self._clear_away()
            sys.exit(1)

    # -- facts -------------------------------------------------------------------------------------------------------

    def _fact(self, fact: dict[str, Any]) -> None:
        fact["time_s"] = time.time()
        self._insist("a fact", write_durably, self._path("facts", f"{self.facts + 1:012d}.json"), to_json(fact))
        self.facts += 1

    def _end(self, outcome: str, cause: str, ran_for_s: float) -> None:
        """Reports the end. A stop order and an end of the job by itself exclude each other: the one stored first
        decides the outcome. From then on the end is known, even if this process is killed before it reports it."""
        end = {"outcome": outcome, "cause": cause, "ran_for_s": round(ran_for_s, 3)}
        if not self.order:
            by_itself = to_json({"outcome": "", "savepoint": False, "end": end})
            if not self._insist("the end", create_once, self._path("order.json"), by_itself):
                self._read_order()
        end["cause"] = ordered(self.order, cause)
        self._fact({"fact": "ended", **end, "outcome": self.order.get("outcome") or outcome})

    def _last_checkpoints(self) -> None:
        """Reads the checkpoint folder once more, because the end names the newest checkpoint."""
        give_up_at = time.monotonic() + STAYS_AFTER_END_S
        while True:
            try:
                self._list()
                return
            except OSError as error:
                say(f"the checkpoint folder can't be read: {error}")
                if time.monotonic() > give_up_at:
                    return  # the next start reports the checkpoints that are still missing
                time.sleep(RETRY_S)

    def _try(self, what: str, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            say(f"{what}: {error}")

    def _sign_of_life(self) -> None:
        """Writes how long the job has run. The agent needs it if it must report the end itself. It is no fact, so it is
        not made durable."""
        now = time.monotonic()
        if now - self.lived_at >= SIGN_OF_LIFE_S:
            self.lived_at = now
            self._give_up_without_folder()
            self._try("sign of life", self._write_ran_for)

    def _write_ran_for(self) -> None:
        temporary = self._path("ran_for_s.tmp")
        with open(temporary, "w") as file:
            file.write(f"{time.monotonic() - self.started_at:.3f}")
        os.replace(temporary, self._path("ran_for_s"))

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _checkpoints(self) -> None:
        if self.watch.changed(time.monotonic()):
            self._list()

    def _list(self) -> None:
        for fact in self.watch.news(time.monotonic()):
            if fact["kind"] == "SAVEPOINT":
                fact["ask"] = self._answered()
            self._fact(fact)
            self.watch.newest = fact["id"]

    # -- orders ------------------------------------------------------------------------------------------------------

    def _read_order(self) -> None:
        try:
            order = read_json(self._path("order.json"))
        except ValueError:  # damaged: the agent writes it again with its next order
            return
        if order and order.get("outcome"):
            self.order = order

    def _orders(self) -> None:
        now = time.monotonic()
        if not self.order:
            self._read_order()
            if self.order:
                self._obey()
        self._asks()
        if self.savepoint_by is not None and now >= self.savepoint_by:
            self._terminate()
        if self.kill_at is not None and now >= self.kill_at:
            procs.kill_group(self.pid)

    def _obey(self) -> None:
        """Carries out the order. Grace periods start with the signals, so a slow disk does not shorten them."""
        say(f"ordered to end as {self.order['outcome']}")
        if self.order.get("savepoint") and procs.catches(self.pid, signal.SIGUSR1):
            procs.kill(self.pid, signal.SIGUSR1)
            self.savepoint_by = time.monotonic() + float(self.attempt["savepoint_grace_s"])
        else:
            self._terminate()

    def _terminate(self) -> None:
        self.savepoint_by = None
        procs.kill_group(self.pid, signal.SIGTERM)
        procs.kill_group(self.pid, signal.SIGCONT)  # a halted process does not handle SIGTERM
        self.kill_at = time.monotonic() + float(self.attempt["stop_grace_s"])

    def _asks(self) -> None:
        """Sends SIGUSR1 for every requested savepoint once the job has a handler: without one, the signal would kill
        the job."""
        for name in sorted(self._names_of_asks()):
            if name not in self.signalled and procs.catches(self.pid, signal.SIGUSR1):
                procs.kill(self.pid, signal.SIGUSR1)
                self.signalled.append(name)

    def _names_of_asks(self) -> list[str]:
        return [name for name in os.listdir(self._path("asks")) if name.endswith(ASK_SUFFIX)]

    def _answered(self) -> str | None:
        """Answers the oldest ask with a new savepoint and returns its id; None if there was no ask. An order that waits
        for this savepoint goes on."""
        if self.savepoint_by is not None:
            self.savepoint_by = 0.0
        if not self.signalled:
            return None
        name = self.signalled.pop(0)
        os.replace(self._path("asks", name), self._path("asks", name + ".answered"))
        return name[: -len(ASK_SUFFIX)].partition("-")[2]
