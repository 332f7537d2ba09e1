"""The seed of a run changes with each commit, and a given seed is used as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import seeds


@pytest.fixture(autouse=True)
def no_seed_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seeds.VARIABLE, raising=False)


def git(folder: Path, *command: str) -> str:
    done = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_each_commit_has_a_seed_of_its_own(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    hashes = []
    for n in range(2):
        author = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        git(tmp_path, *author, "commit", "-q", "--allow-empty", "-m", str(n))
        seeds.commit.cache_clear()
        hashes.append(seeds.commit(tmp_path))
    assert hashes[1] == git(tmp_path, "rev-parse", "HEAD")
    assert seeds.of_commit(hashes[0]) != seeds.of_commit(hashes[1])


def test_without_git_or_a_commit_there_is_a_seed_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert seeds.of_commit(seeds.commit(tmp_path)) == seeds.WITHOUT_GIT
    seeds.commit.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert seeds.of_commit(seeds.commit(tmp_path)) == seeds.WITHOUT_GIT


def test_the_variable_outranks_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(seeds.VARIABLE, "17")
    assert seeds.of_run() == 17
    first = seeds.of("set")
    assert first != seeds.of("order")
    monkeypatch.setenv(seeds.VARIABLE, "18")
    assert seeds.of("set") != first
    monkeypatch.setenv(seeds.VARIABLE, "17")
    assert seeds.of("set") == first


def test_a_run_says_its_seed_and_a_failure_how_to_have_it_again(pytestconfig: pytest.Config) -> None:
    said = pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=Path())
    assert seeds.said() in str(said)
    with pytest.raises(AssertionError) as raised, seeds.told():
        raise AssertionError("drawn")
    assert raised.value.__notes__ == [f"again: {seeds.VARIABLE}={seeds.of_run()}"]
