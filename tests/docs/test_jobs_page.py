"""The page for writers of jobs: its programs are the files that the tests run; its lists and numbers match the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess import graph, prepare
from ledger.cli import parsing
from ledger.core.fold.restart import FailureHistory, after_failure
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model import facts, registers
from ledger.core.model.facts import RestartKind, RestartPolicy
from ledger.operations import client
from tests.support.pages import ROOT, blocks

PAGE = (ROOT / "docs" / "JOBS.md").read_text()
SHOWN = {block.info.split()[1]: block.lines for block in blocks(PAGE) if block.info.startswith("python ")}
PROGRAMS = sorted((ROOT / "docs" / "jobs").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_the_program_that_is_shown_is_the_file_that_tests_run(program: Path) -> None:
    assert list(SHOWN[program.relative_to(ROOT).as_posix()]) == program.read_text().splitlines()


def test_every_program_on_the_page_is_a_file() -> None:
    assert {(ROOT / name) for name in SHOWN} == set(PROGRAMS)


def test_the_environment_is_listed_whole() -> None:
    own = {"LEDGER_JOB_ID", "LEDGER_ATTEMPT", "LEDGER_GRAPH_DIR", "LEDGER_CHECKPOINT_DIR", "LEDGER_RESTORE_FROM"}
    assert [name for name in own if f"| `{name}` |" not in PAGE] == []
    (inherited,) = [part for part in PAGE.split("\n\n") if part.startswith("The rest of the environment")]
    passed, not_passed = inherited.split("**No others are copied**")
    assert [name for name in prepare.INHERITED if f"`{name}`" not in passed] == []
    assert [name for name in prepare.INHERITED if f"`{name}`" in not_passed] == []


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"keeps the newest {RESTORE_POINTS}," in PAGE
    assert f"after a grace period of {graph.STOP_GRACE_S:g} s" in " ".join(PAGE.split())
    assert f"waits {prepare.SAVEPOINT_GRACE_S:g} s for the savepoint" in PAGE
    assert f"then waits in vain for {client.SAVEPOINT_S:g} s" in PAGE
    assert (prepare.LOG_FILES, prepare.LOG_BYTES_MAX) == (4, 4 << 20) and "four of 4 MiB each" in PAGE
    assert registers.CHECKPOINT_ID_MAX == 2**63 - 1 and "2⁶³−1" in PAGE
    assert facts.StallPolicy().intervals_max in (0, 3) and "After three" in PAGE


def test_the_worker_runs_by_itself_where_a_fallback_is_named(tmp_path: Path) -> None:
    """The page says that the program can be tried by hand, without the ledger."""
    program = (ROOT / "docs" / "jobs" / "worker.py").read_text()
    (tmp_path / "worker.py").write_text(program.replace("ledger.job()", 'ledger.job(fallback="checkpoints")'))
    (tmp_path / "numbers.txt").write_text("1\n2\n3\n")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LEDGER_")}
    for script, code, said in (("worker.py", 0, "the sum of 3 numbers is 6"), (PROGRAMS[-1], 1, "did not start this")):
        run = subprocess.run([sys.executable, str(script), "numbers.txt"], cwd=tmp_path, env=environment,
                             capture_output=True, text=True, check=False)  # fmt: skip
        assert (run.returncode, said in run.stdout + run.stderr) == (code, True), run.stderr


def test_the_policies_are_those_that_submit_takes() -> None:
    table = re.findall(r"^\| `([^`]+)` \| `([^`]+)`", PAGE.partition("### Restart policies")[2], re.MULTILINE)
    assert ", ".join(sorted(form for form, _ in table)) == ", ".join(sorted(re.split(", | or ", parsing.RESTART_FORMS)))
    policies = {form.partition("[")[0]: parsing.restart_policy(example) for form, example in table}
    assert policies["exponential-delay"] == parsing.restart_policy(None)
    assert policies["fixed-delay"] == RestartPolicy(RestartKind.FIXED_DELAY, attempts_max=2, delay_s=1.0)
    assert policies["failure-rate"].failure_rate_interval_s == 600.0
    verdicts = [
        after_failure(policies["fixed-delay"], FailureHistory(failures), 0.0, "job-1", 2).exhausted for failures in range(3)
    ]
    assert verdicts == [False, False, True], "three attempts"
