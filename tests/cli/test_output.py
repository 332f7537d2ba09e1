"""Tables for people, JSON for machines."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import dataclass

import pytest

from ledger.cli import output
from ledger.cli.output import Color, Column, Format, Printer, age, cell, to_json, utc
from tests.support.waiting import until

ROWS = [
    {"job_id": "j1", "name": "etl", "reason": "node lost", "points": [{"id": 3}], "labels": {"team": "a"}},
    {"job_id": "j22", "name": "übersicht", "reason": None, "points": [], "labels": {}},
]
COLUMNS = [
    Column("NAME", "name"),
    Column("REASON", "reason"),
    Column("TEAM", "labels.team"),
    Column("ID", "job_id", wide=True),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(form: Format, out: io.StringIO | None = None) -> str:
    out = out or io.StringIO()
    Printer(form, out, io.StringIO()).rows(ROWS, COLUMNS)
    return out.getvalue()


def test_a_table_without_terminal_is_plain() -> None:
    assert printed(Format.table) == "NAME       REASON     TEAM\netl        node lost  a\nübersicht  -          -\n"
    assert printed(Format.wide).splitlines()[0] == "NAME       REASON     TEAM  ID"


def test_colour_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" in printed(Format.table, Terminal())
    assert "\x1b[" not in printed(Format.table)
    for form in (Format.json, Format.jsonl, Format.name):
        assert "\x1b[" not in printed(form, Terminal())


def test_json_has_all_there_is_under_its_own_names() -> None:
    assert json.loads(printed(Format.json)) == ROWS
    assert [json.loads(line) for line in printed(Format.jsonl).splitlines()] == ROWS
    assert "übersicht" in printed(Format.json)


def test_names_alone() -> None:
    assert printed(Format.name) == "etl\nübersicht\n"


def test_nothing_is_said_beside_the_answer() -> None:
    out, err = io.StringIO(), io.StringIO()
    Printer(Format.table, out, err).rows([], COLUMNS, empty="no jobs")
    assert (out.getvalue(), err.getvalue()) == ("", "no jobs\n")
    out = io.StringIO()
    Printer(Format.json, out, err).rows([], COLUMNS, empty="no jobs")
    assert json.loads(out.getvalue()) == []


def test_one_thing() -> None:
    out = io.StringIO()
    Printer(Format.wide, out).one(ROWS[0], COLUMNS)
    assert out.getvalue() == "NAME    etl\nREASON  node lost\nTEAM    a\nID      j1\n"
    for form in (Format.json, Format.jsonl):
        out = io.StringIO()
        Printer(form, out).one(ROWS[0], COLUMNS)
        assert json.loads(out.getvalue()) == ROWS[0]


def test_a_stream_is_one_line_a_change_in_every_format() -> None:
    for form in Format:
        out = io.StringIO()
        printer = Printer(form, out)
        for row in ROWS:
            printer.stream(row, COLUMNS)
        assert len(out.getvalue().splitlines()) == 2
        if form in (Format.json, Format.jsonl):
            assert [json.loads(line) for line in out.getvalue().splitlines()] == ROWS


@dataclass
class Thing:
    name: str
    raw: bytes


@pytest.mark.parametrize("char", ["\x9b", "\x7f", "\u202e", "\u2066", "\u200f", "\u2028", "\ufeff", "\x1b"])
def test_json_shows_nothing_to_a_terminal_that_it_would_obey(char: str) -> None:
    text = to_json({char: [f"ä{char}b"]}, indent=2)
    assert char not in text and f"\\u{ord(char):04x}" in text and "ä" in text
    assert json.loads(text) == {char: [f"ä{char}b"]}


def test_what_json_does_not_know() -> None:
    assert json.loads(to_json({"thing": Thing("a", b"\xff\x00"), "form": Format.json, "names": {"b", "a"}})) == {
        "thing": {"name": "a", "raw": "ff00"}, "form": "json", "names": ["a", "b"],
    }  # fmt: skip
    with pytest.raises(TypeError):
        to_json(object())


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), ("", "-"), ([], "-"), (0, "0"), (False, "no"), (True, "yes"), (1.50, "1.5"), (2.0, "2"),
     (["a", None], "a,-"), ({"k": 1}, "k=1"), ("two\nlines\x1b[31m", "two lines [31m"), (" x ", "x")],
)  # fmt: skip
def test_a_cell_is_one_harmless_line(value: object, shown: str) -> None:
    assert cell(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (12_000, "3h20m"), (446_400, "5d4h")],
)  # fmt: skip
def test_ages(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def test_times_are_utc() -> None:
    assert utc(1_735_689_600.7) == "2025-01-01T00:00:00Z"


def test_progress_is_one_line_that_is_rewritten_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PROGRESS_AFTER_S", 0.01)
    monkeypatch.setenv("COLUMNS", "30")
    out, err = io.StringIO(), Terminal()
    printer = Printer(Format.json, out, err)
    with printer.progress("reading") as tell:
        tell("half of " + "much " * 20)
        until(lambda: "half" in err.getvalue(), "the progress is shown")
        printer.note("something else")
        until(lambda: "half" in err.getvalue().partition("else\n")[2], "the progress is shown again")
    shown = err.getvalue()
    assert shown.count("\n") == 1 and "\r\x1b[Ksomething else\n" in shown
    assert all(len(line.replace("\x1b[K", "")) < 30 for line in shown.split("\r"))
    assert shown.endswith("\r\x1b[K"), "the progress line is erased at the end"
    assert out.getvalue() == ""


def test_progress_is_told_to_nobody_where_stderr_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PROGRESS_AFTER_S", 0.001)
    err = io.StringIO()
    started = threading.active_count()
    with Printer(Format.table, io.StringIO(), err).progress("reading") as tell:
        tell("half")
        assert threading.active_count() == started, "no thread waits to show progress"
    assert err.getvalue() == ""


def test_what_is_quick_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PROGRESS_AFTER_S", 60)
    err = Terminal()
    with Printer(Format.table, io.StringIO(), err).progress("quick"):
        pass
    assert err.getvalue() == ""


def test_a_terminal_gets_short_ids_and_a_file_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    whole = "0193c1de-8f00-7000-8000-000000000001"
    columns, rows = [Column("ID", "job_id", id=True), Column("AGE", "age")], [{"job_id": whole, "age": "1m"}]
    for form, out, shown in (
        (Format.table, Terminal(), "0193c1de-8f00"), (Format.wide, Terminal(), whole), (Format.table, io.StringIO(), whole)
    ):  # fmt: skip
        Printer(form, out, io.StringIO()).rows(rows, columns)
        assert out.getvalue().splitlines()[1].split() == [shown, "1m"]


def test_a_terminal_gets_the_date_of_a_time_only_if_it_is_not_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("time.time", lambda: 1_735_689_600.0 + 3600)
    columns, rows = [Column("TIME", "at", time=True)], [{"at": 1_735_689_601}, {"at": 1_735_689_599.9}, {"at": None}]
    yesterday, whole = "2024-12-31T23:59:59Z", "2025-01-01T00:00:01Z"
    for form, out, shown in (
        (Format.table, Terminal(), "00:00:01"), (Format.wide, Terminal(), whole), (Format.table, io.StringIO(), whole)
    ):  # fmt: skip
        Printer(form, out, io.StringIO(), Color.never).rows(rows, columns)
        assert out.getvalue().split() == ["TIME", shown, yesterday, "-"]


@pytest.mark.parametrize(
    ("color", "environment", "colored"),
    [("auto", {}, True), ("auto", {"NO_COLOR": "1"}, False), ("auto", {"NO_COLOR": ""}, True),
     ("auto", {"TERM": "dumb"}, False), ("never", {}, False), ("always", {"NO_COLOR": "1"}, True)],
)  # fmt: skip
def test_colours_are_as_asked(
    color: str, environment: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out, file = Terminal(), io.StringIO()
    for stream in (out, file):
        Printer(Format.table, stream, io.StringIO(), Color(color)).rows(ROWS, COLUMNS)
    assert ("\x1b[" in out.getvalue(), "\x1b[" in file.getvalue()) == (colored, color == "always")
