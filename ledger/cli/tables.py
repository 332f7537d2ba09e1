"""Tables on a terminal in kubectl's style: one line per row, cut to the width, whole headers, short ids, sparing colours.

Source: kubectl's output conventions; https://no-color.org for NO_COLOR.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

GAP = 2
CUT = "…"
INDENT = "  "
#: The characters of a UUIDv7 that hold its time, to the millisecond.
SHORT_ID = 13
#: The minimum width of a column that is cut, if its header is no wider.
LEAST = 6
#: The width that the `rest` column should have before other columns are left out or cut.
REST = 24
TEXT_LINES_MAX = 3

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


def use_color(wanted: str, terminal: bool, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether to print colours. wanted: always, never or auto."""
    if wanted != "auto":
        return wanted == "always"
    return terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def painted(text: str, style: str) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and text else text


def terminal_width() -> int:
    """The width of the terminal in columns. The environment variable COLUMNS overrides the terminal."""
    return shutil.get_terminal_size().columns


def short_ids(ids: Iterable[str], known: Iterable[str] = ()) -> dict[str, str]:
    """The short form of each id: id -> its shortest unique beginning, of at least SHORT_ID characters. known: more ids
    from which the short forms must differ."""
    ordered = sorted({*ids, *known})
    shared = [_alike(*pair) for pair in pairwise(ordered)]
    found = {}
    for at, one in enumerate(ordered):
        alike = max(shared[at - 1] if at else 0, shared[at] if at < len(shared) else 0)
        found[one] = one[: max(SHORT_ID, alike + 1)].rstrip("-") if len(one) > SHORT_ID + 1 else one
    return found


def _alike(one: str, other: str) -> int:
    """The length of the common beginning of two texts."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def width_of(text: str) -> int:
    """How many columns of the terminal a text takes: some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """The text, or its beginning with an ellipsis, in `width` columns at most."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) + 1 > width:
        text = text[:-1]
    return f"{text.rstrip()}{CUT}" if width > 0 else ""


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, *,
    styles: Sequence[Sequence[str]] = (), whole: Iterable[int] = (), text: int | None = None, color: bool = False,
    rest: int | None = None, spare: Sequence[int] = (),
) -> list[str]:  # fmt: skip
    """The lines of a table that takes at most `width` columns of the terminal.

    styles: a style for each cell, "" = none. whole: columns that are never cut. text: the column with sentences; if
    they do not fit beside the other columns, they go below their row, indented. rest: the column that gets the
    remaining room; it is cut first. If the table does not fit, empty columns are left out, then the columns in `spare`,
    in that order, until `rest` has REST columns or all that it needs."""
    widths = [max(width_of(title), *(width_of(row[at]) for row in rows)) for at, title in enumerate(titles)]
    below = text is not None and _total(widths) > width
    shown = [at for at in range(len(titles)) if not (below and at == text)]
    if _total([widths[at] for at in shown]) > width:
        shown = [at for at in shown if any(row[at] != "-" for row in rows)]
    headers = [width_of(title) for title in titles]
    least = widths.copy()
    if rest is not None:
        least[rest] = min(widths[rest], max(headers[rest], REST))
    for at in spare:
        if at in shown and _total([least[one] for one in shown]) > width:
            shown.remove(at)
    if rest in shown:
        others = [widths[at] for at in shown if at != rest]
        widths[rest] = min(widths[rest], max(least[rest], width - _total([*others, 0])))
    _shrink(widths, headers, [at for at in shown if at not in set(whole)], shown, width)
    lines = [_line([titles[at] for at in shown], ["bold"] * len(shown), [widths[at] for at in shown], width, color)]
    for number, row in enumerate(rows):
        painting = styles[number] if styles else [""] * len(row)
        lines.append(
            _line([row[at] for at in shown], [painting[at] for at in shown], [widths[at] for at in shown], width, color)
        )
        if below and text is not None and row[text] not in ("", "-"):
            lines += _paragraph(row[text], width)
    return lines


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shrink(widths: list[int], headers: Sequence[int], may: Sequence[int], shown: Sequence[int], width: int) -> None:
    """Takes room from the widest columns that may be cut, until all fit or a header would be cut."""
    while _total([widths[at] for at in shown]) > width:
        left = [at for at in may if widths[at] > max(headers[at], LEAST)]
        if not left:
            return
        widths[max(left, key=lambda at: widths[at])] -= 1


def _line(cells: Sequence[str], styles: Sequence[str], widths: Sequence[int], width: int, color: bool) -> str:
    """A row; the rest beyond the right margin is cut."""
    room, parts = width, list[str]()
    for at, (cell, style, own) in enumerate(zip(cells, styles, widths, strict=True)):
        shown = cut(cut(cell, own), room)
        gap = " " * (own + GAP - width_of(shown)) if at < len(cells) - 1 else ""
        parts.append((painted(shown, style) if color else shown) + gap)
        room -= own + GAP
        if room <= 0:
            break
    return "".join(parts).rstrip()


def _paragraph(text: str, width: int) -> list[str]:
    """A sentence below its row, in a few lines at most."""
    wrapped = textwrap.wrap(text, max(20, width - 1), initial_indent=INDENT, subsequent_indent=INDENT)
    if len(wrapped) > TEXT_LINES_MAX:
        wrapped = [*wrapped[: TEXT_LINES_MAX - 1], cut(f"{wrapped[TEXT_LINES_MAX - 1]} {CUT}", width - 1)]
    return wrapped
