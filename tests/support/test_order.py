"""Long files run first, and files that share a server run together on one worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import order

ROOT = Path(__file__).parents[2]
TABLE: Mapping[str, int] = {"tests/long.py": 60, "tests/b.py": 40, "tests/c.py": 20}
REPORT = """<testsuites><testsuite>
<testcase classname="tests.deep.test_a" name="test_it[x.y]" time="4.6"/>
<testcase classname="tests.deep.test_a.TestClass" name="test_it" time="3.1"/>
<testcase classname="tests.test_b" name="test_it" time="11.2"/>
<testcase classname="tests.test_short" name="test_it" time="0.3"/>
<testcase classname="tests.test_gone" name="test_it" time="99"/>
</testsuite></testsuites>"""
WHERE = """
import os, pathlib, pytest

@pytest.mark.parametrize("n", range(3))
def test_it(n):
    with pathlib.Path(os.environ["TOLD"]).open("a") as told:
        print(os.environ["PYTEST_XDIST_WORKER"], pathlib.Path(__file__).name, file=told)
"""


def test_each_file_that_is_named_exists() -> None:
    assert [file for file in {**order.known(), **order.SHARED} if not (ROOT / file).is_file()] == []


def test_make_test_keeps_the_order_tells_the_longest_and_leaves_the_report() -> None:
    (recipe,) = re.findall(r"^test:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    report = order.REPORT.relative_to(ROOT)
    wanted = {"--dist loadfile", "--no-loadscope-reorder", "--durations=25", f"--junitxml={report}", "$(PATIENT)"}
    assert {option for option in wanted if option not in recipe} == set()


def test_the_longest_come_first_and_what_is_shared_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "known", lambda: TABLE)
    monkeypatch.setattr(order, "SHARED", {"tests/b.py": "a server", "tests/c.py": "a server"})
    files = ["tests/z.py", "tests/c.py", "tests/a.py", "tests/long.py", "tests/d.py", "tests/b.py"]
    assert sorted(files, key=order.rank) == [
        "tests/c.py", "tests/b.py", "tests/long.py", "tests/z.py", "tests/a.py", "tests/d.py",
    ]  # fmt: skip


def test_the_table_is_made_of_a_report(tmp_path: Path) -> None:
    for name in ("tests/deep/test_a.py", "tests/test_b.py", "tests/test_short.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    told = order.table(order.measured(REPORT, tmp_path))
    assert told == "   11 tests/test_b.py\n    8 tests/deep/test_a.py\n"


@pytest.mark.slow
def test_one_worker_runs_what_is_shared_and_the_longest_come_first(tmp_path: Path) -> None:
    """The hooks of tests/conftest.py do it. Without them, each of the two workers would get one of the two files."""
    together = [file for file, shared in order.SHARED.items() if shared == "a running ledger"][:2]
    for file in together:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(WHERE)
    pytest_here = [
        sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-c", os.devnull, "--rootdir", str(tmp_path), "-p",
        "no:cacheprovider", "--import-mode=importlib", str(tmp_path),
    ]  # fmt: skip
    told = tmp_path / "told"
    done = subprocess.run(
        [*pytest_here, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"], cwd=ROOT, capture_output=True, text=True,
        check=False, env={**os.environ, "TOLD": str(told)},
    )  # fmt: skip
    ran = [line.split() for line in told.read_text().splitlines()]
    assert len(ran) == 6 and len({worker for worker, _ in ran}) == 1, done.stdout

    longest = tmp_path / next(iter(order.known()))
    longest.parent.mkdir(parents=True, exist_ok=True)
    longest.write_text(WHERE)
    (tmp_path / "test_a.py").write_text(WHERE)
    done = subprocess.run([*pytest_here, "--collect-only"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]
    ranks = [order.rank(name) for name in names]
    assert ranks == sorted(ranks) and len(ranks) == 12, done.stdout
    assert names[-1] == "test_a.py"
