"""The agent as a program: a socket for the roles, a round over all jobs, and the sending of their events."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ledger.adapters.runners.subprocess import wire
from ledger.adapters.runners.subprocess.agent import Agent
from ledger.adapters.runners.subprocess.events import to_plain
from ledger.adapters.runners.subprocess.folders import point_from_json, rule_from_json
from ledger.adapters.runners.subprocess.kept import kept_to_json
from ledger.adapters.runners.subprocess.sender import EventSender
from ledger.core.facts import GraphRef
from ledger.errors import ConfigError, LedgerError, PermanentError, TemporaryError, Unreachable
from ledger.ids import RANDOM_BYTES, uuid7
from ledger.ports import BlobStore, Clock

log = logging.getLogger(__name__)

STEP_S = 0.2
THREADS = 16
#: Calls that may wait for a disk or a blob store: never more than half of the threads, so that observe gets one.
SLOW = frozenset({"start", "verify", "dispose", "forget", "kept"})
REQUEST_S = 5.0
RETRY_S = 5.0
BACKLOG = 128


def run_agent(
    folder: Path, blobs: BlobStore, sender: EventSender, clock: Clock, stop: threading.Event, *,
    random_bytes: Callable[[int], bytes] = os.urandom, inherited: Mapping[str, str] = os.environ,
    at: Callable[[str], None] = lambda _: None, step_s: float = STEP_S,
) -> None:  # fmt: skip
    """Serves until `stop` is set. What runs goes on then. step_s: how often it looks after its attempts.

    Raises: ConfigError if another agent has this folder."""

    def new_id() -> str:
        return uuid7(clock.time(), random_bytes(RANDOM_BYTES))

    agent = Agent(folder, blobs, sender, clock, new_id=new_id, inherited=inherited, at=at)
    try:
        with _listen(agent.folder) as listener:
            server = Server(agent, listener, stop)
            threads = [threading.Thread(target=server.serve, name=f"agent-{i}", daemon=True) for i in range(THREADS)]
            threads.append(threading.Thread(target=_send, args=(agent, stop, step_s), name="agent-sender", daemon=True))
            for thread in threads:
                thread.start()
            while not stop.is_set():
                agent.step()
                stop.wait(step_s)
            listener.shutdown(socket.SHUT_RDWR)  # wakes those who wait for a call
            for thread in threads:
                thread.join(REQUEST_S)
            agent.step()  # what was acknowledged last need not be sent again
    finally:
        agent.close()


def _send(agent: Agent, stop: threading.Event, step_s: float) -> None:
    while not stop.is_set():
        try:
            wait_s = 0.0 if agent.send() else step_s
        except Exception:  # whatever it is, the events are on disk
            log.exception("events can't be sent, trying again")
            wait_s = RETRY_S
        stop.wait(wait_s)


def _listen(folder: Path) -> socket.socket:
    (folder / wire.SOCKET).unlink(missing_ok=True)  # we hold the folder's lock: whoever made it is gone
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with wire.socket_path(folder) as path:
        listener.bind(path)
    listener.listen(BACKLOG)
    listener.settimeout(STEP_S)
    return listener


class Server:
    """Answers calls, each thread one at a time."""

    def __init__(self, agent: Agent, listener: socket.socket, stop: threading.Event) -> None:
        self._agent, self._listener, self._stop = agent, listener, stop
        self._slow = threading.BoundedSemaphore(THREADS // 2)

    def serve(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._stop.wait(STEP_S):  # closed, or no descriptor left for now
                    return
                continue
            with connection:
                try:
                    self._serve(connection)
                except (OSError, ValueError) as error:
                    log.debug("a caller went away: %s", error)

    def _serve(self, connection: socket.socket) -> None:
        request = wire.read_line(connection, wire.REQUEST_BYTES_MAX, time.monotonic() + REQUEST_S)
        try:
            answer = {"result": self._answer(str(request["call"]), dict(request["arguments"]))}
        except PermanentError as error:
            answer = _failure("permanent", error)
        except (TemporaryError, Unreachable, ConfigError) as error:  # not the job's fault: it waits until that is mended
            answer = _failure("temporary" if isinstance(error, TemporaryError) else "unreachable", error)
        except Exception as error:  # a bug concerns this call alone: nothing is known of what it asked
            log.exception("a call failed")
            answer = _failure("unreachable", error)
        wire.send_line(connection, answer, time.monotonic() + REQUEST_S)

    def _answer(self, call: str, arguments: dict[str, Any]) -> Any:
        handler = _CALLS.get(call)
        if handler is None:
            raise PermanentError(f"this agent knows no call {call!r}")
        if call not in SLOW:
            return handler(self._agent, arguments)
        if not self._slow.acquire(blocking=False):
            raise Unreachable("the agent is busy", hint="Ask again.")
        try:
            return handler(self._agent, arguments)
        finally:
            self._slow.release()


def _failure(kind: str, error: Exception) -> dict[str, str]:
    hint = error.hint if isinstance(error, LedgerError) else ""
    return {"error": kind, "message": str(error) or type(error).__name__, "hint": hint}


def _start(agent: Agent, a: dict[str, Any]) -> str:
    graph = GraphRef(a["graph"]["uri"], a["graph"]["sha256"], a["graph"]["size"])
    base, rules = point_from_json(a["restore_point"]), [rule_from_json(rule) for rule in a.get("failure_rules", ())]
    return agent.start(a["job_id"], a["n"], graph, base, a["environment"], rules).value


def _verify(agent: Agent, a: dict[str, Any]) -> str:
    point = point_from_json(a["restore_point"])
    if point is None:
        raise PermanentError("there is no restore point to verify")
    return agent.verify(point).value


_CALLS: dict[str, Callable[[Agent, dict[str, Any]], Any]] = {
    "start": _start,
    "observe": lambda agent, _: [list(attempt) for attempt in agent.observe()],
    "stop": lambda agent, a: agent.stop(a["job_id"], a["n"], a["outcome"], a["savepoint"]),
    "savepoint": lambda agent, a: agent.savepoint(a["job_id"], a["n"], a["ask"]),
    "fence": lambda agent, a: [to_plain(event) for event in agent.fence(a["job_id"], a["n"])],
    "acknowledge": lambda agent, a: agent.acknowledge(a["job_id"], [key.encode() for key in a["keys"]]),
    "verify": _verify,
    "dispose": lambda agent, a: agent.dispose(
        a["job_id"], [point for plain in a["restore_points"] if (point := point_from_json(plain)) is not None]
    ),
    "forget": lambda agent, a: agent.forget(a["job_id"]),
    "kept": lambda agent, _: [kept_to_json(kept) for kept in agent.kept()],
}  # fmt: skip
