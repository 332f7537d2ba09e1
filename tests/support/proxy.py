"""A TCP proxy in front of a broker, for tests. It can hold one request back and deliver it late."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

END_TXN = 26  # Kafka's api_key


class Proxy:
    """Listens on 127.0.0.1:`port` and passes everything on to `target`.

    `keep_back(api_key)`: the proxy holds the next request of that kind. The connection breaks for the client, which
    retries on another one. Then `kept` is set, and `hand_in` sends the held request to the broker.
    """

    def __init__(self, target: tuple[str, int], port: int = 0) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listening.getsockname()[1]
        self._wanted: int | None = None
        self._late: tuple[socket.socket, bytes] | None = None
        self._handed_in = False
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.kept = threading.Event()
        self.answered_late = threading.Event()
        self._start(self._accept)

    def keep_back(self, api_key: int) -> None:
        self._wanted, self._handed_in = api_key, False

    def hand_in(self) -> None:
        assert self._late is not None
        broker, frame = self._late
        self._handed_in = True
        broker.sendall(frame)

    def close(self) -> None:
        for one in [self._listening, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, function: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._sockets.append(client)
            try:
                broker = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._sockets.append(broker)
            self._start(self._requests, client, broker)
            self._start(self._answers, broker, client)

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(client):
                (api_key,) = struct.unpack_from(">h", frame, 4)
                if api_key == self._wanted:
                    self._wanted, self._late = None, (broker, frame)
                    self.kept.set()
                    client.shutdown(socket.SHUT_RDWR)
                    return  # the connection to the broker stays open for hand_in
                broker.sendall(frame)
            broker.shutdown(socket.SHUT_RDWR)

    def _answers(self, broker: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := broker.recv(1 << 16):
                if self._late is not None and self._late[0] is broker:
                    if self._handed_in:  # otherwise it is the answer to an earlier request
                        self.answered_late.set()
                else:
                    client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


def _frame(client: socket.socket) -> bytes:
    """The next request, with its length prefix; b"" at the end of the stream."""
    head = _exactly(client, 4)
    return head + _exactly(client, struct.unpack(">i", head)[0]) if head else b""


def _exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            return b""
        data += more
    return data
