"""Notifications: their recipients, contents and number. No hook can harm the role."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.adapters.hooks import CommandHook, HookFailed, Webhook, problem, shown
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import NoAnswer
from ledger.app import notifying
from ledger.app.notifying import PENDING_MAX, TRIES_MAX, Notifier
from ledger.config.config import MASK, load_config
from ledger.core.model.facts import AttemptEnded, AttemptStarted
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Attempt, Ended
from ledger.errors import ConfigError
from ledger.roles.projector.projector import Projector
from tests.support.roles.world import PlainRejects, World, run
from tests.support.waiting import until

BAD = RecoveryEntry(
    "job-1", "etl", "prod", "subprocess", JobState.QUARANTINED, "d", 2, outcome="failed", failures=2,
    reason="attempt 2 failed: exit code 1: Traceback:\n  line 1\nValueError: ü\udcff",
)  # fmt: skip


class Hook:
    """A hook that accepts notifications, or fails while `broken` is set."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.broken: Exception | None = None

    def __call__(self, id_: str, body: bytes) -> None:
        if self.broken is not None:
            raise self.broken
        self.taken.append((id_, json.loads(body)))

    @property
    def ids(self) -> list[str]:
        return [id_ for id_, _ in self.taken]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hook() -> Hook:
    return Hook()


def notifier(clock: ManualClock, memory: Path, **hooks: Any) -> Notifier:
    return Notifier([JobState.QUARANTINED], hooks, memory / "run" / "notified.json", clock)


# -- contents and delivery ---------------------------------------------------------------------------------------------


def test_the_body_has_an_id_a_line_for_people_and_the_fields_of_the_entry(
    clock: ManualClock, hook: Hook, tmp_path: Path
) -> None:
    told = notifier(clock, tmp_path, hook=hook)
    told.offer(BAD)
    told.offer(replace(BAD, job_id="fine", state=JobState.RUNNING))
    told.step()
    [(id_, body)] = hook.taken
    assert id_ == body["id"] == "job-1/2/QUARANTINED"
    assert body["text"].startswith("prod/etl is QUARANTINED: attempt 2 failed: exit code 1: Traceback: … ValueError")
    assert (body["job_id"], body["state"], body["failures"]) == ("job-1", "QUARANTINED", 2)
    assert body["reason"].startswith("attempt 2 failed: exit code 1: Traceback:\n  line 1\nValueError: ü")


def test_a_change_is_told_once_and_the_next_one_too(clock: ManualClock, hook: Hook, tmp_path: Path) -> None:
    told = notifier(clock, tmp_path, hook=hook)
    for as_of in range(3):
        told.offer(replace(BAD, as_of=as_of))
        told.step()
    told.offer(replace(BAD, attempt=3))
    told.step()
    assert hook.ids == ["job-1/2/QUARANTINED", "job-1/3/QUARANTINED"]
    successor = notifier(clock, tmp_path, hook=hook)
    successor.offer(BAD)
    successor.step()
    assert len(hook.taken) == 2, "a successor on this host knows which notifications were delivered"
    elsewhere = notifier(clock, tmp_path / "another host", hook=hook)
    elsewhere.offer(BAD)
    elsewhere.step()
    assert hook.ids[-1] == "job-1/2/QUARANTINED", "a successor on another host does not"


def test_what_fails_is_tried_again_ever_more_rarely_and_then_given_up(
    clock: ManualClock, hook: Hook, tmp_path: Path
) -> None:
    other = Hook()
    told = notifier(clock, tmp_path, hook=hook, other=other)
    hook.broken = HookFailed("no")
    told.offer(BAD)
    waits = []
    with capture_logs() as logs:
        for _ in range(TRIES_MAX):
            waits.append(told.step())
            clock.advance(waits[-1])
    assert waits[:4] == [2.0, 4.0, 8.0, 16.0]
    assert other.ids == ["job-1/2/QUARANTINED"], "the other hook got it exactly once"
    assert told.counters == {"delivered": 1, "failed": TRIES_MAX, "given_up": 1}
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["notification_given_up"]
    hook.broken = None
    told.offer(replace(BAD, as_of=9))
    told.step()
    assert hook.taken == [], "an abandoned notification is not sent when the entry is published again"


