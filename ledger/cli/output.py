"""Prints answers: a table for people, JSON for machines, progress on stderr.

Stdout has the answer and nothing else. The keys of JSON are the names in the schemas. Rows are plain mappings, and a
column defines how to show one value, so table and JSON can't drift apart.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, TextIO

from ledger.cli import tables
from ledger.util.times import shown

Row = Mapping[str, Any]
PROGRESS_AFTER_S = 1.0
#: Characters that JSON allows and a terminal obeys or hides: DEL, C1 controls, direction marks, separators, zero widths.
_UNSEEN = re.compile(r"[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


class Format(StrEnum):
    table = "table"
    wide = "wide"
    json = "json"
    jsonl = "jsonl"
    name = "name"


class Color(StrEnum):
    auto = "auto"
    always = "always"
    never = "never"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. key: the field of the row (dotted: in a nested mapping). shown: formats the value; None =
    `cell`. wide: only with -o wide. id: a job id; a terminal shows its unique beginning. text: sentences; they go below
    their row if the terminal has no room for them. style: returns the colour for a shown value. time: seconds since the
    epoch; a terminal leaves out today's date. whole: never cut. rest: gets the room that the other columns leave, and
    is cut first. spare: when a narrow terminal leaves the column out, 1 first; 0 = never. short: formats the value for
    a terminal."""

    title: str
    key: str
    shown: Callable[[Any], str] | None = None
    wide: bool = False
    id: bool = False
    text: bool = False
    style: Callable[[str], str] | None = None
    time: bool = False
    whole: bool = False
    rest: bool = False
    spare: int = 0
    short: Callable[[str], str] | None = None

    def of(self, row: Row, today: str = "") -> str:
        """The column's cell in a row. today: a date as in `utc`; times of that day are shown without a date; "" = with
        a date."""
        value: Any = row
        for part in self.key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if self.time:
            day, _, clock = utc(value).partition("T")
            return clock.removesuffix("Z") if today and day == today else utc(value)
        return self.shown(value) if self.shown is not None else cell(value)


