"""Invalid data on the agent's socket, in both directions: the agent keeps serving, and the roles get "no answer"."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters.clock import SystemClock
from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.runners import wire
from ledger.adapters.runners.subprocess import SubprocessRunner
from ledger.adapters.runners.subprocess.agent import Agent
from ledger.adapters.runners.subprocess.restore import verify
from ledger.adapters.runners.subprocess.server import AgentServer, _listen
from ledger.core.model.facts import GraphRef, RestorePoint
from ledger.errors import LedgerError, PermanentError, Unreachable
from ledger.ports import Runner, Verification

DEEP = b"[" * 100_000
REQUESTS = [
    b"", b"\n", b"null\n", b"[]\n", b"7\n", b'"call"\n', b"{}\n", b'{"call":"observe"}\n', b'{"call":[],"arguments":{}}\n',
    b'{"call":"__class__","arguments":{}}\n', b"\xff\xfe\n", b"\0\n", DEEP + b"\n",
    DEEP, b'{"call":"start","arguments":{"job_id":"a","n":1}}\n', b"{" * 1000 + b"\n", b"NaN\n", b"1e999999\n",
    b"1" * 10_000 + b"\n",
]  # fmt: skip
ARGUMENTS: list[dict[str, Any]] = [
    {"job_id": job_id, "n": n, "outcome": outcome, "savepoint": False, "ask": ask, "keys": ["\ud800", ""], "graph": graph,
     "restore_point": point, "restore_points": [point], "environment": {}, "failure_rules": rules}
    for job_id, n, outcome, ask, graph, point, rules in [
        ("../../etc", 1, "stopped", "a", {"uri": "x", "sha256": "y", "size": 1}, None, []),
        ("a/b\0", -1, "\0", "../a", {"uri": "graphs/../../etc/passwd", "sha256": "0" * 64, "size": 1}, {"attempt": 1}, 7),
        ("job", 2**53 + 1, "finished", "a" * 1000, None, {"attempt": "x", "id": [], "location": 1}, 7),
        ("job", 2**63, "", "", [], [], None), (None, None, None, None, None, None, None),
        ("job", True, [], {}, {"uri": "\ud800", "sha256": "\0", "size": -1}, "x", "x"),
        ("job", 1.5, 1, 1, {"uri": "graphs/job/" + "0" * 64, "sha256": "0" * 64, "size": 1e308}, 1, [None]),
    ]
]  # fmt: skip
CALLS = ["start", "stop", "savepoint", "fence", "acknowledge", "verify", "dispose", "forget", "observe", "kept"]


class NoSender:
    partitions = 2

    def send(self, events: Any) -> list[bytes]:
        return []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[SubprocessRunner]:
    """An agent with only two threads for its callers, so that a dead thread is noticed at once."""
    folder, stop = tmp_path / "agent", threading.Event()
    (tmp_path / "blobs" / "graphs").mkdir(parents=True)
    agent = Agent(folder, FileBlobs(tmp_path / "blobs"), NoSender(), SystemClock(), new_id=lambda: "id")  # type: ignore[arg-type]
    with _listen(agent.folder) as listener:
        server = AgentServer(agent, listener, stop)
        threads = [threading.Thread(target=server.serve, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        yield SubprocessRunner(folder)
        assert all(thread.is_alive() for thread in threads)
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)
    agent.close()


def say(folder: Path, line: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection, wire.socket_path(folder) as path:
        connection.settimeout(60)
        connection.connect(path)
        try:
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1 << 20)
        except OSError:
            return b""


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda line: repr(line[:40]))
def test_a_request_that_is_none_costs_the_agent_nothing(served: SubprocessRunner, request_: bytes) -> None:
    for _ in range(3):
        answer = say(served.folder, request_)
        assert not answer or "error" in json.loads(answer)
    assert served.observe() == []


@pytest.mark.parametrize("call", CALLS)
def test_arguments_that_are_none_are_refused(served: SubprocessRunner, call: str) -> None:
    for arguments in ARGUMENTS:
        say(served.folder, json.dumps({"call": call, "arguments": arguments}).encode() + b"\n")
    assert all(a.job_id in ("job", "a") for a in served.observe())
    assert {path.name for path in served.folder.parent.iterdir()} == {"agent", "blobs"}
    assert {path.name for path in (served.folder / "jobs").glob("*")} <= {"job"}


ANSWERS = [
    b"", b"\n", b"null\n", b"[]\n", b"7\n", b'"x"\n', b"{}\n", b'{"result":{}}\n', b'{"result":7}\n', b'{"result":[7]}\n',
    b'{"result":[[]]}\n', b'{"result":[["../x",1,true,""]]}\n', b'{"result":[[["a"],1,true,""]]}\n', b'{"result":[{}]}\n',
    b'{"result":[["a","1",true,""]]}\n', b'{"result":"nonsense"}\n',
    b'{"result":[{"key":"a","headers":[[1]],"value":1}]}\n',
    b'{"result":[{"key":"a","headers":[["x","!"]],"value":"!"}]}\n', b'{"error":[]}\n', b'{"error":"x","message":[]}\n',
    DEEP + b"\n", b"\xff\n", b'{"result":[{"checkpoints":[{}]}]}\n', b"1" * 10_000 + b"\n",
]  # fmt: skip
ASKED: dict[str, Callable[[Runner], object]] = {
    "start": lambda runner: runner.start("a", 1, GraphRef("", "", 0), None, {}),
    "observe": lambda runner: runner.observe(),
    "fence": lambda runner: runner.fence("a", 1),
    "verify": lambda runner: runner.verify(RestorePoint(1, 1, "/x")),
    "kept": lambda runner: runner.kept(),
}


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda line: repr(line[:40]))
def test_an_answer_that_is_none_is_no_answer(tmp_path: Path, answer: bytes) -> None:
    """For the roles, an error of the ledger means that nothing is known. Any other error would end them."""
    with socket.socket(socket.AF_UNIX) as listener:
        with wire.socket_path(tmp_path) as path:
            listener.bind(path)
        listener.listen(8)
        threading.Thread(target=_answers, args=(listener, answer, len(ASKED)), daemon=True).start()
        for ask in ASKED.values():
            try:
                ask(SubprocessRunner(tmp_path, timeout_s=60))
            except LedgerError as error:
                assert isinstance(error, Unreachable) and not isinstance(error, PermanentError)


def _answers(listener: socket.socket, answer: bytes, times: int) -> None:
    for _ in range(times):
        connection, _ = listener.accept()
        with connection:
            wire.read_line(connection, 1 << 20, time.monotonic() + 60)
            connection.sendall(answer)


LOCATIONS = [
    "", "x", "\0", "/x\0", "/" + "x" * 5_000, "/" + "x/" * 3_000, "file://" + "/x" * 3_000,
    "//\x1b[2J", "/proc/self/mem",
]  # fmt: skip


@pytest.mark.parametrize("location", LOCATIONS, ids=lambda location: repr(location[:20]))
def test_a_location_under_which_nothing_can_lie_is_invalid_and_nobody_waits_for_it(location: str) -> None:
    assert verify(RestorePoint(1, 1, location, 2**63 - 1)).verification is Verification.INVALID


def test_a_link_that_leads_to_itself_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "chk-1").symlink_to("chk-1")
    assert verify(RestorePoint(1, 1, str(tmp_path / "chk-1"))).verification is Verification.INVALID