def test_it_is_delivered_once_the_hook_is_mended(clock: ManualClock, hook: Hook, tmp_path: Path) -> None:
    told = notifier(clock, tmp_path, hook=hook)
    hook.broken = HookFailed("no")
    told.offer(BAD)
    told.step()
    hook.broken = None
    assert told.step() > 0 and hook.taken == [], "not before the backoff is over"
    clock.advance(2.0)
    told.step()
    assert hook.ids == ["job-1/2/QUARANTINED"]


def test_the_queue_has_a_bound_and_what_is_dropped_is_told(clock: ManualClock, hook: Hook, tmp_path: Path) -> None:
    told = notifier(clock, tmp_path, hook=hook)
    with capture_logs() as logs:
        for number in range(PENDING_MAX + 2):
            told.offer(replace(BAD, job_id=f"job-{number}"))
    assert told.counters["dropped"] == 2
    assert [entry["id"] for entry in logs] == ["job-0/2/QUARANTINED", "job-1/2/QUARANTINED"]


@pytest.mark.parametrize("memory", [b"rubbish", b"{}", b"[1, [2], null]"])
def test_a_damaged_memory_costs_a_repetition_at_most(memory: bytes, clock: ManualClock, hook: Hook, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notified.json").write_bytes(memory)
    told = notifier(clock, tmp_path, hook=hook)
    told.offer(BAD)
    told.step()
    assert hook.ids == ["job-1/2/QUARANTINED"]


@pytest.mark.slow
def test_a_hook_that_hangs_holds_up_nobody_who_offers(clock: ManualClock, tmp_path: Path) -> None:
    hangs, entered = threading.Event(), threading.Event()

    def hook(id_: str, body: bytes) -> None:
        entered.set()
        hangs.wait(60)

    told = notifier(clock, tmp_path, hook=hook)
    told.start()
    try:
        told.offer(BAD)
        assert entered.wait(30)
        for number in range(100):
            told.offer(replace(BAD, job_id=f"job-{number}"))
        assert not hangs.is_set()
    finally:
        told.close()
        with capture_logs():
            hangs.set()
            told._thread.join(30)


def test_an_entry_that_can_not_be_told_harms_nobody(
    clock: ManualClock, hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: RecoveryEntry) -> bytes:
        raise RecursionError

    told = notifier(clock, tmp_path, hook=hook)
    monkeypatch.setattr(notifying, "body_of", broken)
    with capture_logs() as logs:
        told.offer(BAD)
    assert [entry["event"] for entry in logs] == ["not_notified"]


# -- the role that notifies --------------------------------------------------------------------------------------------


def quarantine(world: World, job_id: str) -> None:
    world.record(job_id, Attempt(1, 1), AttemptStarted("d" * 64))
    world.record(job_id, Ended(1, "failed-permanent", "agent-1"), AttemptEnded("poison"))


def test_the_leader_tells_once_it_stands_in_the_log_and_a_successor_tells_again() -> None:
    world, told, later = World(), list[RecoveryEntry](), list[RecoveryEntry]()
    leader = Projector(world.parts("projector", "p1"), PlainRejects(), world.settings, told.append)
    standby = Projector(world.parts("projector", "p2"), PlainRejects(), world.settings, later.append)
    world.submit("job-1")
    run(leader, standby)
    quarantine(world, "job-1")
    run(leader, standby)
    assert [entry.job_id for entry in told if entry.state is JobState.QUARANTINED] == ["job-1"]
    assert world.entry("job-1") in told
    assert later == [], "a standby sends no notifications"
    world.elections["projector"].holder = None
    standby.step()
    assert [entry.job_id for entry in later if entry.state is JobState.QUARANTINED], (
        "the new leader can't know whether it was delivered"
    )


def test_what_was_not_committed_is_not_told() -> None:
    world, told = World(), list[RecoveryEntry]()
    leader = Projector(world.parts("projector", "p1"), PlainRejects(), world.settings, told.append)
    world.submit("job-1")
    run(leader)
    assert {entry.state for entry in told} == {JobState.CREATED}
    quarantine(world, "job-1")

    def no_answer(step: str) -> None:
        if step == "produce":
            world.elections["projector"].holder = object()  # nor does it win the election again
            raise NoAnswer

    world.log.failpoint = no_answer
    run(leader)
    entry = world.entry("job-1")
    assert entry is not None and entry.state is JobState.CREATED
    assert {entry.state for entry in told} == {JobState.CREATED}


# -- a command ---------------------------------------------------------------------------------------------------------

SAVES = """
import os, sys
open(sys.argv[1], "wb").write(sys.stdin.buffer.read() + os.environ["LEDGER_NOTIFICATION_ID"].encode())
"""


def test_a_command_gets_the_body_on_stdin_and_no_shell_sees_it(tmp_path: Path) -> None:
    out = tmp_path / "out; touch shell"
    CommandHook([sys.executable, "-c", SAVES, str(out)], 30)("id", b"$(touch shell)")
    assert out.read_bytes() == b"$(touch shell)id"
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name]