class Printer:
    """Prints answers in one format on one stream, and remarks on stderr."""

    def __init__(
        self, form: Format = Format.table, out: TextIO | None = None, err: TextIO | None = None, color: Color = Color.auto
    ) -> None:
        self.form, self._color = form, color
        self._out, self._err = out or sys.stdout, err or sys.stderr
        self._progress = threading.Lock()  # guards stderr: the progress line, and notes
        self._rewritten = False

    @property
    def for_people(self) -> bool:
        return self.form in (Format.table, Format.wide)

    @property
    def on_terminal(self) -> bool:
        """Whether the answer goes to a terminal, not to a pipe or a file."""
        return is_terminal(self._out)

    def rows(self, rows: Iterable[Row], columns: Sequence[Column], *, empty: str = "", known: Iterable[str] = ()) -> None:
        """Prints a list. json: one array; jsonl: one object per line, printed at once; name: the first column. empty: a
        note on stderr for people if the list is empty. known: ids of jobs that are not among the rows; a short id must
        not match them."""
        if self.form is Format.jsonl:
            for row in rows:
                self._line(to_json(row))
        elif self.form is Format.json:
            self._line(to_json([dict(row) for row in rows], indent=2))
        elif self.form is Format.name:
            for row in rows:
                self._line(columns[0].of(row))
        else:
            listed = list(rows)
            if listed:
                self._table([column for column in columns if self.form is Format.wide or not column.wide], listed, known)
            elif empty:
                self.note(empty)

    def one(self, row: Row, columns: Sequence[Column]) -> None:
        """Prints a single row: for people, one or more lines for each column; as JSON, one object."""
        if self.form is Format.json:
            self._line(to_json(row, indent=2))
        elif self.form is Format.jsonl:
            self._line(to_json(row))
        elif self.form is Format.name:
            self._line(columns[0].of(row))
        else:
            shown = [column for column in columns if self.form is Format.wide or not column.wide]
            width = max(len(column.title) for column in shown)
            for column in shown:
                title = column.title
                for line in column.of(row).split("\n"):
                    self._line(f"{title:<{width}}  {line}".rstrip())
                    title = ""

    def stream(self, row: Row, columns: Sequence[Column]) -> None:
        """Prints one row of a stream of changes as one line, and flushes it. The format json is treated as jsonl."""
        if self.for_people:
            shown = [column for column in columns if self.form is Format.wide or not column.wide]
            self._line("  ".join(column.of(row) for column in shown))
        else:
            self._line(columns[0].of(row) if self.form is Format.name else to_json(row))

    def text(self, line: str) -> None:
        """Prints the answer as a sentence, for people only."""
        if self.for_people:
            self._line("\n".join(lines_of(line)))

    def note(self, line: str) -> None:
        """Prints a remark on stderr, in any format."""
        with self._progress:
            self._erase()
            print("\n".join(lines_of(line)), file=self._err, flush=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[str], None]]:
        """Shows progress on stderr once a wait takes over a second, on one line that is rewritten. Shows nothing where
        stderr is no terminal.

        with printer.progress("reading the log") as tell: tell("12000 of 50000 records")
        """
        ended = threading.Event()
        latest = [what]

        def speak() -> None:
            while not ended.wait(PROGRESS_AFTER_S):
                with self._progress:
                    self._rewrite(f"{latest[0]} …")  # even if unchanged: a note may have erased it

        def tell(word: str) -> None:
            latest[0] = f"{what}: {word}"

        if not is_terminal(self._err):
            yield tell
            return
        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        try:
            yield tell
        finally:
            ended.set()
            thread.join()
            with self._progress:
                self._erase()

    def _rewrite(self, line: str) -> None:
        shown = tables.cut("".join(lines_of(line)), tables.terminal_width() - 1)
        print(f"\r{shown}\x1b[K", end="", file=self._err, flush=True)
        self._rewritten = True

    def _erase(self) -> None:
        if self._rewritten:
            print("\r\x1b[K", end="", file=self._err, flush=True)
            self._rewritten = False

    def _table(self, columns: Sequence[Column], rows: Sequence[Row], known: Iterable[str]) -> None:
        terminal = is_terminal(self._out)
        fitted = terminal and self.form is not Format.wide
        today = utc(time.time()).partition("T")[0] if fitted else ""
        cells = [[column.of(row, today) for column in columns] for row in rows]
        color = tables.use_color(self._color, terminal)
        ids = [at for at, column in enumerate(columns) if column.id]
        styles = [[column.style(text) if column.style else "" for column, text in zip(columns, row, strict=True)]
                  for row in cells]  # fmt: skip
        titles = [column.title for column in columns]
        if fitted:
            cells = [[column.short(text) if column.short else text for column, text in zip(columns, row, strict=True)]
                     for row in cells]  # fmt: skip
            for at in ids:
                short = tables.short_ids([row[at] for row in cells], known)
                for row in cells:
                    row[at] = short[row[at]]
            text = next((at for at, column in enumerate(columns) if column.text), None)
            width = tables.terminal_width()
        else:
            text, width = None, sys.maxsize
        whole = [at for at, column in enumerate(columns) if column.id or column.time or column.whole]
        rest = next((at for at, column in enumerate(columns) if column.rest), None)
        spare = sorted((at for at, column in enumerate(columns) if column.spare), key=lambda at: columns[at].spare)
        for line in tables.table(
            titles, cells, width, styles=styles, whole=whole, text=text, color=color, rest=rest, spare=spare
        ):
            self._line(line)

    def _line(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def cell(value: Any) -> str:
    """The text of a value in a table: without spaces at the ends, line breaks or control characters. None and "" are a
    dash."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return _printable(",".join(f"{key}={inner}" for key, inner in value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(cell(inner) for inner in value)
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return _printable(str(value)).strip()


def lines_of(text: str) -> list[str]:
    """The lines of a text for people, without control characters, which could drive a terminal."""
    return [_printable(line).rstrip() for line in text.splitlines()]


def counted(number: int, what: str) -> str:
    """A number with its noun, singular or plural: `1 job`, `2 jobs`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def brief(text: str) -> str:
    """The first and the last line of a text, such as an error: the first names the subject, the last the cause."""
    lines = [line.strip() for line in lines_of(text) if line.strip()]
    return f"{lines[0]} … {lines[-1]}" if len(lines) > 1 else cell(text)


def short_digests(text: str) -> str:
    """The text with a SHA-256 digest cut to its first 12 digits."""
    return _DIGEST.sub(rf"\g<1>{tables.CUT}", text)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def age(seconds: float) -> str:
    """A duration for people, in at most two units: 45s, 12m, 3h20m, 5d4h."""
    whole = max(0, int(seconds))
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    for at, (letter, size) in enumerate(units):
        if whole >= size or letter == "s":
            count, rest = divmod(whole, size)
            finer = rest // units[at + 1][1] if letter in "dh" else 0
            return f"{count}{letter}{f'{finer}{units[at + 1][0]}' if finer else ''}"
    raise AssertionError("the last unit takes all")


def utc(time_s: float | None) -> str:
    """A time in UTC for people: 2025-01-31T12:00:00Z. time_s: seconds since the epoch; None becomes a dash. A time
    beyond the calendar stays in seconds."""
    return "-" if time_s is None else shown(time_s)


def to_json(value: Any, indent: int | None = None) -> str:
    """A value as JSON, with field names unchanged and non-ASCII kept. Characters that drive a terminal or can't be
    encoded are escaped; bytes become UTF-8 or hex. indent: spaces per level; None = on one line."""
    text = json.dumps(value, indent=indent, default=_plain, ensure_ascii=False)
    text = _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
