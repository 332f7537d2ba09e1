"""The story of the demonstration, scene by scene, and the checks at its end."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

from ledger.config.config import load_config
from ledger.core.model.recovery import JobState
from ledger.demo.stage import Stage
from ledger.errors import LedgerError
from ledger.reader.reading import Tail

WORDS, TICKER, POISON, CANCELED, TWICE = "word-count", "ticker", "poison", "changed-my-mind", "only-once"
CHECKPOINT_EVERY = 50  # files
SECONDS = 20.0  # least duration of the word count, so that people can watch it and it is killed before its end


class Check(NamedTuple):
    """One condition that is checked at the end of the demonstration, for people. what: the condition. holds: whether it
    is true. seen: the evidence."""

    holds: bool
    what: str
    seen: str


class Story:
    """Plays all scenes on a stage. inputs: files or folders whose words are counted; [] = the sources of Python's
    standard library."""

    def __init__(self, stage: Stage, inputs: Sequence[Path] = ()) -> None:
        self.stage, self.folder = stage, stage.folder
        self.files = input_files(inputs)
        self.props = self.folder / "demo"
        self.output, self.end_of_ticker = self.props / "counts.json", self.props / "enough"
        self.killed_after = 0

    def play(self) -> list[Check]:
        self.prepare()
        self.submit_jobs()
        self.quarantine()
        self.cancel()
        self.count_words()
        self.crash()
        self.fail_over()
        self.finish()
        return self.checks()

    # -- scenes --------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        stage = self.stage
        stage.scene("A ledger in one folder: a Kafka broker, two projectors, a Spark reconciler, a runner agent")
        self.props.mkdir(parents=True, exist_ok=True)
        size_mb = sum(f.stat().st_size for f in self.files) / 1e6
        (self.props / "files.txt").write_text("\n".join(map(str, self.files)))
        stage.command("up", "--detach", "--projectors", "2")
        stage.tell(f"the work: count the words of {len(self.files)} files, {size_mb:.1f} MB")

    def submit_jobs(self) -> None:
        stage = self.stage
        stage.scene("Four jobs: one that runs for long, a poisonous one, one to be canceled, one submitted twice")
        with as_file(files("ledger.demo") / "jobs" / "ticker.py") as script:
            stage.command(
                "submit", "--id", TICKER, "--name", TICKER, "--graph", str(script), "--",
                sys.executable, "ticker.py", str(self.end_of_ticker),
            )  # fmt: skip
        stage.command(
            "submit", "--id", POISON, "--name", POISON, "--restart", "fixed-delay:1:0.2", "--",
            sys.executable, "-c", "raise SystemExit('this graph kills whoever runs it')",
        )  # fmt: skip
        stage.command("submit", "--id", CANCELED, "--name", CANCELED, "--", "sleep", "600")
        asked = self.props / "asked"  # the job does not end, and is not retired, before it is submitted again
        waiting = "echo once >> $0; until [ -e $1 ]; do sleep 0.1; done"
        once = ("submit", "--id", TWICE, "--name", TWICE, "--", "sh", "-c", waiting, str(self.props / "once"), str(asked))
        stage.command(*once)
        stage.tell("the same again, like a client that got no answer; then another job under that id")
        stage.command(*once)
        stage.command("submit", "--id", TWICE, "--name", TWICE, "--", "false", expect=(5,))
        asked.touch()
        self.ticker_pid = stage.until("the ticker runs", lambda: stage.pid_of(TICKER))

    def quarantine(self) -> None:
        self.stage.scene("The poisonous job harms no other job, and its quarantine has a reason")
        self.stage.until("the poison is quarantined", lambda: self.stage.state(POISON) == "QUARANTINED")
        self.stage.command("list")

    def cancel(self) -> None:
        self.stage.scene("A job is canceled")
        self.stage.until(f"{CANCELED} runs", lambda: self.stage.pid_of(CANCELED))
        self.stage.command("cancel", CANCELED, "--reason", "changed my mind")

    def count_words(self) -> None:
        self.stage.scene("A fifth job does some work: it counts words, with a checkpoint every 50 files")
        with as_file(files("ledger.demo") / "jobs" / "wordcount.py") as script:
            self.stage.command(
                "submit", "--id", WORDS, "--name", WORDS, "--restart", "fixed-delay:5:1",
                "--graph", str(script), "--graph", str(self.props / "files.txt"), "--",
                sys.executable, "wordcount.py", "files.txt", str(self.output),
                "--checkpoint-every", str(CHECKPOINT_EVERY), "--seconds", str(SECONDS),
            )  # fmt: skip

    def crash(self) -> None:
        stage = self.stage
        stage.scene("The word count is killed half-way, and resumes from its checkpoint")

        def half_way() -> int | None:
            entry = stage.entry(WORDS)
            done = entry.restore_points[0].id if entry and entry.restore_points else 0
            return done if done >= len(self.files) * 0.35 else None

        half = stage.until("more than a third of the files are in a checkpoint", half_way, timeout_s=90)
        pid = stage.until(f"its newest checkpoint holds {half} files", lambda: stage.pid_of(WORDS))
        stage.kill(pid, "the word count")
        entry = stage.until("attempt 2 runs", lambda: self._attempt(2), timeout_s=60)
        base = entry.base
        stage.tell(f"attempt 2 started from restore point {base}, the newest of attempt 1")

    def _attempt(self, n: int):  # type: ignore[no-untyped-def]
        entry = self.stage.entry(WORDS)
        return entry if entry and entry.attempt == n and entry.state is JobState.RUNNING and entry.known else None

    def fail_over(self) -> None:
        stage = self.stage
        stage.scene("The leading projector is killed, then the reconciler; no job is affected")
        first = stage.leader("projector")
        assert first is not None
        stage.kill(first, "the leading projector")
        stage.until("the other projector leads", lambda: (stage.leader("projector") or first) != first)
        reconciler = stage.leader("reconciler")
        assert reconciler is not None
        stage.kill(reconciler, "the reconciler")
        stage.until(
            "a new reconciler leads", lambda: (stage.leader("reconciler") or reconciler) != reconciler, timeout_s=90
        )
        stage.command("leader")
        stage.tell(f"the ticker is still process {stage.pid_of(TICKER)}; it was {self.ticker_pid}")

    def finish(self) -> None:
        stage = self.stage
        stage.scene("The jobs finish, and only their results remain")
        stage.command("wait", WORDS)
        self.ticker_attempts = [(a.n, int(a.engine_id)) for a in stage.attempts(TICKER)]
        self.end_of_ticker.touch()
        stage.command("wait", TICKER)
        over = {WORDS, TICKER, CANCELED, TWICE}
        stage.until("all jobs that are over have left the recovery set", lambda: not over & set(stage.entries()))
        stage.command("list", "--all")
        stage.command("explain", POISON, show=12)

    # -- checks --------------------------------------------------------------------------------------------------------

    def checks(self) -> list[Check]:
        self.stage.scene("Is it all true?")
        tests: list[Callable[[], Check]] = [
            self._counts, self._redone, self._retired, self._untouched, self._quarantined, self._canceled, self._once,
            self._replay,
        ]  # fmt: skip
        checks = [test() for test in tests]
        for check in checks:
            self.stage.tell(f"{'ok    ' if check.holds else 'FAILED'} {check.what}: {check.seen}")
        return checks

    def _counts(self) -> Check:
        counted, direct = json.loads(self.output.read_text()), direct_count(self.files)
        return Check(
            counted == dict(direct), "word counts equal a direct count exactly",
            f"{sum(counted.values())} words, {sum(direct.values())} counted directly, {len(direct)} different",
        )  # fmt: skip

    def _redone(self) -> Check:
        """The work that was done twice, from the job's own log: the last file of attempt 1, and the first of attempt
        2."""
        logged = self.stage.command("logs", WORDS, "--attempt", "1", show=0) + self.stage.command(
            "logs", WORDS, "--attempt", "2", show=0
        )
        came_to = max(int(n) for n in re.findall(r"counted (\d+)", logged.partition("attempt 2 begins")[0]))
        found = re.search(r"attempt 2 begins at file (\d+)", logged)
        redone = came_to - int(found.group(1)) if found else came_to
        return Check(
            found is not None and 0 <= redone <= CHECKPOINT_EVERY, "work redone after the crash is at most one interval",
            f"{redone} files of {CHECKPOINT_EVERY} between checkpoints (killed at {came_to})",
        )  # fmt: skip

    def _retired(self) -> Check:
        source = self.stage.source
        with Tail(source, [source.topics.recovery]) as tail:
            last = {record.key(): record.value() for records in tail.to_end() for record in records}
        over = [WORDS, TICKER, CANCELED, TWICE]
        gone = all(last.get(job.encode(), b"never there") is None for job in over)
        blobs = [job for job in over if any((load_config(self.folder).dir / "blobs" / "graphs" / job).glob("*"))]
        return Check(
            gone and not blobs, "finished jobs have left the recovery topic, and their blobs are gone",
            f"{len(over)} tombstones, blobs left: {blobs or 'none'}",
        )  # fmt: skip

    def _untouched(self) -> Check:
        return Check(
            self.ticker_attempts == [(1, self.ticker_pid)], "the long job's process was never restarted",
            f"attempts and their processes: {self.ticker_attempts}",
        )  # fmt: skip

    def _quarantined(self) -> Check:
        entry = self.stage.entry(POISON)
        holds = entry is not None and entry.state is JobState.QUARANTINED and "kills whoever runs it" in entry.reason
        return Check(holds, "the poison is listed as quarantined", entry.reason[:100] if entry else "no entry")

    def _canceled(self) -> Check:
        said = self.stage.command("show", CANCELED, "-o", "json", show=0)
        state = json.loads(said)["state"]
        return Check(state == "CANCELED" and not self.stage.attempts(CANCELED), "the canceled job is over", state)

    def _once(self) -> Check:
        ran = (self.props / "once").read_text().splitlines()
        return Check(ran == ["once"], "the job submitted twice ran once", f"ran {len(ran)} times")

    def _replay(self) -> Check:
        try:
            said = self.stage.command("replay")
        except LedgerError as error:
            return Check(False, "replay finds no difference", str(error))
        return Check(True, "replay finds no difference", said.strip().splitlines()[-1])


def input_files(inputs: Sequence[Path]) -> list[Path]:
    """The files to count: those in `inputs`; by default Python's standard library, which is on every machine."""
    if not inputs:
        library = Path(sysconfig.get_path("stdlib"))
        found = [p for p in library.rglob("*.py") if "site-packages" not in p.parts]
    else:
        found = [p for i in inputs for p in ([i] if i.is_file() else i.rglob("*")) if p.is_file()]
    return sorted(p.resolve() for p in found)


def direct_count(paths: Sequence[Path]) -> Counter[str]:
    """The word counts of the same files by another method: at once, split at every character that is not a letter."""
    total: Counter[str] = Counter()
    no_letter = bytes(c if chr(c).isalpha() and c < 128 else 32 for c in range(256))
    for path in paths:
        total.update(path.read_bytes().translate(no_letter).decode("ascii").lower().split())
    return total


def play(folder: Path, inputs: Sequence[Path], say: Callable[[str], None]) -> bool:
    """Plays the story and stops the ledger that it started. Returns whether every check held."""
    stage = Stage(folder, say)
    began = time.monotonic()
    try:
        checks = Story(stage, inputs).play()
    finally:
        stage.scene("Curtain")
        stage.command("down", "--jobs", show=3)
    failed = [check.what for check in checks if not check.holds]
    say("")
    took = f"{time.monotonic() - began:.0f} s"
    say(f"{len(checks) - len(failed)} of {len(checks)} checks passed in {took}" + (f"; FAILED: {failed}" if failed else ""))
    return not failed
