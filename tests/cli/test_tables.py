"""Tables on a terminal: cut, never wrapped."""

from __future__ import annotations

import re

import pytest

from ledger.cli.tables import SHORT_ID, cut, short_ids, table, width_of

TITLES = ["NAME", "STATE", "PARTITION", "ID", "WHY"]
ID = "0193c1de-8f00"
LONG = "attempt 3 failed: exit code 1: Traceback: … ValueError: no table of that name; restart policy used up"
ROWS = [
    ["an-uncommonly-long-name-of-a-job", "QUARANTINED", "3", ID, LONG],
    ["etl", "RUNNING", "0", ID, "-"],
]


@pytest.mark.parametrize("width", [10, 40, 60, 80, 100, 200, 1000])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for text in (None, 4):
        lines = table(TITLES, ROWS, width, whole=[3], text=text)
        assert all(width_of(line) <= max(width, 20) for line in lines)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_headers_and_ids_are_whole_and_each_row_is_one_line(width: int) -> None:
    lines = table(TITLES, ROWS, width, whole=[3])
    assert lines[0].split() == TITLES
    assert len(lines) == 3 and all(ID in line for line in lines[1:])


def test_what_fits_is_as_it_is() -> None:
    assert table(TITLES, ROWS, 1000, whole=[3])[1] == "  ".join([*ROWS[0][:2], f"{3:<9}", ID, LONG])


def test_the_longest_cells_are_cut_first() -> None:
    line = table(["A", "B"], [["short", "x" * 50]], 30)[1]
    assert line == f"short  {'x' * 22}…"


def test_sentences_that_do_not_fit_stand_below_their_row() -> None:
    head, row, *below, other = table(TITLES, ROWS, 80, whole=[3], text=4)
    assert "WHY" not in head and row.endswith(ID) and other.startswith("etl")
    assert all(line.startswith("  ") for line in below)
    assert " ".join(" ".join(below).split()) == LONG
    assert len(table(TITLES, [[*ROWS[0][:4], LONG * 9]], 80, text=4)) == 2 + 3, "at most three lines of a sentence"


def test_sentences_that_fit_stand_beside() -> None:
    assert table(TITLES, [["etl", "RUNNING", "0", ID, "due"]], 80, text=4)[0].split() == TITLES


def test_columns_without_a_value_go_where_there_is_no_room() -> None:
    titles = ["PARTITION", "REDACTED", "FIRST BAD"]
    assert table(titles, [["0", "-", "-"], ["1", "-", "-"]], 20)[0] == "PARTITION"
    assert table(titles, [["0", "-", "-"], ["1", "-", "7"]], 20)[0].split("  ") == ["PARTITION", "FIRST BAD"]
    assert table(titles, [["0", "-", "-"]], 40)[0].split("  ") == titles


def test_one_column_gets_the_room_that_is_left_and_spare_ones_go_first() -> None:
    titles, row = ["REGISTER", "FACT", "ACTOR", "EPOCH"], ["ended/1/failed/agent-there-1234", LONG, "ann@there", "3"]

    def at(width: int) -> list[str]:
        head, line = table(titles, [row], width, rest=1, spare=[2, 3])
        assert line.startswith(row[0]) and width_of(line) <= width
        return head.split()

    assert at(200) == at(75) == titles, "24 columns are enough for FACT"
    assert at(74) == at(64) == ["REGISTER", "FACT", "EPOCH"]
    assert at(63) == at(57) == ["REGISTER", "FACT"]
    assert table(titles, [row], 100, rest=1, spare=[2, 3])[1].startswith(f"{row[0]}  {LONG[:48]}")


def test_spare_columns_stay_where_all_fits() -> None:
    assert table(["FACT", "ACTOR"], [["short", "ann"]], 12, rest=0, spare=[1])[0].split() == ["FACT", "ACTOR"]
    assert table(["FACT", "ACTOR"], [["short", "ann"]], 11, rest=0, spare=[1])[0].split() == ["FACT"]


def test_wide_characters_count_as_two() -> None:
    assert cut("数据数据", 5) == "数据…"
    assert table(["A", "B"], [["数据", "x"], ["abcd", "y"]], 80)[1:] == ["数据  x", "abcd  y"]


def test_colours_take_no_room() -> None:
    styles = [["", "red", "", "", ""], ["", "green", "", "", ""]]
    plain = table(TITLES, ROWS, 80, styles=styles)
    painted = table(TITLES, ROWS, 80, styles=styles, color=True)
    assert [re.sub("\x1b\\[[0-9]*m", "", line) for line in painted] == plain
    assert "\x1b[31mQUARANTINED\x1b[0m" in painted[1]


def test_short_ids_are_beginnings_that_no_other_has() -> None:
    one, two, far = "0193c1de-8f00-7000-8000-a", "0193c1de-8f00-7000-8000-b", "0193c1df-0000-7000-8000-c"
    assert short_ids([one, two, far]) == {one: one, two: two, far: far[:SHORT_ID]}
    assert short_ids([one])[one] == one[:SHORT_ID]
    assert short_ids([one], known=[two])[one] == one, "the other id is not listed, but it is a job as well"
    assert short_ids(["job-7", "nightly-etl-07", "nightly-etl-071"]) == {
        "job-7": "job-7", "nightly-etl-07": "nightly-etl-07", "nightly-etl-071": "nightly-etl-071",
    }  # fmt: skip