def test_a_command_does_not_get_the_passwords_of_the_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_KAFKA__SASL_PASSWORD", "s3cret")
    out = tmp_path / "out"
    program = "import os, sys; open(sys.argv[1], 'w').write(repr(dict(os.environ)))"
    CommandHook([sys.executable, "-c", program, str(out)], 30)("id", b"")
    assert "PATH" in out.read_text() and "s3cret" not in out.read_text()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ((sys.executable, "-c", "raise SystemExit(3)"), "exit code 3"),
        ((sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"), "exit code -11"),
        (("/nowhere/at/all",), "can't be executed"),
        (("a\0b",), "can't be executed"),
    ],
)
def test_a_command_that_fails_says_how(command: tuple[str, ...], told: str) -> None:
    with pytest.raises(HookFailed, match=told):
        CommandHook(command, 30)("id", b"x" * 100_000)


@pytest.mark.slow
def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open(sys.argv[1] + '.part', 'w').write(str(child.pid)); os.rename(sys.argv[1] + '.part', sys.argv[1])\n"
        "time.sleep(600)\n"
    )
    while not pid.exists():  # on a busy machine the program may be killed before it wrote its file
        with pytest.raises(HookFailed, match="did not end within"):
            CommandHook([sys.executable, "-c", program, str(pid)], 3)("id", b"")
    stat = Path(f"/proc/{pid.read_text()}/stat")
    until(
        lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX",
        "the child of the hook is killed too",
    )


# -- a webhook ---------------------------------------------------------------------------------------------------------


