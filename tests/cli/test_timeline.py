"""`history --timeline`: a picture of a job's records that every viewer can show and no record can break."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    RestorePoint,
    Together,
)
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Running, key_of
from ledger.history.timeline import AttemptSpan, CheckpointMark, LeadershipSpan, Operation, Timeline, timeline, timeline_of
from ledger.history.timeline_svg import ROWS_MAX, RUNS_MAX, html, svg
from ledger.reader.reading import history
from ledger.reader.reasons import gist
from ledger.util import times
from tests.support.jobs_world import Shell

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<script>alert('x')</script> & \"quoted\" \x00\x1b[31m\ud800 ]]> \N{PILE OF POO}"


def lived(shell: Shell) -> str:
    """A job with two attempts. The second one starts from a savepoint of the first."""
    job = shell.submit("etl")
    shell.clock.advance(5.0)
    shell.record(job, Attempt(1, 3), AttemptStarted("0" * 64))
    shell.clock.advance(2.0)
    shell.record(job, Running(1), AttemptRunning("pid 17"))
    for id_ in (1, 2):
        shell.clock.advance(10.0)
        kind = CheckpointKind.SAVEPOINT if id_ == 2 else CheckpointKind.CHECKPOINT
        shell.record(job, Checkpoint(1, id_), CheckpointCompleted(f"/chk-{id_}", kind=kind))
    shell.clock.advance(5.0)
    shell.record(job, Ended(1, "lost", "reconciler-3"), AttemptEnded("nobody knows"))
    shell.record(job, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1\nTraceback\nBang"))
    shell.clock.advance(1.0)
    together = Together(reason="its region goes back together")
    base = RestorePoint(1, 2, "/chk-2")
    shell.record(job, Attempt(2, 3), AttemptStarted("0" * 64, base, failures=1, together=together))
    shell.clock.advance(4.0)
    shell.record(job, Attempt(2, 3), AttemptStarted("0" * 64, base, failures=1, together=together))  # sent again
    return job


def test_so_long_ago_is_counted_once(shell: Shell, tmp_path: Path) -> None:
    job = lived(shell)
    shell.clock.advance(1800.0)
    path = tmp_path / "then.svg"
    shell.good("history", job, "--timeline", str(path), "--as-of", "10m")
    then = times.rfc3339(shell.clock.time() - 600.0)[:19]
    assert f"as of {then}Z" in path.read_text()


def test_a_life_is_told_by_its_records(shell: Shell) -> None:
    job = lived(shell)
    pruned = key_of(job, Checkpoint(1, 1)).encode()
    shell.raw(pruned, None, shell.source().partition_of(job))
    shell.clock.advance(16.0)
    shell.good("suspend", job, "--reason", "a pause")
    begin_s = shell.clock.time() - 53.0
    line = timeline_of(shell.source(), job, shell.clock.time())
    first, second = line.runs
    assert (first.n, first.outcome, first.cause) == (1, "failed", "exit code 1\nTraceback\nBang")
    assert (first.base, second.base, second.end_s) == (None, (1, 2), None)
    times = [first.begin_s, first.running_s, first.end_s, second.begin_s, line.end_s]
    assert [round((time or 0) - begin_s) for time in times] == [5, 7, 32, 33, 53]
    assert "its region goes back together" in second.notes and "from 1/2" in second.notes
    assert [(mark.id, mark.savepoint, mark.pruned) for mark in line.marks] == [(1, False, True), (2, True, False)]
    assert [(act.what, act.reason) for act in line.acts] == [("submit", ""), ("admit", ""), ("suspend", "a pause")]
    assert [(reign.role, reign.epoch) for reign in line.leaderships] == [("projector", 1)]
    assert (line.name, line.namespace) == ("etl", "default")


def test_of_those_who_led_only_these_are_told_that_led_then(shell: Shell) -> None:
    records = list(history(shell.source(), lived(shell)))
    begin_s, end_s = records[0].time_s, records[-1].time_s
    claims = [
        LeadershipSpan("projector", 1, begin_s - 9),
        LeadershipSpan("projector", 3, begin_s - 5),
        LeadershipSpan("projector", 2, begin_s + 1),
        LeadershipSpan("reconciler", 7, begin_s + 2),
        LeadershipSpan("reconciler", 8, end_s + 2),
    ]
    line = timeline("job", records, claims, end_s)
    assert [(one.role, one.epoch) for one in line.leaderships] == [("projector", 3), ("reconciler", 7)]


def test_the_file_is_drawn_and_stands_alone(shell: Shell, tmp_path: Path) -> None:
    job = lived(shell)
    for name in ("life.svg", "life.html"):
        told = shell.run("history", job, "--timeline", str(tmp_path / name))
        assert (told.exit_code, told.stdout) == (0, "")
        assert name in told.stderr
    root = ET.fromstring((tmp_path / "life.svg").read_text())
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert any(title.startswith("attempt 1: failed") and "Traceback" in title for title in titles)
    assert any(title.startswith("savepoint 1/2") for title in titles)
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"attempt 1", "attempt 2", "failed: exit code 1: Bang", "projector", "epoch 1"} <= set(words)
    page = (tmp_path / "life.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "<svg" in page
    for drawn in (page, (tmp_path / "life.svg").read_text()):
        assert "prefers-color-scheme:dark" in drawn
        assert not re.search(r"<script|<link|@import|url\(|href|src=", drawn)
        assert set(re.findall(r"https?://[^\"<> ]+", drawn)) <= {"http://www.w3.org/2000/svg"}


def test_as_it_was(shell: Shell, tmp_path: Path) -> None:
    job = lived(shell)
    then = times.rfc3339(shell.clock.time() - 14.0)
    told = shell.run("history", job, "--timeline", str(tmp_path / "then.svg"), "--as-of", then)
    assert told.exit_code == 0 and "as of events[0]@" in told.stderr
    drawn = (tmp_path / "then.svg").read_text()
    assert "attempt 1: no end known" in drawn and "attempt 2" not in drawn
    vector = told.stderr.partition("as of ")[2].split()[0]
    shell.good("history", job, "--timeline", str(tmp_path / "again.svg"), "--as-of", vector)
    assert "attempt 1: no end known" in (tmp_path / "again.svg").read_text()


@pytest.mark.parametrize(("arguments", "code"), [
    (("x", "--timeline", "a.png"), 2), (("x", "--timeline", "a.svg", "--follow"), 2), (("x", "--timeline", "a.svg"), 1),
])  # fmt: skip
def test_what_can_not_be_drawn(shell: Shell, arguments: tuple[str, ...], code: int) -> None:
    assert shell.run("history", *arguments).exit_code == code


def test_a_place_that_can_not_be_written_is_told(shell: Shell, tmp_path: Path) -> None:
    told = shell.run("history", lived(shell), "--timeline", str(tmp_path / "nowhere" / "life.svg"))
    assert told.exit_code == 2 and "Can't write" in told.stderr


def words_of(drawn: str) -> list[str]:
    return [text.text or "" for text in ET.fromstring(drawn).iter(f"{SVG}text")]


def test_a_job_that_waits_is_drawn_up_to_the_moment_with_why(shell: Shell, tmp_path: Path) -> None:
    job = shell.submit("etl", "--restart", "none")
    shell.clock.advance(5.0)
    shell.record(job, Attempt(1, 3), AttemptStarted("0" * 64))
    shell.clock.advance(5.0)
    shell.record(job, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 7"))
    ended_s = shell.clock.time()
    shell.clock.advance(600.0)
    line = timeline_of(shell.source(), job, shell.clock.time())
    assert line.wait is not None and line.wait.state == "QUARANTINED" and "exit code 7" in line.wait.reason
    assert (line.wait.begin_s, line.wait.end_s) == (ended_s, shell.clock.time()) and line.end_s == shell.clock.time()
    words = words_of(svg(line))
    assert "QUARANTINED" in words and any("for 10 min" in one and "exit code 7" in one for one in words)
    shell.good("cancel", job, "--reason", "enough")
    shell.clock.advance(60.0)
    assert "CANCELLING" in words_of(svg(timeline_of(shell.source(), job, shell.clock.time())))


def test_what_is_over_ends_the_axis(shell: Shell) -> None:
    job = shell.submit("etl")
    shell.record(job, Attempt(1, 3), AttemptStarted("0" * 64))
    shell.record(job, Ended(1, "finished", "agent-a"), AttemptEnded("exit code 0"))
    over_s = shell.clock.time()
    shell.clock.advance(600.0)
    line = timeline_of(shell.source(), job, shell.clock.time())
    assert (line.wait, line.end_s) == (None, over_s)


def test_times_without_a_checkpoint_are_drawn_as_stalls(shell: Shell) -> None:
    job = shell.submit("etl", "--checkpoint-interval", "10s", "--stalled-after", "3")
    shell.record(job, Attempt(1, 3), AttemptStarted("0" * 64))
    shell.record(job, Running(1), AttemptRunning("pid 17"))
    begin_s = shell.clock.time()
    for id_, after_s in ((1, 20.0), (2, 100.0)):
        shell.clock.advance(after_s)
        shell.record(job, Checkpoint(1, id_), CheckpointCompleted(f"/chk-{id_}"))
    shell.clock.advance(31.0)
    line = timeline_of(shell.source(), job, shell.clock.time())
    assert [(stall.begin_s - begin_s, stall.end_s - begin_s) for stall in line.stalls] == [(50.0, 120.0), (150.0, 151.0)]
    root = ET.fromstring(svg(line))
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert any("stalled" in title and "for 70 s" in title for title in titles) and "stalled" in words_of(svg(line))


@pytest.mark.parametrize(("cause", "said"), [
    ("killed by SIGKILL: INFO begins\n[Stage 2:>                (0 + 1) / 4]", "killed by SIGKILL: [Stage 2:>"),
    ("oom: killed by SIGKILL: a\nb", "oom: killed by SIGKILL: b"),
    ("exit code 1: Traceback (most recent call last):\n  File x\nValueError: no such table", "ValueError: no such table"),
    ("exit code 1: at work\njava.lang.IllegalStateException: gone", "java.lang.IllegalStateException: gone"),
    ("exit code 1: Caused by\nCaused by: a.b.FooException: x", "Caused by: a.b.FooException: x"),
    ("exit code 2", "exit code 2"), ("", ""), ("nobody\nknows", "nobody: knows"),
])  # fmt: skip
def test_how_it_ended_is_said_unless_an_exception_says_more(cause: str, said: str) -> None:
    assert gist(cause).startswith(said)
    run = AttemptSpan(1, 0.0, 1.0, 2.0, "failed", cause)
    drawn = svg(Timeline("job", "", "", "", (run,), (), (), (), 0.0, 100.0, 100.0))
    wanted = " ".join(f"failed: {said}".split()) if said else "failed"
    assert any(" ".join(words.split()).startswith(wanted) for words in words_of(drawn))


def test_a_reason_that_is_too_long_keeps_its_end() -> None:
    cause = f"FileNotFoundError: [Errno 2] No such file or directory: '{'/a/long/way' * 20}/to/orders.csv'"
    drawn = svg(
        Timeline("job", "", "", "", (AttemptSpan(1, 0.0, 1.0, 60.0, "failed", cause),), (), (), (), 0.0, 100.0, 100.0)
    )
    (words,) = [words for words in words_of(drawn) if words.startswith("failed: FileNotFound")]
    assert words.endswith("/to/orders.csv'") and "…" in words


def test_no_line_of_an_act_is_drawn_over_words() -> None:
    drawn = svg(made(10))
    lines, words = drawn.rindex('<line class="act"'), drawn.index(">retry")
    assert lines < words and ".over{paint-order:stroke" in drawn
    beside = [one for one in ET.fromstring(drawn).iter(f"{SVG}text") if (one.text or "").startswith(("retry", "failed"))]
    assert beside and all("over" in one.attrib["class"].split() for one in beside if one.text != "failed")


def made(runs: int, text: str = "why") -> Timeline:
    """A timeline with so many attempts, one a minute; the last has no end."""
    found = tuple(
        AttemptSpan(n, 60.0 * n, 60.0 * n + 1, None if n == runs else 60.0 * n + 50, "" if n == runs else "failed", text,
            (n - 1, 1) if n > 1 else None, (text,))
        for n in range(1, runs + 1)
    )  # fmt: skip
    marks = tuple(CheckpointMark(run.n, i, run.begin_s + 10 * i, i == 3, text) for run in found for i in (1, 2, 3))
    acts = tuple(Operation(60.0 * n + 30, "retry", text, text) for n in range(0, runs, 7))
    reigns = (
        LeadershipSpan("projector", 1, 0.0, text, text),
        LeadershipSpan("reconciler", 2, 0.0),
        LeadershipSpan("reconciler", 3, 100.0),
    )
    end_s = 60.0 * runs + 60
    return Timeline("job", text, text, text, found, marks, acts, reigns, 0.0, end_s, end_s)


@pytest.mark.parametrize("runs", [0, 1, 2, 10, ROWS_MAX, ROWS_MAX + 1, 200, RUNS_MAX + 50])
def test_any_number_of_attempts_fits_on_a_sheet(runs: int) -> None:
    root = ET.fromstring(svg(made(runs)))
    width, height = (float(side) for side in root.attrib["viewBox"].split()[2:])
    assert (width, height < 1500) == (1200, True)
    bars = [title for title in root.iter(f"{SVG}title") if re.match(r"attempt \d+: ", title.text or "")]
    assert len(bars) == min(runs, RUNS_MAX)
    for shape in root.iter():
        for name, low, high in (("x", 0, 1200), ("x1", 0, 1200), ("x2", 0, 1200), ("y", 0, height), ("y2", 0, height)):
            value = shape.attrib.get(name)
            assert value is None or low <= float(value) <= high, shape.attrib


def test_attempts_that_share_rows_do_not_lie_upon_each_other() -> None:
    root = ET.fromstring(svg(made(300)))
    rows: dict[str, float] = {}
    for group in root.iter(f"{SVG}g"):
        bars = [rect for rect in group.iter(f"{SVG}rect") if rect.attrib["class"].startswith("o-")]
        if bars and (group.findtext(f"{SVG}title") or "").startswith("attempt"):
            begin, y = float(bars[-1].attrib["x"]), bars[-1].attrib["y"]
            assert begin >= rows.get(y, 0.0)
            rows[y] = begin + float(bars[-1].attrib["width"])
    assert len(rows) > 1


def test_no_text_of_a_job_gets_out_of_its_place() -> None:
    for drawn in (svg(made(3, NASTY)), html(made(3, NASTY))):
        assert "<script" not in drawn and "\x00" not in drawn and "\x1b" not in drawn
        drawn.encode()
    root = ET.fromstring(svg(made(3, NASTY)))
    assert any("<script>alert('x')</script> & \"quoted\"" in (title.text or "") for title in root.iter(f"{SVG}title"))


@pytest.mark.parametrize(("begin_s", "end_s"), [(0, 0), (0, 1e-3), (-1e9, 1e9), (0, 1e18), (1.7e9, 1.7e9 + 3e8)])
def test_any_span_of_time_has_an_axis(begin_s: float, end_s: float) -> None:
    line = Timeline(
        "job", "", "", "", (AttemptSpan(1, begin_s, None, end_s, "finished"),), (), (), (), begin_s, end_s, end_s
    )
    root = ET.fromstring(svg(line))
    grid = [one for one in root.iter(f"{SVG}line") if one.attrib["class"] == "grid"]
    assert 1 <= len(grid) <= 12
