"""Plug-in runners that misbehave. Each affects only the calls made to it."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.parallel_observer import ParallelObserver
from ledger.adapters.runners import plain
from ledger.adapters.runners.contained import ContainedRunner, process
from ledger.adapters.runners.contained.process import SERVER
from ledger.adapters.runners.outside import OutsideRunner
from ledger.core.model.facts import GraphRef
from ledger.errors import LedgerError, PermanentError, RunnerBroke, Unreachable
from ledger.ports import Observation, ObservedAttempt, RunnerEvent, StartAnswer, StartTask, TaskStatus
from ledger.tasks import perform
from tests.foreign import DEEDS, install, value_of
from tests.support.waiting import in_time, until

pytestmark = pytest.mark.slow

GRAPH = GraphRef("graphs/job-1/0", "0", 1)
WORDS = {
    "exits": "ended with exit code 7", "hangs": "did not answer in time", "leaves": "SystemExit: 7",
    "memory": "MemoryError", "nonsense": "", "raises": "ValueError: no such ?[31mcolour", "segfault": "died by SIGSEGV",
}  # fmt: skip
MADE: list[ContainedRunner] = []
PATIENCE_S, SHORT_S = 60.0, 3.0


@pytest.fixture(autouse=True)
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(tmp_path / "site", monkeypatch)
    monkeypatch.setattr(process, "END_S", PATIENCE_S)  # a core dump takes long on a busy machine
    yield
    for runner in MADE:
        runner.close()
    MADE.clear()
    until(lambda: not servers(), "no process of a plug-in is left")


def servers() -> list[psutil.Process]:
    out = []
    for child in psutil.Process().children(recursive=True):
        try:
            if SERVER in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                out.append(child)
        except psutil.NoSuchProcess:
            continue
    return out


class Plugin(ContainedRunner):
    """A contained runner. at: the time of its clock, which only the test advances."""

    def __init__(self, folder: Path, call: str, deed: str, timeout_s: float = PATIENCE_S) -> None:
        self.at = 0.0
        value = value_of(call, deed) if deed else "poison_runners:Idle"
        super().__init__("foreign", value, folder, timeout_s, 512 << 20, now=lambda: self.at)
        MADE.append(self)


def start(runner: Plugin) -> StartAnswer:
    return runner.start("job-1", 1, GRAPH, None, {})


@pytest.mark.parametrize("deed", sorted(DEEDS))
@pytest.mark.parametrize("call", ["import", "observe"])
def test_one_that_cannot_be_loaded_or_asked_is_no_answer_with_its_reason(call: str, deed: str, tmp_path: Path) -> None:
    runner = Plugin(tmp_path, call, deed, timeout_s=SHORT_S if deed == "hangs" else PATIENCE_S)
    if call == "import" and deed == "nonsense":  # the module has no such name
        with pytest.raises(RunnerBroke, match="can't be loaded: AttributeError"):
            runner.observe()
        return
    with pytest.raises(RunnerBroke) as broke:
        runner.observe()
    assert WORDS[deed] in str(broke.value) and "foreign" in str(broke.value)


@pytest.mark.parametrize("deed", sorted(DEEDS))
def test_a_start_that_breaks_it_is_a_crash_of_that_start(deed: str, tmp_path: Path) -> None:
    runner = Plugin(tmp_path, "start", deed, timeout_s=SHORT_S if deed == "hangs" else PATIENCE_S)
    outcome = perform(StartTask(runner="foreign", job_id="job-1", n=1, graph=GRAPH), {"foreign": runner}, MemoryBlobs())
    assert outcome.status is TaskStatus.CRASHED and WORDS[deed] in outcome.reason
    runner.at += 1.0
    runner._timeout_s = PATIENCE_S
    assert runner.observe() == [], "a new process answers"


def test_it_is_asked_again_less_and_less_often_and_at_once_after_it_went_well(tmp_path: Path) -> None:
    runner = Plugin(tmp_path, "start", "exits")
    assert runner.observe() == []
    (first,) = servers()
    for pause_s in (1.0, 2.0):
        with pytest.raises(RunnerBroke):
            start(runner)
        assert not servers()
        runner.at += pause_s - 0.1
        with pytest.raises(Unreachable, match="exit code 7") as put_off:
            runner.observe()
        assert not isinstance(put_off.value, RunnerBroke) and not servers(), "the process was not started during the pause"
        runner.at += 0.1
    assert runner.observe() == [] and servers() != [first]
    with pytest.raises(RunnerBroke):
        start(runner)
    runner.at += 1.0
    assert runner.observe() == [], "the pauses start again from the shortest"


def test_errors_of_the_ledgers_own_are_told_apart(tmp_path: Path) -> None:
    module = tmp_path / "site" / "polite.py"
    module.write_text(
        "from ledger.errors import *\nfrom poison_runners import Idle\n"
        "class Runner(Idle):\n"
        "    def start(self, *_): raise PermanentError('never')\n"
        "    def observe(self): raise Unreachable('not now', hint='wait')\n"
    )
    runner = ContainedRunner("polite", "polite:Runner", tmp_path, PATIENCE_S)
    MADE.append(runner)
    with pytest.raises(PermanentError, match="never"):
        runner.start("job-1", 1, GRAPH, None, {})
    with pytest.raises(Unreachable, match="not now") as unreachable:
        runner.observe()
    assert not isinstance(unreachable.value, RunnerBroke) and unreachable.value.hint == "wait"
    assert runner.verify(plain.point_from_json(POINT)) == "valid", "the same process still answers"  # type: ignore[arg-type]


def test_what_it_prints_is_no_answer(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site" / "loud.py").write_text(
        "import os\nfrom poison_runners import Idle\nprint('imported')\n"
        "class Runner(Idle):\n"
        "    def observe(self):\n        os.write(1, b'{}\\n')\n        print('asked', flush=True)\n        return []\n"
    )
    runner = ContainedRunner("loud", "loud:Runner", tmp_path, PATIENCE_S)
    MADE.append(runner)
    assert runner.observe() == []
    said = capfd.readouterr()
    assert said.out == "" and "asked" in said.err


def test_its_process_dies_with_the_thread_that_asked_first_even_if_it_hangs(tmp_path: Path) -> None:
    runner = Plugin(tmp_path, "start", "hangs")
    asked = threading.Event()

    def ask() -> None:
        runner.observe()
        asked.set()

    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(PATIENCE_S)
    thread.join()
    until(lambda: not servers(), "the plug-in's process is gone")


POINT = {"attempt": 1, "id": 5, "location": "/x", "size": 1, "digest": "", "kind": "CHECKPOINT"}


@pytest.mark.parametrize("value", [
    None, {}, "job-1", [], ["job-1", 1, True], ["../x", 1, True, ""], ["job-1", 0, True, ""], ["job-1", True, True, ""],
    ["job-1", 1, "yes", ""], ["job-1", 1, True, None], ["job-1", 1.0, True, ""], ["job-1", 2**53 + 1, True, ""],
])  # fmt: skip
def test_what_is_no_attempt(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        plain.attempt_from_json(value)


def test_attempts_events_and_points_come_back_as_they_were() -> None:
    attempt = ObservedAttempt("job-1", 7, True, "pid 7")
    assert plain.attempt_from_json(list(attempt)) == attempt
    event = RunnerEvent(b"job-1/running/1", (("ce_id", b"\xff"),), b"\x00")
    assert plain.event_from_json(plain.event_to_json(event)) == event
    assert plain.point_to_json(plain.point_from_json(POINT)) == POINT
    assert plain.shown("a\x1b[2J\ud800") == "a?[2J?" and len(plain.shown("x" * 5000)) == plain.TEXT_MAX


# -- all runners at once


def ran(number: int) -> Observation:
    return Observation("", [ObservedAttempt(f"job-{number}", 1, True, "")])


class Other(OutsideRunner):
    """A runner that answers once `may` is set."""

    def __init__(self) -> None:
        self.may, self.asked = threading.Event(), 0

    def observe(self) -> list[ObservedAttempt]:
        self.asked += 1
        assert self.may.wait(PATIENCE_S)
        return [ObservedAttempt(f"job-{self.asked}", 1, True, "")]


def test_who_hangs_is_silent_and_is_waited_for_once() -> None:
    silent: dict[str, LedgerError] = {}

    def asked_once() -> tuple[ParallelObserver, dict[str, Other]] | None:
        """A pass with both runners; None if the quick one was late too, which happens on a busy machine."""
        ask, others = ParallelObserver(0.3), {"slow": Other(), "quick": Other()}
        others["quick"].may.set()
        answers = ask.observe(others, silent.__setitem__)  # type: ignore[arg-type]
        assert answers["slow"] is None and answers["quick"] in (None, ran(1))
        return (ask, others) if answers["quick"] else None

    ask, runners = until(asked_once, "the quick runner answers in the same pass")
    slow = runners["slow"]
    ask._limit_s = PATIENCE_S  # the slow runner is no longer waited for
    for asked in (2, 3):
        answers = ask.observe(runners, silent.__setitem__)  # type: ignore[arg-type]
        assert answers["slow"] is None and answers["quick"] == ran(asked)
    assert "did not answer within 0.3 s" in str(silent["slow"]) and slow.asked == 1
    slow.may.set()
    deadline = time.monotonic() + PATIENCE_S
    while (answers := ask.observe(runners, silent.__setitem__))["slow"] is None:  # type: ignore[arg-type]
        in_time(time.monotonic() < deadline, "not within the time")
        time.sleep(0.05)
    assert answers["slow"] != ran(1), "the late answer is never used"


def test_who_hangs_whenever_it_is_asked_is_not_waited_for_again() -> None:
    """The hanging runner costs the others its time limit once, not after each of its recoveries."""
    moods: queue.SimpleQueue[str] = queue.SimpleQueue()

    class Moody(OutsideRunner):
        def observe(self) -> list[ObservedAttempt]:
            mood = moods.get(timeout=PATIENCE_S)
            if mood != "is well":
                raise Unreachable(mood)
            return [ObservedAttempt("job-1", 1, True, "")]

    silent: dict[str, LedgerError] = {}
    runners, ask = {"moody": Moody()}, ParallelObserver(0.2)

    def pass_() -> Observation | None:
        return ask.observe(runners, silent.__setitem__)["moody"]  # type: ignore[arg-type]

    assert pass_() is None and "did not answer within 0.2 s" in str(silent["moody"])
    ask._limit_s = 4 * PATIENCE_S  # a pass that waited now would take noticeably long
    began = time.monotonic()
    for mood in ("hung", "broke", "hung"):
        assert pass_() is None
        moods.put(mood)

        def told(mood: str = mood) -> bool:
            return pass_() is None and str(silent["moody"]) == mood

        until(told, "the runner's reason is reported")
    in_time(time.monotonic() - began < 3 * PATIENCE_S, "not within three times its patience")
    for _ in range(1000):
        moods.put("is well")
    until(pass_, "the runner is waited for again after a good answer")


def test_a_runner_that_raises_what_no_runner_may_is_silent() -> None:
    class Broken(OutsideRunner):
        def observe(self) -> list[ObservedAttempt]:
            raise ZeroDivisionError("by zero")

    silent: dict[str, LedgerError] = {}
    answers = ParallelObserver(PATIENCE_S).observe({"broken": Broken()}, silent.__setitem__)  # type: ignore[dict-item]
    assert answers == {"broken": None} and "ZeroDivisionError" in str(silent["broken"])


def test_it_is_not_our_process_that_is_limited(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS), os.getpid()
    runner = Plugin(tmp_path, "observe", "memory")
    with pytest.raises(RunnerBroke, match="MemoryError"):
        runner.observe()
    assert (resource.getrlimit(resource.RLIMIT_AS), os.getpid()) == before
