"""The faults that the drill finds in a record, and its messages where it can't run. No engine is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.containers import compose
from tests.containers.compose import FILES, IMAGE, ROOT, why_no_engine
from tests.containers.drill import COUNT, Line, faults, parse, service_of, started_twice, told

#: Attempt 1 counts to 3 and dies before the line of its checkpoint 4; attempt 2 starts from that checkpoint.
SOUND = [
    Line("began", 1, 0, 10.0), Line("counted", 1, 1, 11.0), Line("counted", 1, 2, 12.0), Line("counted", 1, 3, 13.5),
    Line("began", 2, 4, 20.0), Line("counted", 2, 5, 21.0), Line("ended", 2, 5, 21.1),
]  # fmt: skip
KNOWN = {2: 3}


def test_a_job_that_ran_on_has_no_faults():
    assert faults(SOUND, KNOWN) == []
    assert told(SOUND) == "attempt 1: 0 to 3, longest pause 1.5 s; attempt 2: 4 to 5, longest pause 1.0 s"


@pytest.mark.parametrize(
    ("record", "known", "fault"),
    [
        ([*SOUND[:2], *SOUND[3:]], KNOWN, "attempt 1 counted 3 after 1"),
        (SOUND, {2: 5}, "attempt 2 began at 4, not between 5 and 4"),
        ([*SOUND[:4], Line("began", 2, 0, 20.0), Line("ended", 2, 0, 21.0)], KNOWN, "attempt 2 began at 0"),
        ([*SOUND[:4], Line("began", 1, 3, 19.0), *SOUND[4:]], KNOWN, "attempts began in the order [1, 1, 2]"),
        ([*SOUND[:5], Line("counted", 1, 4, 20.5), *SOUND[5:]], KNOWN, "attempt 1 wrote between lines of attempt 2"),
        ([*SOUND[:4], Line("ended", 1, 3, 14.0)], KNOWN, "attempts began in the order [1]"),
        (SOUND[:-1], KNOWN, "did not come to its end"),
        ([*SOUND[:-1], Line("ended", 2, 6, 21.1)], KNOWN, "attempt 2 ended 6 after 5"),
        (SOUND[1:], KNOWN, "did not begin at 0"),
        ([], KNOWN, "did not begin at 0"),
    ],
)
def test_every_fault_of_a_record_is_told(record: list[Line], known: dict[int, int], fault: str):
    assert any(fault in one for one in faults(record, known)), faults(record, known)


def test_an_attempt_with_two_processes_in_the_log_is_told():
    def running(n: int, pid: int) -> dict[str, Any]:
        return {"register": f"running/{n}", "fact": {"process": str(pid)}}

    sent_again = [running(1, 7), running(1, 7), running(2, 7), {"register": "running/2", "fact": None}]
    assert started_twice(sent_again) == []
    assert started_twice([*sent_again, running(2, 8)]) == ["the log has 2 different facts for running/2"]


def test_the_job_itself_writes_what_is_read(tmp_path: Path):
    checkpoints, record, enough = tmp_path / "checkpoints", tmp_path / "record", tmp_path / "enough"
    checkpoints.mkdir()
    (tmp_path / "base").write_text("41\n")
    enough.touch()
    environment = {"LEDGER_ATTEMPT": "2", "LEDGER_CHECKPOINT_DIR": str(checkpoints), "PATH": "/usr/bin:/bin"}
    for base, begins in (({}, 0), ({"LEDGER_RESTORE_FROM": str(tmp_path / "base")}, 41)):
        record.unlink(missing_ok=True)
        command = ["sh", "-c", COUNT, "count.sh", str(record), str(enough)]
        done = subprocess.run(command, env=environment | base, capture_output=True, text=True, check=True)
        assert done.stdout == f"counted to {begins}\n"
        assert [(one.word, one.attempt, one.n) for one in parse(record.read_text())] == [
            ("began", 2, begins), ("ended", 2, begins),
        ]  # fmt: skip


def test_a_leader_is_found_by_the_host_name_of_its_container():
    assert service_of("reconciler-2-7") == "reconciler-2"


def test_the_override_touches_no_other_cluster():
    """Every service with the project's image gets an image of its own, and no server publishes a port."""
    services = yaml.safe_load(FILES[0].read_text())["services"]
    yaml.SafeLoader.add_constructor("!reset", lambda _loader, _node: "reset")
    override = yaml.safe_load(FILES[1].read_text())["services"]
    ours = {name for name, service in services.items() if service["image"] == "jobledger"}
    assert {name for name, one in override.items() if one.get("image") == IMAGE} == ours
    assert {name for name, one in override.items() if one.get("ports") == "reset"} == {
        name for name, service in services.items() if "ports" in service
    }


def docker(folder: Path, server: str, version: str) -> None:
    """A fake `docker` that answers each of both questions with a shell command."""
    program = folder / "docker"
    program.write_text(f'#!/bin/sh\ncase "$1" in version) {server};; compose) {version};; esac\n')
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("server", "version", "reason"),
    [
        ("echo 20.10", "echo 2.40.3", "there is one"),
        ("echo 20.10", "echo v2.18.0", "there is one"),
        ("echo no daemon >&2; exit 1", "echo 2.40.3", "no engine answers docker: .*no daemon"),
        ("echo 20.10", "echo no such command >&2; exit 1", "docker has no compose: .*no such command"),
        ("echo 20.10", "echo 2.17.3", "docker compose is 2.17.3; 2.18 is the oldest that will do"),
        ("echo 20.10", "echo dev", "docker compose has a version that can't be read: 'dev'"),
    ],
)
def test_what_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, version: str, reason: str):
    docker(tmp_path, server, version)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert re.fullmatch(reason, why_no_engine() or "there is one")


def test_without_an_engine_the_program_says_so_and_ends_with_2(tmp_path: Path):
    command = [sys.executable, "-m", "tests.containers"]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "make containers needs a container engine with compose: there is no docker on PATH.\n"


def test_variables_of_another_cluster_do_not_reach_compose(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COMPOSE_FILE", "/elsewhere/compose.yml")
    assert "COMPOSE_FILE" not in compose._run(["env"], 60.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "runs"),
    [([], False), (["-m", "acceptance"], True), (["-m", "not kafka and not spark and not acceptance and not slow"], False)],
    ids=["make test", "make acceptance", "make check"],
)
def test_only_make_acceptance_starts_containers(options: list[str], runs: bool):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/containers"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ("tests/containers/test_containers.py::" in done.stdout) == runs, done.stdout + done.stderr


def test_make_containers_runs_the_program():
    command = ["make", "--no-print-directory", "--dry-run", "containers"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == ".venv/bin/python -m tests.containers"
