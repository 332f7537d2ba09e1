"""The last lines of a job's output, as its cause quotes them: as a terminal would show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess.supervisor.logs import TAIL_BYTES, TAIL_LINES, tail

pytestmark = pytest.mark.slow

BAR = "[Stage 2:====>                 ({} + 1) / 4000]"


@pytest.mark.parametrize(("written", "said"), [
    ("one\ntwo\n", "one\ntwo"), ("one\r\ntwo\r\n", "one\ntwo"), ("", ""), ("\r\r \n", ""),
    ("one\n10%\r20%\r30%", "one\n30%"), ("one\n10%\r20%\r   \r", "one\n20%"), ("10%\rdone\nlast", "done\nlast"),
    ("\x1b[31mred\x07\ttab", "[31mred\ttab"),
])  # fmt: skip
def test_of_a_line_that_was_rewritten_what_was_written_last(tmp_path: Path, written: str, said: str) -> None:
    (tmp_path / "log").write_bytes(written.encode())
    assert tail(str(tmp_path / "log")) == said


def test_what_was_said_before_a_thousand_rewritten_bars_is_there(tmp_path: Path) -> None:
    bars = "\r".join(BAR.format(n) for n in range(1000))
    (tmp_path / "log").write_text(f"WARN: no more memory\n{bars}")
    assert tail(str(tmp_path / "log")) == f"WARN: no more memory\n{BAR.format(999)}"


def test_it_is_short_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"{n} {'x' * 1000}\n" for n in range(300)))
    said = tail(str(tmp_path / "log"))
    assert len(said) <= TAIL_BYTES and said.endswith("x") and len(said.splitlines()) <= TAIL_LINES
    (tmp_path / "log").write_text("".join(f"{n}\n" for n in range(300)))
    assert tail(str(tmp_path / "log")).splitlines() == [str(n) for n in range(280, 300)]


def test_of_more_than_is_kept_the_last_is_there(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"first {'x' * TAIL_BYTES} last")
    said = tail(str(tmp_path / "log"))
    assert said.endswith(" last")
    assert "first" not in said
