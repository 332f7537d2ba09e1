"""The tests that are tried once more, by the options of `make test` and the hooks of tests/conftest.py."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
(PATIENT,) = re.findall(r"^PATIENT := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

ENDS_ONCE = """
import pathlib
from ledger.errors import PermanentError
from tests.support.waiting import NotInTime, until

def first(name):
    path = pathlib.Path(__file__).with_name(name)
    return not path.exists() and path.touch() is None

def test_deadline():
    if first("a"):
        until(lambda: False, "it is there", 0)

def test_deadline_within_a_fixture(late): pass

def test_wrong_value():
    if first("b"):
        assert "QUARANTINED: not within 60 s: more than 2 failures within 60 s" == "NotInTime: RUNNING"

def test_cause():
    if first("c"):
        try:
            raise FileNotFoundError("a graph")
        except FileNotFoundError as error:
            raise PermanentError("graph is missing") from error

def test_wrong_after_a_deadline():
    if first("d"):
        try:
            until(lambda: False, "it is there", 0)
        except NotInTime as error:
            raise AssertionError("wrong") from error

def test_hangs():
    if first("e"):
        raise TimeoutError("Timeout >60 s: timed out after 60 s, not within 60 s")
"""
FIXTURE = """
import pathlib, pytest
from tests.support.waiting import NotInTime

@pytest.fixture
def late():
    path = pathlib.Path(__file__).with_name("f")
    if not path.exists():
        path.touch()
        raise NotInTime("not within 1 s: a server")
"""
LATE_ONCE = """
import pathlib, pytest
from tests.support.waiting import NotInTime

@pytest.mark.parametrize("n", range(4))
def test_late(n):
    path = pathlib.Path(__file__).with_name(f"late-{n}")
    if not path.exists():
        path.touch()
        raise NotInTime("not within 1 s: it is there")
"""


def ran(folder: Path, *options: str) -> tuple[int, str]:
    """(exit code, output) of the tests in a folder."""
    command = [
        sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", os.devnull, "--rootdir", str(folder), "-p",
        "no:cacheprovider", "-rfER", *shlex.split(PATIENT), *options, str(folder),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.slow
def test_only_what_was_late_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "test_once.py").write_text(ENDS_ONCE)
    (tmp_path / "conftest.py").write_text(FIXTURE)
    code, told = ran(tmp_path)
    again = set(re.findall(r"^RERUN \S+::(\w+)", told, re.MULTILINE))
    failed = set(re.findall(r"^FAILED \S+::(\w+)", told, re.MULTILINE))
    assert (code, again) == (1, {"test_deadline", "test_deadline_within_a_fixture"}), told
    assert failed == {"test_wrong_value", "test_cause", "test_wrong_after_a_deadline", "test_hangs"}, told


@pytest.mark.slow
def test_of_a_run_three_may_be_late_and_the_fourth_has_failed(tmp_path: Path) -> None:
    """The limit holds for all workers together, here two."""
    (tmp_path / "test_late.py").write_text(LATE_ONCE)
    code, told = ran(tmp_path, "-n", "2")
    assert (code, told.count("RERUN")) == (1, 3), told
    assert "1 failed, 3 passed, 3 rerun" in told, told