class Server:
    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.status, self.drips = 204, False
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.got.append((self.path, dict(self.headers), body))
                if server.drips:
                    try:
                        while True:
                            self.wfile.write(b"H")
                            time.sleep(0.05)
                    except OSError:
                        return
                self.send_response(server.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()


def test_a_webhook_gets_json_with_the_id_and_who_we_are(server: Server) -> None:
    Webhook(server.url.replace("//", "//user:p%40ss@") + "/hooks/T0?x=1", 30)("job-1/2/QUARANTINED", b'{"a": 1}')
    [(path, headers, body)] = server.got
    assert (path, body) == ("/hooks/T0?x=1", b'{"a": 1}')
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == "job-1/2/QUARANTINED"
    assert headers["Authorization"] == "Basic dXNlcjpwQHNz"


@pytest.mark.parametrize("status", [301, 307, 400, 500])
def test_only_2xx_is_taken_and_nobody_is_followed_elsewhere(status: int, server: Server) -> None:
    server.status = status
    with pytest.raises(HookFailed, match=f"status {status}") as raised:
        Webhook(f"{server.url}/s3cret", 30)("id", b"{}")
    assert len(server.got) == 1
    assert "s3cret" not in str(raised.value)


def test_a_server_that_answers_a_byte_at_a_time_is_cut_off(server: Server) -> None:
    server.drips = True
    with pytest.raises(HookFailed, match="no answer"):
        Webhook(server.url, 0.5)("id", b"{}")


def test_a_server_that_is_not_there_is_told_without_the_secret_part() -> None:
    with socket.socket() as deaf, pytest.raises(HookFailed, match=r"no answer from http://127\.0\.0\.1:\d+/\*+") as raised:
        deaf.bind(("127.0.0.1", 0))  # reserves the port
        Webhook(f"http://127.0.0.1:{deaf.getsockname()[1]}/s3cret", 5)("id", b"{}")
    assert "s3cret" not in f"{raised.value} {raised.value.__cause__}"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://hooks.example.com/services/T0/B0/x", f"https://hooks.example.com/{MASK}"),
        ("https://hooks.example.com:8443", "https://hooks.example.com:8443"),
        ("http://user:password@host/", f"http://host/{MASK}"),
        ("http://host/?token=x", f"http://host/{MASK}"),
    ],
)
def test_of_a_url_only_the_host_is_shown(url: str, told: str) -> None:
    assert problem(url) == "" and shown(url) == told


@pytest.mark.parametrize(
    "url", ["", "host/path", "ftp://host/x", "http://", "http://h:x/", "http://h/a b", "http://h/\r\nX: y"]
)
def test_what_is_no_webhook_is_told_so(url: str) -> None:
    assert problem(url)


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_nothing_is_told_by_default(tmp_path: Path) -> None:
    assert notifying.notifier(load_config(tmp_path)) is None


def test_settings_come_from_the_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ledger.toml").write_text('[notify]\ncommand = ["page", "the operator"]\nstates = ["quarantined"]\n')
    given = load_config(tmp_path).notify
    assert (given.command, given.states) == (("page", "the operator"), (JobState.QUARANTINED,))
    monkeypatch.setenv("LEDGER_NOTIFY__COMMAND", "page 'the other operator'")
    monkeypatch.setenv("LEDGER_NOTIFY__STATES", "quarantined, failed")
    config = load_config(tmp_path)
    assert config.notify.command == ("page", "the other operator")
    assert config.notify.states == (JobState.QUARANTINED, JobState.FAILED)
    assert notifying.notifier(config) is not None


def test_the_url_is_a_secret(tmp_path: Path) -> None:
    config = load_config(tmp_path, notify={"webhook": "https://host/s3cret"})
    assert config.shown()["notify"]["webhook"] == MASK and notifying.notifier(config) is not None
    file = tmp_path / "url"
    file.write_text("https://host/s3cret\n")
    assert notifying.notifier(load_config(tmp_path, notify={"webhook_file": file})) is not None
    wrong = load_config(tmp_path, notify={"webhook": "ftp://host/s3cret"})
    both = load_config(tmp_path, notify={"webhook": "https://host/s3cret", "webhook_file": file})
    for config, told in ((wrong, "notify.webhook is invalid"), (both, "set one")):
        with pytest.raises(ConfigError, match=told) as raised:
            notifying.notifier(config)
        assert "s3cret" not in f"{raised.value} {raised.value.hint}"


@pytest.mark.parametrize("notify", [{"states": ["GONE"]}, {"timeout_s": 0}, {"webhok": "x"}])
def test_settings_that_can_not_be_are_told(notify: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="notify"):
        load_config(tmp_path, notify=notify)


def test_an_address_of_ipv6_without_a_port_is_not_taken_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", connect)
    for url in ("http://[::1]/hook", "https://[fe80::abcd]/hook", "http://[::1]:8080/hook"):
        assert problem(url) == ""
        with pytest.raises(HookFailed):
            Webhook(url, 5)("id", b"{}")
    assert asked == [("::1", 80), ("fe80::abcd", 443), ("::1", 8080)]
