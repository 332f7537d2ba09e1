"""A proxy in front of an S3 server, for tests. It injects faults as S3 has them."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from ledger.adapters.s3.settings import S3Settings


@dataclass(frozen=True)
class Request:
    """A request, for the choice of a fault. query: as in the URL, e.g. `uploads=` or `partNumber=1&uploadId=…`."""

    method: str
    path: str
    query: str
    headers: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class Fault:
    """A fault. status: the status that replaces the server's answer; 0 = none. code: S3's name of the error. after: the
    server still gets the request, as when an answer is lost. silent: no answer, and the connection stays open. cut_to:
    number of bytes of the answer's body before the connection breaks. flip: flips a bit in the body of the answer
    (flip_sent: of the request). body: the body that is answered with status."""

    status: int = 0
    code: str = ""
    after: bool = False
    silent: bool = False
    cut_to: int | None = None
    flip: bool = False
    flip_sent: bool = False
    body: bytes | None = None


class FaultyProxy:
    """Passes requests on to S3 at `target`. `plan` returns the fault for each request, None = no fault.

    The Host header is passed on as it was signed, so the target must check signatures by that header, as S3 does."""

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target)
        self.plan: Callable[[Request], Fault | None] = lambda request: None
        self.seen: list[Request] = []
        self.released = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # otherwise each answer of two packets waits 40 ms for an ACK

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def log_message(self, *args: object) -> None:
                """Logs nothing: the requests are in `seen`."""

            def _do(self) -> None:
                proxy._handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _do  # noqa: N815 -- http.server wants them so

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        split = urlsplit(handler.path)
        request = Request(handler.command, split.path, split.query, {k.lower(): v for k, v in handler.headers.items()})
        self.seen.append(request)
        fault = self.plan(request) or Fault()
        if "100-continue" in request.headers.get("expect", ""):
            handler.send_response_only(100)
            handler.end_headers()
        sent = handler.rfile.read(int(request.headers.get("content-length", 0)))
        if fault.flip_sent:
            sent = _flipped(sent)
        if fault.silent:
            self.released.wait(60)
            handler.close_connection = True
            return
        status, body = 0, b""
        headers: dict[str, str] = {}
        if not fault.status or fault.after:
            status, headers, body = self._passed_on(handler, sent)
        if fault.status:
            status, headers = fault.status, {}
            said = f"<Error><Code>{fault.code}</Code><Message>a fault of the test</Message></Error>".encode()
            body = said if fault.body is None else fault.body
        if fault.flip:
            body = _flipped(body)
        handler.send_response_only(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        if handler.command == "HEAD":
            handler.end_headers()
            return
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body if fault.cut_to is None else body[: fault.cut_to])
        if fault.cut_to is not None:
            handler.close_connection = True

    def _passed_on(self, handler: BaseHTTPRequestHandler, sent: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._target.hostname or "", self._target.port, timeout=30)
        try:
            connection.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in handler.headers.items():
                if name.lower() not in ("expect", "connection"):
                    connection.putheader(name, value)
            connection.endheaders(sent)
            answer = connection.getresponse()
            body = answer.read()
            kept = {name.lower(): value for name, value in answer.getheaders()}
            dropped = ("transfer-encoding", "connection") + (() if handler.command == "HEAD" else ("content-length",))
            for name in dropped:
                kept.pop(name, None)
            return answer.status, kept, body
        finally:
            connection.close()


def through(proxy: FaultyProxy, given: S3Settings) -> S3Settings:
    """The same store, reached through the proxy. Its timeouts are long, for busy machines; tests of silence set others."""
    return replace(given, endpoint_url=proxy.url, connect_timeout_s=10.0, read_timeout_s=20.0)


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else data
