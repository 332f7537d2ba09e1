"""The lists of mutants fit the source, and the runner distinguishes a killed mutant from one that survives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutant import ROOT, Mutant, listed
from tests.mutation.page import PAGE, page
from tests.mutation.results import read
from tests.mutation.runner import NotRun, Result, run

EVERY = listed()
TESTS = """
from adding import add

def test_two():
    assert add(2, 2) == 4

def test_nought():
    assert add(1, 0) == 1
"""
MUTANTS = [mutant for mutants in EVERY.values() for mutant in mutants]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_source_and_its_tests_exist(mutant: Mutant) -> None:
    mutant.mutated((ROOT / mutant.file).read_text())
    assert mutant.killers
    for node in mutant.killers:
        file, _, function = node.partition("::")
        name = function.partition("[")[0].rpartition("::")[2]
        assert re.search(rf"def {name or 'test_'}", (ROOT / file).read_text()), node


def test_every_recorded_killer_is_collected() -> None:
    """The id of a test holds the names of its parameters. After a rename a sample of mutants could not run that test."""
    killers = {result.killer for name in EVERY for result in read(name).values() if "::" in result.killer}
    files = sorted({killer.partition("::")[0] for killer in killers})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    collected = {line.strip() for line in done.stdout.splitlines()}
    functions = {line.partition("[")[0] for line in collected}
    assert sorted(killer for killer in killers if killer not in collected | functions) == []


def test_names_are_unique() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names)


def test_what_was_written_down_says_that_all_are_dead() -> None:
    for name, mutants in EVERY.items():
        known = read(name)
        assert known.keys() == {mutant.name for mutant in mutants}, f"run python -m tests.mutation --list {name} --record"
        assert all(result.killer for result in known.values())


def test_what_was_written_down_to_have_killed_a_mutant_is_a_test_that_the_mutant_names() -> None:
    """Otherwise the list was changed after its last run."""
    for name, mutants in EVERY.items():
        known = read(name)
        for mutant in mutants:
            killer = known[mutant.name].killer
            named = any(killer == node or killer.startswith((f"{node}::", f"{node}[")) for node in mutant.killers)
            run = f"run python -m tests.mutation --list {name} --record {mutant.name}"
            assert named or killer == "time limit", f"{killer} is none of {mutant.killers}: {run}"


def test_the_page_names_every_mutant_and_its_killer() -> None:
    mutant = Mutant("wrong-sign", "ledger/a.py", "a", "b", ("tests/test_a.py",), "sums are differences")
    killed = Result("wrong-sign", "tests/test_a.py::test_b[1]", 0.4)
    made = page({"small_list": [mutant]}, {"small_list": {"wrong-sign": killed}})
    assert "## Small list" in made
    assert "| `wrong-sign` | `ledger/a.py` | sums are differences | `tests/test_a.py::test_b` | 0.4 |" in made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "adding.py").write_text("def add(a, b):\n    return a + b\n")
    (tmp_path / "tests/test_adding.py").write_text(TESTS)
    return tmp_path


def mutant(test: str, after: str = "a * b", before: str = "a + b") -> Mutant:
    return Mutant(f"{test}-{after[2]}", "adding.py", before, after, (f"tests/test_adding.py{test}",), "")


@pytest.mark.slow
def test_the_runner_tells_dead_from_alive(project: Path) -> None:
    alive, dead = mutant("::test_two"), mutant("::test_nought")
    results = run([alive, dead], project, jobs=1)
    assert [result.killer for result in results] == ["", "tests/test_adding.py::test_nought"]
    assert (project / "adding.py").read_text().count("a + b") == 1


def test_tests_that_are_red_anyway_kill_nothing(project: Path) -> None:
    (project / "adding.py").write_text("def add(a, b):\n    return a + b + 1\n")
    with pytest.raises(NotRun, match="on the unchanged source"):
        run([mutant("::test_two")], project, jobs=1)


@pytest.mark.slow
def test_however_many_cases_are_asked_for_killers_keep_their_names(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "tests/test_adding.py").write_text(f"import os\n{TESTS}\n    assert 'REPETITIONS' not in os.environ\n")
    monkeypatch.setenv("REPETITIONS", "10000")
    assert run([mutant("::test_nought")], project, jobs=1)[0].killer


@pytest.mark.slow
def test_a_mutant_that_cannot_be_imported_is_not_killed(project: Path) -> None:
    with pytest.raises(NotRun, match="exit code"):
        run([mutant("", after="a + b\n\n\nraise RuntimeError")], project, jobs=1)


@pytest.mark.parametrize("before", ["a - b", "a"])
def test_a_mutant_must_fit_the_source(before: str) -> None:
    with pytest.raises(ValueError, match="not once"):
        mutant("", before=before).mutated("def add(a, b):\n    return a + b\n")


def test_a_mutant_must_change_code() -> None:
    with pytest.raises(ValueError, match="changes no code"):
        mutant("", after="a  +  b").mutated("def add(a, b):\n    return a + b\n")


def test_the_page_is_made_from_the_lists() -> None:
    made = page(EVERY, {name: read(name) for name in EVERY})
    if (ROOT / PAGE).read_text() != made:
        pytest.fail(f"{PAGE} does not match the lists and their results. Regenerate it: python -m tests.mutation --page")
