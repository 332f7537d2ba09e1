"""The sentences of the project, and how many of them go against docs/STYLE.md: `python -m tests.docs.english`.

python -m tests.docs.english [ROOM]     the counts; with a room, its offending sentences, each with its file
python -m tests.docs.english --record   lowers the recorded counts to what is there now
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.pages import ROOT

RECORD = ROOT / "tests" / "docs" / "english.txt"
#: Pages that are made from other files, or that hold what was decided at their time.
LEFT_OUT = ("docs/MUTANTS.md", "docs/SETTINGS.md", "docs/decisions/", "docs/CHANGELOG.md", "docs/STYLE.md")
BEGINNING = re.compile(r"^(Of|Who|What|Whoever|Whatever|Whom)\b")
CHAIN = re.compile(r"\b(of|by) (which|what|whom|whose)\b", re.IGNORECASE)
#: A line of comment, or one behind code: good enough for counting, and ten times as fast as a tokenizer.
COMMENT = re.compile(r"(?:^\s*|  )(?P<mark>#):? (?P<text>[^\"']*)$")
QUESTION = re.compile(r"\?$")


class Sentence(NamedTuple):
    """path: relative to the project's root. text: on one line."""

    path: str
    text: str

    @property
    def offends(self) -> bool:
        """A sentence that begins with Of, Who, What …, or that holds a chain such as "of which"; questions may."""
        return not QUESTION.search(self.text) and bool(BEGINNING.match(self.text) or CHAIN.search(self.text))


def split(text: str) -> Iterator[str]:
    """The sentences of a paragraph; words alone are none."""
    joined = " ".join(text.split())
    for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\"])", joined):
        if len(sentence.split()) >= 3:
            yield sentence.strip()


def of_python(source: str) -> Iterator[str]:
    """Docstrings, comments, and texts of several words: help, errors, hints."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            for paragraph in re.split(r"\n\s*\n", node.value):
                if re.match(r"\s*[A-Z`]", paragraph):
                    yield from split(paragraph)
    block: list[str] = []
    for line in [*source.splitlines(), ""]:
        comment = COMMENT.search(line)
        if block and (comment is None or (comment.start("mark") > 0 and line[: comment.start("mark")].strip())):
            yield from split(" ".join(block))
            block = []
        if comment is not None:
            block.append(comment["text"])


def of_markdown(text: str) -> Iterator[str]:
    """Paragraphs, points of lists, cells of tables; no code."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) )", text):
        for cell in paragraph.split(" | ") if paragraph.lstrip().startswith("|") else [paragraph]:
            yield from split(re.sub(r"^[\s\-*|#>]+", "", cell))


def room_of(path: Path) -> str:
    """ledger/archive, consumers, tests/roles, docs, README …: the unit that is counted."""
    inside = path.relative_to(ROOT)
    if inside.parts[0] in ("ledger", "tests") and len(inside.parts) > 2:
        return "/".join(inside.parts[:2])
    return inside.parts[0]


def sentences() -> Iterator[tuple[str, Sentence]]:
    """Room and sentence, of everything that people read."""
    for top in ("ledger", "consumers", "tests", "benchmarks"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("tests/mutation/lists"):
                yield from ((room_of(path), Sentence(name, text)) for text in of_python(path.read_text()))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(LEFT_OUT):
            yield from ((room_of(path), Sentence(name, text)) for text in of_markdown(path.read_text()))


def counts() -> dict[str, tuple[int, int]]:
    """By room: how many sentences offend, of how many."""
    found: dict[str, tuple[int, int]] = {}
    for room, sentence in sentences():
        bad, total = found.get(room, (0, 0))
        found[room] = bad + sentence.offends, total + 1
    return found


def recorded() -> dict[str, int]:
    lines = [line.split() for line in RECORD.read_text().splitlines() if not line.startswith("#")]
    return {room: int(number) for room, number in lines}


def record() -> None:
    known = recorded() if RECORD.exists() else {}
    lowest = {room: min(bad, known.get(room, bad)) for room, (bad, _) in sorted(counts().items())}
    head = "# Sentences that go against docs/STYLE.md, by room; lowered by: python -m tests.docs.english --record\n"
    RECORD.write_text(head + "".join(f"{room} {number}\n" for room, number in lowest.items()))


def main(arguments: list[str]) -> None:
    if arguments == ["--record"]:
        record()
    elif arguments:
        for room, sentence in sentences():
            if room == arguments[0] and sentence.offends:
                print(f"{sentence.path}: {sentence.text}")
    else:
        found = counts()
        for room, (bad, total) in sorted(found.items()):
            print(f"{room:24} {bad:5} of {total:6}  {bad / total:6.1%}")
        bad, total = (sum(column) for column in zip(*found.values(), strict=True))
        print(f"{'all':24} {bad:5} of {total:6}  {bad / total:6.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
