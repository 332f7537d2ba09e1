"""The steps of `make containers` on a ledger in containers, and the checks after them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from tests.containers.compose import Compose, Failed
from tests.support.waiting import until

T = TypeVar("T")

JOB = "containers-counter"
#: On the volume that all containers share, so that a job's files survive its container.
FOLDER = "/var/lib/jobledger/containers-drill"
RECORD, ENOUGH, PROGRAM = f"{FOLDER}/record", f"{FOLDER}/enough", f"{FOLDER}/count.sh"
#: README's counter. It also records each step with the time, and ends once the file `$2` exists.
COUNT = """\
n=$(cat "${LEDGER_RESTORE_FROM:-/dev/null}")
echo "began $LEDGER_ATTEMPT ${n:=0} $(date +%s.%N)" >> "$1"
until [ -e "$2" ]; do
    sleep 1
    n=$((n + 1))
    echo "$n" > "$LEDGER_CHECKPOINT_DIR/.part"
    mv "$LEDGER_CHECKPOINT_DIR/.part" "$LEDGER_CHECKPOINT_DIR/chk-$n"
    echo "counted $LEDGER_ATTEMPT $n $(date +%s.%N)" >> "$1"
done
echo "ended $LEDGER_ATTEMPT $n $(date +%s.%N)" >> "$1"
echo "counted to $n"
"""
#: The time limit for each step. On a busy machine a Spark driver takes minutes until it has done its first task.
DEADLINE_S = 600.0
#: The number of checkpoints to wait for before the next step.
MORE = 5


@dataclass(frozen=True)
class Line:
    """One line of the job's own record. word: began, counted or ended. time_s: by the engine's clock, since the epoch."""

    word: str
    attempt: int
    n: int
    time_s: float


@dataclass(frozen=True)
class Row:
    """One step. at_s: since the start of the drill; took_s: until its check held."""

    at_s: float
    took_s: float
    what: str
    seen: str


@dataclass
class Drill:
    """The drill. `run` runs it; `rows` then holds its steps, and `wrong` the checks that failed."""

    compose: Compose
    print_row: Callable[[Row], None]
    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Runs all steps. Raises: Failed, AssertionError or TimeoutExpired, which name the step that was not done in
        time."""
        self._do("docker compose up --build --wait", self._up)
        self._do("jobledger leader --wait", self._led)
        self._do("submit a job, wait for its checkpoints", self._submit)
        self._do("kill -9 the leading reconciler", lambda: self._kill_leader("reconciler"))
        self._do("kill -9 the leading projector", lambda: self._kill_leader("projector"))
        newest = self._do("kill -9 the agent, and the job with it", self._kill_agent)
        self._do("let the job end, wait until it is retired", self._end)
        record = self._record()
        self.wrong += faults(record, {2: int(newest.rpartition("/")[2])})
        self._say(0.0, "the job's own record", told(record))

    def _up(self) -> str:
        self.compose.up()
        return f"{len(self.compose.services())} containers, all healthy or done"

    def _led(self) -> str:
        self.compose.jobledger("leader", "--wait", "--timeout", f"{DEADLINE_S:g}", timeout_s=DEADLINE_S + 60)
        return ", ".join(one["writer"] for one in self._leaders().values())

    def _submit(self) -> str:
        self.compose.inside("agent-1", "sh", "-c", f"mkdir -p {FOLDER} && cat > {PROGRAM}", given=COUNT)
        command = ["--id", JOB, "--name", JOB, "--graph", PROGRAM, "--", "sh", "count.sh", RECORD, ENOUGH]
        self.compose.jobledger("submit", *command)
        self._await_counts(1)
        return f"RUNNING, restore point {self._newest()}"

    def _kill_leader(self, role: str) -> str:
        """Kills a leader. Then another instance must lead with a higher epoch, the old one's container restart, and the
        job go on."""
        before = self._leaders()[role]
        service = service_of(before["writer"])
        started, moment = self.compose.started(service), self._clock()
        self.compose.kill_init(service)
        after = _until(lambda: self._leader_after(role, before["epoch"]), f"another {role} leads than {before['writer']}")
        if service_of(after["writer"]) == service:
            self.wrong.append(f"{after['writer']} leads after {before['writer']}: nobody else took over")
        _until(lambda: self.compose.started(service) not in ("", started), f"{service} is started again")
        self._await_counts(1)
        passed = f"epoch {before['epoch']} -> {after['epoch']} after {after['since'] - moment:.1f} s"
        return f"{before['writer']} -> {after['writer']}, {passed}; {service} is back"

    def _kill_agent(self) -> str:
        """Kills the agent; the newest restore point known before. Attempt 2 must start from that one or a later one."""
        newest = self._newest()
        started = self.compose.started("agent-1")
        self.compose.kill_init("agent-1")
        _until(lambda: self.compose.started("agent-1") not in ("", started), "agent-1 is started again")
        self._await_counts(2)
        return f"attempt 2 counts; known before: restore point {newest}"

    def _end(self) -> str:
        self.wrong += started_twice(self._history())
        self.compose.inside("agent-1", "touch", ENOUGH)
        row = _until(self._retired, f"{JOB} is retired")
        printed = self.compose.jobledger("logs", JOB).split()[-1:]
        counted = max(one.n for one in self._record())
        if row["state"] != "FINISHED" or row["attempts"] != 2:
            self.wrong.append(f"the job is {row['state']} after {row['attempts']} attempts, not FINISHED after 2")
        if printed != [str(counted)]:
            self.wrong.append(f"the job printed {printed} as its last count, not {counted}")
        return f"{row['state']} after {row['attempts']} attempts, counted to {counted}; no entry left"

    def _retired(self) -> dict[str, Any] | None:
        row: dict[str, Any] = json.loads(self.compose.jobledger("show", JOB, "-o", "json"))
        return row if "attempts" in row else None  # a result has `attempts`, an entry has `attempt`

    def _leaders(self) -> dict[str, dict[str, Any]]:
        return {one["role"]: one for one in json.loads(self.compose.jobledger("leader", "-o", "json"))}

    def _leader_after(self, role: str, epoch: int) -> dict[str, Any] | None:
        row: dict[str, Any] = json.loads(self.compose.jobledger("leader", role, "-o", "json"))[0]
        return row if row["led"] and row["epoch"] > epoch else None

    def _history(self) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = json.loads(self.compose.jobledger("history", JOB, "-o", "json"))
        return records

    def _newest(self) -> str:
        """The job's newest restore point, as `attempt/number`."""
        points = json.loads(self.compose.jobledger("show", JOB, "-o", "json"))["restore_points"]
        return "{attempt}/{id}".format(**max(points, key=lambda one: (one["attempt"], one["id"])))

    def _record(self) -> list[Line]:
        return parse(self.compose.inside("agent-1", "cat", RECORD))

    def _clock(self) -> float:
        return float(self.compose.inside("agent-1", "date", "+%s.%N"))

    def _await_counts(self, attempt: int) -> None:
        """Waits until this attempt is the last one, has counted on by `MORE`, and has a restore point that the ledger
        knows."""
        lines = _until(lambda: [one for one in self._record() if one.attempt == attempt], f"attempt {attempt} begins")
        before = lines[-1].n

        def counted() -> bool:
            last = self._record()[-1]
            return last.attempt == attempt and last.n >= before + MORE and self._newest().startswith(f"{attempt}/")

        _until(counted, f"attempt {attempt} counts on from {before}")

    def _do(self, what: str, act: Callable[[], str]) -> str:
        began = time.monotonic()
        seen = act()
        self._say(time.monotonic() - began, what, seen)
        return seen

    def _say(self, took_s: float, what: str, seen: str) -> None:
        row = Row(time.monotonic() - self.began - took_s, took_s, what, seen)
        self.rows.append(row)
        self.print_row(row)


