"""The agent as a program: it serves a socket for the roles, steps over all jobs, and sends their events."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ledger.adapters.runners import calls, wire
from ledger.adapters.runners.subprocess.agent import Agent
from ledger.adapters.runners.subprocess.digests import Digests, Limits
from ledger.adapters.runners.subprocess.holds import Holds
from ledger.adapters.runners.subprocess.sender import EventSender
from ledger.errors import LedgerError, Unreachable
from ledger.ports import BlobStore, Clock
from ledger.util.ids import RANDOM_BYTES, uuid7

log = logging.getLogger(__name__)

STEP_S = 0.2
THREADS = 16
#: Calls that may wait for a disk or a blob store. They use at most half of the threads, so that `observe` gets one.
SLOW = frozenset({"start", "verify", "dispose", "forget", "kept"})
REQUEST_S = 5.0
RETRY_S = 5.0
BACKLOG = 128


def run_agent(
    folder: Path, blobs: BlobStore, sender: EventSender, clock: Clock, stop: threading.Event, *,
    random_bytes: Callable[[int], bytes] = os.urandom, inherited: Mapping[str, str] = os.environ,
    at: Callable[[str], None] = lambda _: None, step_s: float = STEP_S,
    held: Holds | None = None, limits: Limits = Limits(),  # noqa: B008
) -> None:  # fmt: skip
    """Runs the agent until `stop` is set. Running attempts keep running then. step_s: seconds between two rounds over
    the attempts. held: the jobs whose logs must be kept; None: no jobs. limits: for the digests of checkpoints.

    Raises: ConfigError if another agent has this folder."""

    def new_id() -> str:
        return uuid7(clock.time(), random_bytes(RANDOM_BYTES))

    digests = Digests(limits)
    digests.begin()
    agent = Agent(
        folder, blobs, sender, clock, new_id=new_id, inherited=inherited, at=at, held=held or _nothing_held,
        digests=digests,
    )  # fmt: skip
    try:
        with _listen(agent.folder) as listener:
            server = AgentServer(agent, listener, stop)
            threads = [threading.Thread(target=server.serve, name=f"agent-{i}", daemon=True) for i in range(THREADS)]
            threads.append(threading.Thread(target=_send, args=(agent, stop, step_s), name="agent-sender", daemon=True))
            threads.append(threading.Thread(target=digests.run, args=(stop,), name="agent-digests", daemon=True))
            if held is not None:
                threads.append(threading.Thread(target=held.run, args=(stop,), name="agent-holds", daemon=True))
            for thread in threads:
                thread.start()
            while not stop.is_set():
                agent.step()
                stop.wait(step_s)
            listener.shutdown(socket.SHUT_RDWR)  # wakes the threads that wait for a call
            for thread in threads:
                thread.join(REQUEST_S)
            agent.step()  # saves the last acknowledgements, so that these events are not sent again
    finally:
        agent.close()


def _nothing_held(_job_id: str) -> bool:
    return False


def _send(agent: Agent, stop: threading.Event, step_s: float) -> None:
    while not stop.is_set():
        try:
            wait_s = 0.0 if agent.send() else step_s
        except Exception:  # whatever the error, the events are on disk
            log.exception("events_not_sent")
            wait_s = RETRY_S
        stop.wait(wait_s)


def _listen(folder: Path) -> socket.socket:
    (folder / wire.SOCKET).unlink(missing_ok=True)  # we hold the folder's lock, so the process that made it is gone
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with wire.socket_path(folder) as path:
        listener.bind(path)
    listener.listen(BACKLOG)
    listener.settimeout(STEP_S)
    return listener


class AgentServer:
    """Answers the calls of roles to the agent, one call at a time per thread."""

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
                if self._stop.wait(STEP_S):  # closed, or out of file descriptors for now
                    return
                continue
            with connection:
                try:
                    self._serve(connection)
                except (OSError, ValueError) as error:
                    log.debug("caller_disconnected", extra={"reason": str(error)})

    def _serve(self, connection: socket.socket) -> None:
        request = wire.read_line(connection, wire.REQUEST_BYTES_MAX, time.monotonic() + REQUEST_S)
        try:
            instance = str(request.get("instance", ""))  # a caller of an older release sends no instance
            answer = {"result": self._answer(str(request["call"]), dict(request["arguments"]), instance)}
        except LedgerError as error:  # unless permanent, not the job's fault: the job waits for the repair
            answer = calls.failed(calls.kind_of(error), error)
        except Exception as error:  # a bug affects this call alone: its outcome is unknown
            log.exception("call_failed")
            answer = calls.failed("unreachable", error)
        wire.send_line(connection, answer, time.monotonic() + REQUEST_S)

    def _answer(self, call: str, arguments: dict[str, Any], instance: str) -> Any:
        if call not in SLOW:
            return calls.answer(self._agent, call, arguments, instance)
        if not self._slow.acquire(blocking=False):
            raise Unreachable("the agent is busy", hint="Try again.")
        try:
            return calls.answer(self._agent, call, arguments, instance)
        finally:
            self._slow.release()
