"""The acceptance program: the parts of the test suite that repeat, at full size, in slices that can be resumed.

    python -m tests.acceptance.program --hours 1          the parts that are furthest from their goals
    python -m tests.acceptance.program --part moments     one slice of one part
    python -m tests.acceptance.program --page             rewrites the section of docs/RELIABILITY.md

A slice is one run of pytest. Its record is one line of docs/acceptance.jsonl, written when the slice ends; an
interrupted slice leaves no record. The records show the progress, so the program continues where an earlier one
stopped. The seed of a slice comes from the commit, and is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "docs" / "acceptance.jsonl"
PAGE = ROOT / "docs" / "RELIABILITY.md"
BEGIN, END = "<!-- acceptance: begin -->\n", "<!-- acceptance: end -->\n"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Part:
    """nodes: the tests for pytest. each: the count of one slice, in `unit`. goal: the count wanted in total. about_s:
    the duration of a slice, until a record gives it. episodes: how many times each test runs in a slice. marks: for
    `-m`. only: for `-k`. faults: by the names of `FAULTS`, how often one unit meets each."""

    name: str
    what: str
    nodes: tuple[str, ...]
    unit: str
    each: int
    goal: int
    about_s: float
    environment: dict[str, str] = field(default_factory=dict)
    episodes: int = 0
    marks: str = "not containers"
    only: str = ""
    faults: dict[str, int] = field(default_factory=dict)


#: How often each fault is to be injected on real servers.
MEETINGS = 60
FAULTS = {
    "F1": "a leader is killed (kill -9)",
    "F5": "a leader hangs for longer than its lease, and continues after another leader",
    "F6": "a candidate fences its predecessor after its own lease has expired",
    "F7": "a leader loses its connection to the election's servers, but not to Kafka",
    "F15": "a job ends while the leader changes",
    "F28": "the end of a transaction arrives late",
    "F34": "three faults in any order",
}
LIVES = tuple(
    f"tests/archive/{name}.py"
    for name in ("store/test_archiving", "store/test_compaction", "store/test_verifying", "snapshots/test_expiry_gaps",
                 "snapshots/test_snapshots_expired", "removal/test_expiring", "removal/test_rewriting_altered",
                 "removal/test_rewriting_beside_others", "query/test_querying")
)  # fmt: skip
ONE_WRITER = "tests/scenarios/test_one_writer.py"
ONE_WRITER_AFTER = f"{ONE_WRITER}::test_each_epoch_has_one_writer_and_the_projection_is_exact"


RECONCILER = "tests/scenarios/test_reconciler_fails_over.py"


def _episodes(
    name: str, what: str, node: str, goal: int, about_s: float, each: int = 10, only: str = "", **faults: int
) -> Part:
    return Part(name, what, (node,), "episodes", each, goal, about_s, {"REPETITIONS": "1"}, each, only=only, faults=faults)


PARTS: tuple[Part, ...] = (
    Part("archive-mutations", "one change at a time to an archive of 100,000 records; each is found and named",
         ("tests/archive/store/test_hundred_thousand.py",), "mutations", 1000, 1000, 600, {"MUTATIONS": "1000"}),
    Part("moments", "the ledger at a past moment, compared with an independent fold of a full copy of the log",
         ("tests/history/test_resolve_moment.py",), "moments", 1000, 1000, 600, {"MOMENTS": "1000"}),
    Part("archive-load", "archiver, broker and disk space fail at random; each acknowledged event is in the archive once",
         ("tests/archive/store/test_load.py",), "events", 200_000, 200_000, 900, {"EVENTS": "200000"}),
    Part("archive-lives", "random histories of an archive: kills, changes, compaction, expiry, redaction, queries",
         LIVES, "seeds", 25, 25, 600, {"REPETITIONS": "25"}),
    Part("client-lives", "random histories, read by the client and by a cold start",
         ("tests/history/test_historical_log.py", "tests/history/test_cold_start.py"), "seeds", 25, 25, 600,
         {"REPETITIONS": "25"}),
    Part("mutants", "each listed mutant of the source whose test needs no server is still detected by that test",
         ("tests/mutation/test_sample.py",), "run", 1, 1, 400, {"REPETITIONS": "10000"}),
    Part("walks", "random walks of the whole ledger in virtual time",
         ("tests/simulation/test_walk.py::test_many_walks_end_well",), "walks", 500, 2000, 450,
         {"REPETITIONS": "1", "LEDGER_SIMULATION_SEEDS": "500"}),
    Part("race", "all interleavings of one job and one leadership event",
         ("tests/simulation/test_race.py::test_every_schedule_of_a_race_to_a_greater_depth",), "schedules",
         130_478, 130_478, 1800, {"REPETITIONS": "1"}),
    Part("lost-markers", "a broker dies between a commit and its end markers",
         ("tests/adapters/test_lost_markers.py",), "run", 1, 1, 300, {"REPETITIONS": "1"}),
    Part("containers", "docker-compose.yml in a container engine, with kills (see below)",
         ("tests/containers/test_containers.py",), "run", 1, 1, 900, marks="containers"),
    Part("projector-killed", "kill -9 of the leading projector at each of six failpoints",
         ("tests/acceptance/test_transactions.py::test_the_leading_projector_is_killed",), "kills at each failpoint", 10,
         10, 1200, {"REPETITIONS": "10"}, faults={"F1": 6}),
    _episodes("projector-stopped", "SIGSTOP of the leading projector for three sessions", ONE_WRITER_AFTER, 60, 300,
              only="stopped", F5=1),
    _episodes("projector-late", "a new projector initialises its writer after its lease has expired",
              f"{ONE_WRITER}::test_a_late_init_disturbs_once_and_writes_nothing", 30, 450, F6=1),
    _episodes("projector-cut-off", "the leading projector loses ZooKeeper, but not Kafka",
              f"{ONE_WRITER}::test_a_leader_that_loses_zookeeper_alone_stops_before_another_can_lead", 50, 600, F7=1),
    _episodes("late-commit", "the end of a transaction arrives late, during the next transaction",
              "tests/adapters/test_kafka_faults.py::test_a_writer_whose_commit_was_shaken_writes_no_more", 60, 300,
              each=60, F28=1),
    Part("reconciler-killed", "kill -9, and SIGSTOP past the lease, of the leading reconciler at each of eight "
         "failpoints, half of them while a job ends, with both elections",
         (f"{RECONCILER}::test_killed_or_stopped_at_each_failpoint",),
         "kills and as many stops", 16, 64, 200, {"REPETITIONS": "1"}, faults={"F1": 1, "F5": 1, "F15": 1}),
    _episodes("reconciler-late", "a new reconciler initialises its writer after its lease has expired, with both elections",
              f"{RECONCILER}::test_a_late_init_disturbs_once_and_writes_nothing", 15, 200, each=5, F6=2),
    _episodes("reconciler-troubles", "each fault of the leading reconciler, with both elections",
              f"{RECONCILER}::test_after_each_trouble_another_goes_on", 10, 500, each=5, F1=2, F5=2, F7=1),
    _episodes("any-three", "three faults of any role in any order, with both elections",
              f"{RECONCILER}::test_three_troubles_of_any_role_in_any_order", 30, 400, each=5, F34=2),
)  # fmt: skip


class Record(NamedTuple):
    """One slice. count: in the part's unit; 0 unless the slice passed. tests: how many of pytest's tests passed. s:
    seconds. date: when the slice began, UTC. failed: names of the tests that did not pass."""

    part: str
    commit: str
    seed: int
    count: int
    outcome: str
    tests: int
    s: float
    date: str
    failed: list[str]


# -- progress, and the next slice --------------------------------------------------------------------------------------


def read_records(path: Path = RECORDS) -> list[Record]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [Record(**json.loads(line)) for line in lines]


def done(part: Part, records: Sequence[Record]) -> int:
    """How many units passed since the last failure. This number bounds the failure rate."""
    total = 0
    for record in records:
        if record.part == part.name and record.outcome != SKIPPED:
            total = 0 if record.outcome == FAILED else total + record.count
    return total


def met(fault: str, records: Sequence[Record], parts: Sequence[Part] = PARTS) -> int:
    """How often this fault was injected without a failure, since the last failure of each part that injects it."""
    return sum(done(part, records) * part.faults.get(fault, 0) for part in parts)


def choose(
    parts: Sequence[Part], records: Sequence[Record], left_s: float, passed_over: Collection[str] = ()
) -> Part | None:
    """The part that is furthest from its goal and fits into the remaining time; None if none does.

    A part that has reached its goal is not run again.
    """
    lasted = {record.part: record.s for record in records if record.outcome != SKIPPED}
    open_ = [
        part
        for part in parts
        if part.name not in passed_over and done(part, records) < part.goal
        and lasted.get(part.name, part.about_s) <= left_s
    ]  # fmt: skip
    return min(open_, key=lambda part: done(part, records) / part.goal, default=None)


def slices(part: Part, commit: str, records: Sequence[Record]) -> int:
    """How many slices of the part this commit has run. A record holds the beginning of its commit's hash."""
    return sum(one.part == part.name and commit.startswith(one.commit) for one in records)


