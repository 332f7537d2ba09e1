"""One job of the agent: its attempts, its fence and its events. Every method is called under the job's lock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger.adapters.runners.subprocess import content
from ledger.adapters.runners.subprocess.cleanup import DISPOSED, PastAttempts
from ledger.adapters.runners.subprocess.digests import Digests
from ledger.adapters.runners.subprocess.events import EventMaker, JobEvents
from ledger.adapters.runners.subprocess.folders import MARKER, MarkedAttempt, Phase
from ledger.adapters.runners.subprocess.orphan_processes import kill_leftovers
from ledger.adapters.runners.subprocess.restore import remove
from ledger.adapters.runners.subprocess.retention import AttemptCheckpoints, subsumed
from ledger.adapters.runners.subprocess.supervisor import checkpoints, procs
from ledger.adapters.runners.subprocess.supervisor.files import (
    create_once,
    numbered,
    read_json,
    to_json,
    write_durably,
)
from ledger.adapters.runners.subprocess.supervisor.logs import tail
from ledger.adapters.runners.subprocess.supervisor.verdicts import ordered
from ledger.core.fold.fold import HISTORY
from ledger.core.model.facts import AttemptEnded, AttemptRunning, CheckpointCompleted, CheckpointKind
from ledger.core.model.registers import NUMBER_MAX, OUTCOMES, Checkpoint, Ended, Outcome, Running
from ledger.util.files import make_folder

log = logging.getLogger(__name__)

CAUSE_CHARS_MAX = 4000
LOGGED_CHARS_MAX = 200  # of a cause
BACKLOG_MAX = 1000
#: After a change, the facts folder is listed at every step for this long: file system clocks are coarse.
SETTLING_S = 2.0


class AgentJob:
    def __init__(
        self, job_id: str, folder: Path, maker: EventMaker, held: Callable[[str], bool] = lambda _: False,
        digests: Digests | None = None,
    ) -> None:  # fmt: skip
        """held: whether its logs must be kept, however many there are. digests: computes digests; None: none are
        computed."""
        self.id, self.folder, self._maker, self._held = job_id, folder, maker, held
        self._digests = digests or Digests()
        self.lock = threading.RLock()  # held briefly: never while a graph is fetched or events are sent
        self.preparing: int | None = None  # the attempt that is being started and has no marker yet
        self.fence = 0
        self.attempts: dict[int, MarkedAttempt] = {}
        self.outbox = JobEvents(job_id, folder / "events", maker)
        self.past = PastAttempts(folder / "past.json")
        self.damaged = ""
        self.forgotten = False

    def run_folder(self, n: int) -> Path:
        return self.folder / "attempts" / str(n)

    def load(self) -> None:
        """Loads the job from its folder. Raises: OSError, ValueError, KeyError, TypeError if something is damaged."""
        self.fence = int((read_json(str(self.folder / "fence")) or {"fence": 0})["fence"])
        self.past.load()
        self.outbox.load()
        for n, path in numbered(str(self.folder / "attempts"), suffix=""):
            if n in self.past:
                remove(Path(path))
            elif (Path(path) / MARKER).exists():
                self.attempts[n] = MarkedAttempt.load(self.id, n, Path(path))
        for stored in self.outbox.events:
            match stored.register:
                case Running(n):
                    self.attempts[n].running = True
                case Checkpoint(n, number):
                    self.attempts[n].newest = max(self.attempts[n].newest, number)
                case Ended(n):
                    self.attempts[n].phase = Phase.ENDED
        for attempt in self.attempts.values():
            self._name_engine(attempt)
            # An earlier agent may have failed to compute some digests, or may not have supported them.
            for number, _, name in checkpoints.listed(str(attempt.checkpoints)):
                if number <= attempt.newest:
                    self._digests.take(attempt.checkpoints / name)

    def raise_fence(self, n: int) -> None:
        """Raises the fence to n. Raises: OSError if the fence can't be made durable; it is then unchanged."""
        if n > self.fence:
            make_folder(self.folder, 0o700)
            write_durably(str(self.folder / "fence"), to_json({"fence": n}))
            self.fence = n

    def note_disposal(self) -> None:
        """Records that the restore points of a terminal job were disposed of. The job's other checkpoints are then
        deleted too."""
        if self.fence >= NUMBER_MAX and not self.alive():
            create_once(str(self.folder / DISPOSED), b"")

    def alive(self) -> list[int]:
        # Also called without the lock: other threads may add attempts, so the list is copied in one step.
        live = [n for n, attempt in list(self.attempts.items()) if attempt.phase is Phase.LIVE]
        return live if self.preparing is None or self.preparing in live else [*live, self.preparing]

    # -- facts become events -----------------------------------------------------------------------------------------

    def observe_attempt(self, attempt: MarkedAttempt, thorough: bool, complete: bool = False) -> None:
        """Turns new facts of an attempt into events. If the supervisor is gone, the facts that it did not report become
        events too.

        thorough: check the supervisor itself too, and read the facts even if their folder seems unchanged. complete:
        read all facts, even if nothing has been acknowledged for long.
        Raises: OSError, ValueError and the like if the folder can't be read or written; a later call does the rest.
        """
        if attempt.phase is Phase.ENDED:
            return
        if attempt.doubtful:
            self._recall(attempt)
        # Check first whether it lives, then read its facts. In the other order, its last facts would be missed.
        gone = thorough and not self._supervised(attempt)
        if gone or self._facts_changed(attempt, thorough):
            self._collect(attempt, BACKLOG_MAX if not gone and not complete else None)
        if gone and attempt.phase is Phase.LIVE:
            self._bury(attempt)

    def _recall(self, attempt: MarkedAttempt) -> None:
        """Restores the progress of an attempt whose progress file is damaged.

        A fact that still exists as a file is not an event yet. Every other existing checkpoint is reported, even if it
        was before: then the same register receives the same content again. An end that was reported is found again."""
        facts = [fact for _, path in numbered(str(attempt.facts)) if (fact := _fact_in(path))]
        waiting = [int(fact["id"]) for fact in facts if fact["fact"] == "checkpoint"]
        attempt.running = attempt.running or not any(fact["fact"] == "running" for fact in facts)
        registers = [stored.register for stored in self.outbox.events]
        known = {one.id for one in registers if isinstance(one, Checkpoint) and one.n == attempt.n}
        below = min(waiting, default=None)
        for fact in checkpoints.news(str(attempt.checkpoints), -1)[0]:
            if fact["id"] not in known and (below is None or fact["id"] < below):
                newest = attempt.newest
                self._checkpoint(attempt, fact)
                attempt.newest = max(newest, attempt.newest)
        self._name_engine(attempt)
        attempt.doubtful = False

    def _supervised(self, attempt: MarkedAttempt) -> bool:
        if attempt.process is not None:
            if attempt.process.poll() is None:
                return True
            attempt.process = None
        claim = attempt.supervisor()
        return claim is not None and procs.alive(claim)

    def _facts_changed(self, attempt: MarkedAttempt, thorough: bool) -> bool:
        now, (mtime, changed_at) = time.monotonic(), attempt.facts_seen
        found = attempt.facts.stat().st_mtime_ns
        if found != mtime:
            attempt.facts_seen = mtime, changed_at = found, now
        return thorough or now - changed_at <= SETTLING_S

    def _collect(self, attempt: MarkedAttempt, backlog_max: int | None) -> None:
        for number, path in numbered(str(attempt.facts)):
            if backlog_max is not None and len(self.outbox.events) >= backlog_max:
                return  # the facts wait as files until events in memory are acknowledged
            if number > attempt.collected:
                fact = _fact_in(path)
                if fact and backlog_max is not None and fact["fact"] == "checkpoint" and self._waits(attempt, fact):
                    return
                if fact:
                    self._to_event(attempt, fact)
                attempt.collected = number

    def _waits(self, attempt: MarkedAttempt, fact: dict[str, Any]) -> bool:
        """Whether the record of a checkpoint should wait for its content digest. The wait is bounded. It is skipped if
        the supervisor is dead, since a restart must not wait. The agent stores the digest later in any case."""
        now, number = time.monotonic(), fact["id"]
        if number <= attempt.newest:
            return False
        if attempt.waited[0] != number:
            attempt.waited = number, now
            if not self._digests.take(Path(fact["location"])):
                return False
        if now - attempt.waited[1] >= self._digests.limits.wait_s:
            return False
        return self._digests.under_way(Path(fact["location"]))

    def _to_event(self, attempt: MarkedAttempt, fact: dict[str, Any]) -> None:
        match fact["fact"]:
            case "running" if not attempt.running:
                self._name_engine(attempt)
                self.outbox.add(Running(attempt.n), AttemptRunning(attempt.engine_id), fact["time_s"])
                attempt.running = True
            case "checkpoint" if fact["id"] > attempt.newest:
                self._checkpoint(attempt, fact)
            case "ended" if attempt.phase is Phase.LIVE:
                self._end(attempt, fact["outcome"], fact["cause"], fact["ran_for_s"], fact["time_s"])

    def _checkpoint(self, attempt: MarkedAttempt, fact: dict[str, Any]) -> None:
        location = Path(fact["location"])
        self._digests.take(location)
        manifest = content.load(location)
        completed = CheckpointCompleted(
            fact["location"], fact["size"], manifest.digest if manifest else "", attempt.base,
            CheckpointKind(fact["kind"]), fact.get("ask") or None, fact.get("consistency", ""),
        )  # fmt: skip
        self.outbox.add(Checkpoint(attempt.n, fact["id"]), completed, fact.get("time_s"))
        attempt.newest = fact["id"]

    def _end(self, attempt: MarkedAttempt, outcome: str, cause: str, ran_for_s: float, time_s: float | None = None) -> None:
        """outcome: of a file that a job can write too, so any word."""
        newest = attempt.newest if attempt.newest >= 0 else None
        if outcome not in OUTCOMES:
            cause = f"{cause} (its end was recorded as {str(outcome)[:LOGGED_CHARS_MAX]!r}, which is no outcome)"
            outcome = Outcome.FAILED
        ended = AttemptEnded(cause[:CAUSE_CHARS_MAX], newest, float(ran_for_s))
        self.outbox.add(Ended(attempt.n, Outcome(outcome), self._maker.writer), ended, time_s)
        attempt.phase = Phase.ENDED
        log.info("attempt_ended", extra={
            "job": self.id, "attempt": attempt.n, "outcome": outcome, "ran_for_s": ended.ran_for_s, "checkpoint": newest,
            "cause": cause.partition("\n")[0][:LOGGED_CHARS_MAX],
        })  # fmt: skip

    def _name_engine(self, attempt: MarkedAttempt) -> None:
        if not attempt.engine_id and (child := attempt.child()):
            attempt.engine_id = str(child["pid"])

    # -- dead supervisors --------------------------------------------------------------------------------------------

    def _bury(self, attempt: MarkedAttempt) -> None:
        """Ends an attempt without a supervisor: once no process of it lives, reports its last checkpoints and its
        end."""
        claim = attempt.supervisor()
        if claim is None:
            # A supervisor that is still starting finds the attempt claimed and exits.
            nobody = to_json({"pid": 0, "start_time": 0, "boot_id": ""})
            if not create_once(attempt.file("supervisor.json"), nobody):
                return
            claim = {"pid": 0}
        child = attempt.child()
        if kill_leftovers(str(attempt.folder), child):
            return  # some process can't be killed yet, so the attempt is alive
        if claim["pid"] == 0:
            said = tail(str(attempt.logs / "supervisor.log"))
            self._close(attempt, f"never started: {said or 'the agent died before the start'}")
            return
        self.report_late(attempt)
        log_name = "stderr.log"
        if claim.get("boot_id") != procs.boot_id():
            cause = "the machine was restarted"
        elif child is None and not Path(attempt.file("child.json")).exists():
            cause, log_name = "its supervisor ended before the job began", "supervisor.log"
        else:
            cause = "its supervisor was killed, and the job with it"
        last_lines = tail(str(attempt.logs / log_name))
        self._close(attempt, f"{cause}: {last_lines}" if last_lines else cause)

    def _close(self, attempt: MarkedAttempt, cause: str) -> None:
        order = attempt.order("")
        # The supervisor may have been killed after it stored the end and before it reported it.
        known = order.get("end") or {"outcome": Outcome.FAILED, "cause": cause, "ran_for_s": _ran_for_s(attempt)}
        outcome = order.get("outcome", "")
        self._end(attempt, outcome or known["outcome"], ordered(order, known["cause"]), known["ran_for_s"])

    def report_late(self, attempt: MarkedAttempt) -> None:
        """Makes events of checkpoints that the supervisor did not report. Raises: OSError."""
        fresh, _ = checkpoints.news(str(attempt.checkpoints), attempt.newest)
        for fact in fresh:
            self._checkpoint(attempt, fact)

    # -- acknowledgements --------------------------------------------------------------------------------------------

    def acknowledge(self, keys: set[bytes]) -> None:
        for stored in self.outbox.events:
            if stored.event.key in keys and not stored.acknowledged:
                stored.acknowledged = True

    def settle(self) -> None:
        """Makes acknowledgements durable, then deletes checkpoints, event files and facts that are no longer needed."""
        done = [stored for stored in self.outbox.events if stored.acknowledged]
        if not done:
            return
        touched = {n for stored in done if (n := getattr(stored.register, "n", 0)) in self.attempts}
        for stored in done:
            if isinstance(stored.register, Checkpoint):
                kind = self._maker.checkpoint(stored.event).kind
                self.attempts[stored.register.n].acknowledged[stored.register.id] = kind
        touched |= self._delete_subsumed()
        for n in touched:
            self.attempts[n].save()
        self._maker.sequences.save()
        self.outbox.drop_acknowledged()
        for n in touched:
            for number, path in numbered(str(self.attempts[n].facts)):
                if number <= self.attempts[n].collected:
                    Path(path).unlink(missing_ok=True)
        if any(isinstance(stored.register, Ended) for stored in done):
            self._prune()

    def _delete_subsumed(self) -> set[int]:
        """Deletes subsumed checkpoints and returns their attempts. A deletion that fails is tried again at the next
        acknowledgement."""
        touched = set()
        for n, number in self._subsumed():
            try:
                self._delete(self.attempts[n].checkpoints, number)
            except OSError as error:
                about = {"job": self.id, "attempt": n, "checkpoint": number, "reason": str(error)}
                log.warning("checkpoint_not_deleted", extra=about)
                continue
            del self.attempts[n].acknowledged[number]
            touched.add(n)
        return touched

    def _delete(self, folder: Path, number: int) -> None:
        """Deletes the checkpoint with this number, whatever its label. Raises: OSError."""
        for found, kind, name in checkpoints.listed(str(folder)):
            if (found, kind) == (number, CheckpointKind.CHECKPOINT):
                remove(folder / name)
                content.manifest_path(folder / name).unlink(missing_ok=True)

    def _prune(self) -> None:
        """Deletes files of attempts whose end is acknowledged.

        The files of the job are kept for the newest attempt only, and logs for the newest HISTORY attempts, or for all
        while the job is held. An older attempt leaves only its number, unless a checkpoint of it still exists."""
        unsaid = {getattr(stored.register, "n", 0) for stored in self.outbox.events}
        over = sorted(n for n, a in self.attempts.items() if a.phase is Phase.ENDED and n not in unsaid)
        for n in over[:-1]:
            remove(self.attempts[n].folder / "graph")
        for n in over[:-HISTORY] if not self._held(self.id) else ():
            if not self.attempts[n].acknowledged:
                self.past.add(n)
                remove(self.attempts.pop(n).folder)

    def _subsumed(self) -> list[tuple[int, int]]:
        return subsumed({
            n: AttemptCheckpoints(
                (a.base.attempt, a.base.id) if a.base is not None and a.base.attempt else None,
                a.acknowledged, a.phase is Phase.ENDED,
            )
            for n, a in self.attempts.items()
        })  # fmt: skip


_FACTS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "running": {"time_s": (int, float)},
    "checkpoint": {"id": int, "kind": str, "location": str, "size": int},
    "ended": {"outcome": str, "cause": str, "ran_for_s": (int, float), "time_s": (int, float)},
}  # fmt: skip


def _fact_in(path: str) -> dict[str, Any] | None:
    """The fact in a file; None if it is damaged. It then counts as never written: the checkpoint folder and the order
    file hold the same information."""
    try:
        fact = read_json(path)
        if fact is not None and all(isinstance(fact[name], kind) for name, kind in _FACTS[fact["fact"]].items()):
            return fact
        why = "it is not a fact"
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
    log.warning("damaged_file", extra={"path": path, "reason": why, "then": "counts as never written"})
    return None


def _ran_for_s(attempt: MarkedAttempt) -> float:
    """How long the attempt ran, up to the supervisor's last sign of life; 0 if there is none."""
    try:
        return float(Path(attempt.file("ran_for_s")).read_text())
    except (OSError, ValueError):
        return 0.0