def service_of(writer: str) -> str:
    """The service of a process name: `reconciler-2` for `reconciler-2-7`."""
    return writer.rpartition("-")[0]


def parse(record: str) -> list[Line]:
    """The lines that a job wrote. Raises: ValueError if COUNT would not write such a line."""
    found = []
    for line in record.splitlines():
        word, attempt, n, time_s = line.split()
        found.append(Line(word, int(attempt), int(n), float(time_s)))
    return found


def faults(record: Sequence[Line], known: Mapping[int, int]) -> list[str]:
    """The faults in a job's own record; a line each. known: attempt -> number of the newest checkpoint that the ledger
    knew before it. The attempt must start from that checkpoint or a later one."""
    wrong = []
    begins = [one.attempt for one in record if one.word == "began"]
    if begins != list(range(1, len(known) + 2)):
        wrong.append(f"attempts began in the order {begins}, not each once from 1 to {len(known) + 1}")
    for before, after in pairwise(record):
        if after.word == "began":
            # A checkpoint is complete before its line is written: the last one may have no line.
            if not known.get(after.attempt, 0) <= after.n <= before.n + 1:
                least = known.get(after.attempt, 0)
                wrong.append(f"attempt {after.attempt} began at {after.n}, not between {least} and {before.n + 1}")
        elif after.attempt != before.attempt:
            wrong.append(f"attempt {after.attempt} wrote between lines of attempt {before.attempt}, at {after.n}")
        elif after.n != before.n + (after.word == "counted"):
            wrong.append(f"attempt {after.attempt} {after.word} {after.n} after {before.n}")
    if not record or (record[0].word, record[0].n) != ("began", 0):
        wrong.append("attempt 1 did not begin at 0")
    if not record or record[-1].word != "ended":
        wrong.append("the job did not come to its end")
    return wrong


def started_twice(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """Attempts that began more than once, by the log. history: records as `jobledger history` prints them."""
    begun: dict[str, set[str]] = {}
    for one in history:
        if one["register"].startswith("running/") and one["fact"] is not None:
            begun.setdefault(one["register"], set()).add(json.dumps(one["fact"], sort_keys=True))
    return [f"the log has {len(facts)} different facts for {name}" for name, facts in begun.items() if len(facts) > 1]


def told(record: Sequence[Line]) -> str:
    """For each attempt its counts, and the longest pause between two of them."""
    parts = []
    for attempt in sorted({one.attempt for one in record}):
        lines = [one for one in record if one.attempt == attempt]
        pause = max((after.time_s - before.time_s for before, after in pairwise(lines)), default=0.0)
        parts.append(f"attempt {attempt}: {lines[0].n} to {lines[-1].n}, longest pause {pause:.1f} s")
    return "; ".join(parts)


def _until(holds: Callable[[], T | None], what: str) -> T:
    """Like `until`, but also repeats if a container does not exist or a command fails."""
    said = [""]

    def answer() -> T | None:
        try:
            return holds()
        except (Failed, subprocess.TimeoutExpired) as error:
            said[0] = str(error)
            return None

    return until(answer, what, DEADLINE_S, every_s=1.0, story=lambda: said[0])