def seed_of(commit: str, slices: int) -> int:
    """The seed of the next slice. slices: how many of the part's slices this commit has run. No two slices share a
    seed."""
    return 1 + int(commit[:8], 16) % 1_000_000 + 10_000 * slices


# -- one slice ---------------------------------------------------------------------------------------------------------


def run(part: Part, commit: str, records: Sequence[Record]) -> Record:
    seed = seed_of(commit, slices(part, commit, records))
    environment = {**os.environ, **part.environment, "SEED": str(seed)}
    command = [sys.executable, "-m", "pytest", "-q", "-m", part.marks, "-p", "no:cacheprovider"]
    if part.episodes:
        command += ["-p", "tests.acceptance.repeated"]
        environment["EPISODES"] = str(part.episodes)
    if part.only:
        command += ["-k", part.only]
    date, began = datetime.now(UTC), time.monotonic()
    print(f"{date:%H:%M:%S} {part.name}: {part.each} {part.unit}, SEED={seed} of {commit[:12]}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run([*command, f"--junitxml={report}", *part.nodes], env=environment, cwd=ROOT, check=False)
        outcome, tests, failed = judged(report.read_text() if report.exists() else "")
    count = part.each if outcome == PASSED else 0
    return Record(
        part.name, commit[:12], seed, count, outcome, tests, round(time.monotonic() - began, 1), f"{date:%Y-%m-%d}", failed
    )


def judged(report: str) -> tuple[str, int, list[str]]:
    """The outcome, the number of passed tests, and the names of the others. report: pytest's, as JUnit XML.

    A slice with a skipped test counts for nothing, as it shows nothing about that test. Raises: SystemExit if no test
    was run. Such a slice gets no record: the part is wrong, not the ledger.
    """
    cases = list(ElementTree.fromstring(report).iter("testcase")) if report else []
    if not cases:
        sys.exit("No test was run. See pytest's output above.")
    failed = [f"{case.get('name')}" for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [f"{case.get('name')}" for case in cases if case.find("skipped") is not None]
    passed = len(cases) - len({*failed}) - len(skipped)
    if failed:
        return FAILED, passed, sorted(failed)
    return (SKIPPED, passed, skipped) if skipped else (PASSED, passed, [])


def at_commit() -> str:
    """The hash of the current commit. Raises: SystemExit if files differ from the commit: records would name code that
    nobody can look up."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    own = {str(path.relative_to(ROOT)) for path in (RECORDS, PAGE)}
    if changed := [line for line in git("status", "--porcelain").splitlines() if line[3:] not in own]:
        sys.exit("Commit these first: a record names the commit that was tested.\n" + "\n".join(changed))
    return git("rev-parse", "HEAD").strip()


# -- the page ----------------------------------------------------------------------------------------------------------


def section(records: Sequence[Record], parts: Sequence[Part] = PARTS) -> str:
    """The tables of docs/RELIABILITY.md: for each part its progress, last run and commit; for each fault how often it
    was met."""
    lines = [
        "| part | test | done | goal | failed runs | last run |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for part in parts:
        ran = [record for record in records if record.part == part.name and record.outcome != SKIPPED]
        failed = sum(record.outcome == FAILED for record in ran)
        last = f"{ran[-1].date}, `{ran[-1].commit}`, {_minutes(ran[-1].s)}" if ran else "never"
        lines.append(
            f"| {part.name} | {part.what} | {done(part, records):,} | {part.goal:,} {part.unit} | {failed} | {last} |"
        )
    lines += ["", f"| fault | times injected (goal: {MEETINGS}) | in the parts |", "| --- | --- | --- |"]
    for name, what in FAULTS.items():
        own = ", ".join(part.name for part in parts if name in part.faults)
        lines.append(f"| {name}: {what} | {met(name, records, parts)} | {own} |")
    return "\n".join(lines) + "\n"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def with_section(text: str, table: str) -> str:
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no section between {BEGIN.strip()} and {END.strip()}"
    return f"{head}{BEGIN}{table}{END}{tail}"


def write_page() -> None:
    PAGE.write_text(with_section(PAGE.read_text(), section(read_records())))


# -- the command line --------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.program")
    parser.add_argument("--hours", type=float, default=float("inf"), help="begin no slice that would end later")
    parser.add_argument("--part", action="append", choices=[part.name for part in PARTS], help="one slice of each named")
    parser.add_argument("--page", action="store_true", help="write the section of docs/RELIABILITY.md, and run nothing")
    parser.add_argument("--list", action="store_true", help="what is done, and run nothing")
    given = parser.parse_args(arguments)
    if given.list:
        print(section(read_records()), end="")
        return 0
    if not given.page:
        return _run(given.part or [], given.hours * 3600)
    write_page()
    return 0


def _run(named: list[str], seconds: float) -> int:
    """The exit code: 1 if a slice failed, else 0."""
    commit, ends = at_commit(), time.monotonic() + seconds
    passed_over, failed = set[str](), False
    waiting = [part for name in named for part in PARTS if part.name == name]
    while True:
        records, left_s = read_records(), ends - time.monotonic()
        if named:
            part = waiting.pop(0) if waiting else None
        else:
            part = choose(PARTS, records, left_s, passed_over)
        if part is None:
            return int(failed)
        record = run(part, commit, records)
        with RECORDS.open("a") as lines:
            lines.write(json.dumps(record._asdict()) + "\n")
        write_page()
        print(f"{part.name}: {record.outcome} after {record.s:.0f} s {record.failed or ''}", flush=True)
        # not again in this run: a prerequisite is missing, or somebody must look at the failure first
        if record.outcome != PASSED:
            passed_over.add(part.name)
        failed |= record.outcome == FAILED


if __name__ == "__main__":
    sys.exit(main())
