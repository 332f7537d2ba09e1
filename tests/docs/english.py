"""Counts the sentences of the project that break docs/STYLE.md: `python -m tests.docs.english`.

python -m tests.docs.english [ROOM]     prints the counts; with a room, its offending sentences and their files
python -m tests.docs.english --sample SEED [N]   N docstrings and N sentences of the pages, for readers who see nothing else
python -m tests.docs.english --record   lowers the recorded counts to the counts of now
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.pages import ROOT

RECORD = ROOT / "tests" / "docs" / "english.txt"
#: Generated pages, pages that keep the wording of their time, the sources of mutants, and samples of bad sentences.
LEFT_OUT = (
    "docs/MUTANTS.md", "docs/SETTINGS.md", "docs/decisions/", "docs/CHANGELOG.md", "docs/STYLE.md",
    "tests/mutation/lists", "tests/docs/test_english.py",
)  # fmt: skip
BEGINNING = re.compile(r"^(Of|Who|What|Whoever|Whatever|Whom)\b")
CHAIN = re.compile(r"\b(of|by) (which|what|whom|whose)\b", re.IGNORECASE)
#: A comment on a line of its own or after code. Good enough for counting, and ten times as fast as a tokenizer.
COMMENT = re.compile(r"(?:^\s*|  )(?P<mark>#):? (?P<text>[^\"']*)$")
QUESTION = re.compile(r"\?$")


class Sentence(NamedTuple):
    """path: relative to the project's root. text: on one line."""

    path: str
    text: str

    @property
    def offends(self) -> bool:
        """Whether the text begins with Of, Who or What …, or contains a chain (see CHAIN). Questions are allowed."""
        return not QUESTION.search(self.text) and bool(BEGINNING.match(self.text) or CHAIN.search(self.text))


def split(text: str) -> Iterator[str]:
    """The sentences of a paragraph. Fewer than three words are no sentence."""
    joined = " ".join(text.split())
    for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\"])", joined):
        if len(sentence.split()) >= 3:
            yield sentence.strip()


def of_python(source: str) -> Iterator[str]:
    """The sentences in docstrings, comments and string literals of several words (help, errors, hints)."""
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
    """The sentences in paragraphs, list items and table cells; code blocks are skipped."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) )", text):
        for cell in paragraph.split(" | ") if paragraph.lstrip().startswith("|") else [paragraph]:
            yield from split(re.sub(r"^[\s\-*|#>]+", "", cell))


def room_of(path: Path) -> str:
    """The unit for which sentences are counted: ledger/archive, consumers, tests/roles, docs, README …"""
    inside = path.relative_to(ROOT)
    if inside.parts[0] in ("ledger", "tests") and len(inside.parts) > 2:
        return "/".join(inside.parts[:2])
    return inside.parts[0]


def sentences() -> Iterator[tuple[str, Sentence]]:
    """(room, sentence) for all texts that people read."""
    for top in ("ledger", "consumers", "tests", "benchmarks"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(LEFT_OUT):
                yield from ((room_of(path), Sentence(name, text)) for text in of_python(path.read_text()))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(LEFT_OUT):
            yield from ((room_of(path), Sentence(name, text)) for text in of_markdown(path.read_text()))


def counts() -> dict[str, tuple[int, int]]:
    """Room -> (number of offending sentences, number of all sentences)."""
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


def docstrings() -> Iterator[str]:
    """Public modules, classes and functions of the package: where, the first line of the definition, the docstring."""
    for path in sorted((ROOT / "ledger").rglob("*.py")):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) or not (text := ast.get_docstring(node)):
                continue
            if getattr(node, "name", "").startswith("_"):
                continue
            head = "" if isinstance(node, ast.Module) else (ast.get_source_segment(source, node) or "").split('"""')[0]
            yield f"{path.relative_to(ROOT)}\n{head.strip()}\n{text}"


def sample(seed: int, number: int) -> None:
    """Prints random docstrings and sentences of pages. Only sentences of six words or more: shorter ones are labels."""
    drawn = random.Random(seed)
    pages = [s for _, s in sentences() if s.path.endswith(".md") and len(s.text.split()) >= 6]
    for one in drawn.sample(list(docstrings()), number):
        print(f"--- docstring\n{one}\n")
    for sentence in drawn.sample(pages, number):
        print(f"--- {sentence.path}\n{sentence.text}\n")


def main(arguments: list[str]) -> None:
    if arguments == ["--record"]:
        record()
    elif arguments[:1] == ["--sample"]:
        sample(int(arguments[1]), int(arguments[2]) if len(arguments) > 2 else 30)
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
