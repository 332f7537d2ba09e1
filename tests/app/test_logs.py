"""The log output of processes: one JSON object per line, from every library, with secrets masked."""

from __future__ import annotations

import io
import json
import logging
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from ledger.app import logs
from ledger.config.config import MASK
from ledger.config.settings import LogSection
from ledger.util import loggers


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def configured(terminal: bool = False, **settings: str) -> io.StringIO:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    logs.configure(LogSection(**settings), stream, process="projector-1")
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_an_object_with_its_fields() -> None:
    stream = configured()
    structlog.get_logger("projector").info("leads", epoch=7, job="etl")
    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "leads", "epoch": 7, "job": "etl", "level": "info", "logger": "projector", "process": "projector-1",
    }  # fmt: skip


@pytest.mark.parametrize("by", [structlog.get_logger, logging.getLogger])
def test_a_thread_says_which_process_it_is_of(by: Callable[[str], Any]) -> None:
    stream = configured()
    thread = threading.Thread(target=lambda: by("ledger").warning("heard"))
    thread.start()
    thread.join()
    assert lines(stream)[0]["process"] == "projector-1"


def test_a_logger_that_was_made_before_joins_in() -> None:
    early = structlog.get_logger("early")
    stream = configured()
    early.warning("heard")
    assert lines(stream)[0]["event"] == "heard"


def test_the_standard_library_joins_in() -> None:
    stream = configured()
    logging.getLogger("ledger.kafka").warning("reading goes on: %s", "_TRANSPORT", extra={"offset": 3})
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["offset"]) == ("reading goes on: _TRANSPORT", "ledger.kafka", 3)
    assert line["process"] == "projector-1"


@pytest.mark.parametrize("by", ["structlog", "logging"])
def test_secrets_are_masked(by: str) -> None:
    stream = configured()
    if by == "structlog":
        client = {"sasl.password": "s3cret", "sasl.username": "u"}
        structlog.get_logger().info("connects", client=client, token="s3cret")
    else:
        logging.getLogger("a").info("connects", extra={"client": {"sasl.password": "s3cret"}, "token": "s3cret"})
    (line,) = lines(stream)
    assert "s3cret" not in stream.getvalue()
    assert line["token"] == line["client"]["sasl.password"] == MASK


def test_the_level_holds_for_all() -> None:
    stream = configured(level="warning")
    structlog.get_logger("a").info("not this")
    logging.getLogger("b").info("nor this")
    logging.getLogger("c").error("this")
    assert [line["event"] for line in lines(stream)] == ["this"]
    stream = configured(level="debug")
    structlog.get_logger("a").debug("all")
    logging.getLogger("py4j.clientserver").info("too much")
    assert [line["event"] for line in lines(stream)] == ["all"]


def test_an_exception_is_within_its_line() -> None:
    stream = configured()
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger("a").exception("failed")
        logging.getLogger("b").exception("failed too")
    assert ["ValueError: broken" in line["exception"] for line in lines(stream)] == [True, True]


def test_lines_for_people_on_a_terminal_or_where_asked_for() -> None:
    for stream in (configured(terminal=True), configured(format="console")):
        structlog.get_logger("projector").info("leads", epoch=7)
        assert not stream.getvalue().startswith("{")
    stream = configured(terminal=True, format="json")
    structlog.get_logger("projector").info("leads", epoch=7)
    assert lines(stream)[0]["epoch"] == 7


def test_a_command_says_on_stderr_what_is_said_by_its_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """stdout holds answers only. stderr gets warnings and errors, and nothing below."""
    monkeypatch.setattr(loggers, "LEAST", logging.WARNING)
    log = loggers.Logger("ledger.archive")
    log.info("sealed")
    log.error("snapshot_dropped", why="torn")
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert "snapshot_dropped" in err
    assert "torn" in err


def test_a_role_says_it_as_its_own_log_was_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "LEAST", logging.WARNING)
    stream = configured(format="json")
    # copied to a Spark worker together with an object that refers to it
    copied = pickle.loads(pickle.dumps(loggers.Logger("ledger.archive")))
    copied.info("sealed", records=7)
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["records"] == 7


def test_only_what_roles_run_gets_its_loggers_from_structlog() -> None:
    """A command would import structlog with any other module at each start, and its messages would go to stdout."""
    package = Path(logs.__file__).parents[1]
    direct = {
        path.relative_to(package).as_posix() for path in package.rglob("*.py")
        if re.search(r"^(import|from) structlog", path.read_text(), re.MULTILINE)
    }  # fmt: skip
    of_roles = {name for name in direct if name.startswith("roles/")}
    assert of_roles
    assert direct - of_roles == {f"app/{name}.py" for name in ("logs", "roles_main", "gc_schedule", "reached_agents")}
