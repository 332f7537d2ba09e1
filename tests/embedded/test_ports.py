"""Embedded servers get free ports of the range in the environment. Each worker of a test run has its own range."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.embedded import ports
from ledger.errors import ConfigError
from tests.support import servers

ROOT = Path(__file__).parents[2]
TOLD = """
import os, pathlib, pytest

@pytest.mark.parametrize("n", range(4))
def test_it(n):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    pathlib.Path(__file__).with_name(f"told-{worker}").write_text(os.environ.get("JOBLEDGER_PORTS", ""))
"""


def test_they_are_of_the_range_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ports.VARIABLE, "24000-24009")
    seen = {port for _ in range(200) for port in ports.free_ports(1)}
    # Other processes of this machine may hold some of them.
    assert len(seen) > 1 and seen <= {*range(24_000, 24_010)}


def test_both_ends_of_the_range_belong_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = ports.free_ports(1)
    monkeypatch.setenv(ports.VARIABLE, f"{port}-{port}")
    assert ports.free_ports(1) == [port]


def test_a_range_of_which_all_are_held_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((ports.HOST, 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setenv(ports.VARIABLE, f"{port}-{port}")
        with pytest.raises(ConfigError, match=f"between {port} and {port}$"):
            ports.free_ports(1)


@pytest.mark.parametrize("text", ["20000", "a-b", "20001-20000", "-", "0-10", "65000-65536", "20000-20009-20019"])
def test_what_is_no_range_is_an_error_that_names_the_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ports.VARIABLE, text)
    with pytest.raises(ConfigError, match=ports.VARIABLE):
        ports.free_ports(1)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_no_two_workers_can_draw_the_same(count: int) -> None:
    whole = set(ports.PORTS)
    for number in range(count):
        first, last = map(int, servers.ports_of(f"gw{number}", count).split("-"))
        mine = {*range(first, last + 1)}
        assert len(mine) >= 200 and mine <= whole  # no worker before had any of them
        whole -= mine


@pytest.mark.slow
def test_workers_of_a_run_have_ranges_of_their_own(tmp_path: Path) -> None:
    """tests/conftest.py assigns them."""
    (tmp_path / "test_told.py").write_text(TOLD)
    environment = {
        name: value for name, value in os.environ.items() if name != ports.VARIABLE and not name.startswith("PYTEST_XDIST")
    }  # fmt: skip
    command = [
        sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", os.devnull, "--rootdir", str(tmp_path), "-p",
        "no:cacheprovider", "-n", "2", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    told = {path.name: path.read_text() for path in tmp_path.glob("told-*")}
    assert told == {f"told-gw{number}": servers.ports_of(f"gw{number}", 2) for number in (0, 1)}, done.stdout
