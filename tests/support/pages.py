"""Parses the pages of this repository: links, anchors, commands, paths."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer

from ledger.cli import app

ROOT = Path(__file__).resolve().parents[2]
RECORDER_MD = ROOT / "docs" / "RECORDER.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(.*)$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
#: Tokens that end a command in a shell.
_END = {"|", "||", "&&", ";", ">", ">>", "<", "2>&1"}


class Block(NamedTuple):
    """A fenced block. info: the text after the opening fence, e.g. `sh first-steps`."""

    info: str
    lines: tuple[str, ...]


def example() -> str:
    """The program on the page for producers."""
    code: str
    (code,) = re.findall(r"```python\n(.*?)```", RECORDER_MD.read_text(), re.DOTALL)
    return code


def blocks(text: str) -> list[Block]:
    found, info, lines = list[Block](), None, list[str]()
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if fence is None:
            lines.append(line)
        elif info is None:
            info, lines = fence[1].strip(), []
        else:
            found.append(Block(info, tuple(lines)))
            info = None
    assert info is None, f"a code block is never closed: ```{info}"
    return found


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    out, inside = [], False
    for line in text.splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            out.append(line)
    return "\n".join(out)


# -- links -------------------------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of a page to missing targets or to places outside the repository."""
    broken = []
    for link in _LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        there = target.exists() and target.is_relative_to(ROOT)
        if there and anchor:
            there = anchor in anchors(text if target == page else target.read_text())
        if not there:
            broken.append(link)
    return broken


# -- paths -------------------------------------------------------------------------------------------------------------

_PATH = re.compile(r"(?:ledger|tests|docs|schemas|consumers|benchmarks)/[\w./<>*-]*")


def paths(text: str) -> list[str]:
    """Paths of this repository in code spans. A path with a placeholder is cut before it."""
    spans = [span.partition("::")[0] for span in _CODE.findall(prose(text))]
    return [span.partition("<")[0] for span in spans if _PATH.fullmatch(span)]


def missing_paths(text: str) -> list[str]:
    return [path for path in paths(text) if not (ROOT / path).exists()]


def missing_tests(text: str) -> list[str]:
    """Tests that a page names as `path::name` and that do not exist."""
    missing = []
    for span in _CODE.findall(prose(text)):
        path, separator, name = span.partition("::")
        if separator and path.startswith("tests/"):
            file = ROOT / path
            if not file.is_file() or f"\ndef {name}(" not in file.read_text():
                missing.append(span)
    return missing


# -- commands ----------------------------------------------------------------------------------------------------------


class Command(NamedTuple):
    """A command on a page. whole: it is in a block, so it must be complete."""

    text: str
    whole: bool


def commands(text: str) -> Iterator[Command]:
    """Every command `jobledger …` on a page: lines of shell blocks, lines after a `$` in other blocks, and code spans."""
    for block in blocks(text):
        prompt = r"(?:\$ )?" if block.info.startswith("sh") else r"\$ "
        for line in "\n".join(block.lines).replace("\\\n", " ").splitlines():
            if found := re.match(rf"\s*{prompt}(jobledger .*)", line):
                yield Command(found[1], True)
    for span in _CODE.findall(prose(text)):
        if span.startswith("jobledger "):
            yield Command(span, False)


def problems_of(command: Command) -> list[str]:
    """The reasons why the command line would refuse this command; [] if there are none."""
    words = []
    for word in shlex.split(command.text, comments=True)[1:]:
        if word in _END:
            break
        words.append(word)
    at: Any = cli()
    while hasattr(at, "commands") and words and not words[0].startswith("-"):
        verb = words.pop(0)
        if verb.isupper():  # a placeholder: any of them
            return []
        if verb not in at.commands:
            return [f"{command.text}: there is no verb {verb}"]
        at = at.commands[verb]
    if hasattr(at, "commands") and command.whole and not words:
        return [f"{command.text}: a verb is missing"]
    own = words[: words.index("--")] if "--" in words else words
    known = {name for option in at.params for name in option.opts} | {"--help", "-h"}
    given = {word.partition("=")[0] for word in own if word.startswith("-")}
    problems = [f"{command.text}: there is no option {name}" for name in sorted(given - known)]
    if command.whole:
        wanted = [option for option in at.params if option.required and option.opts[0].startswith("-")]
        problems += [f"{command.text}: {o.opts[0]} is missing" for o in wanted if not given & set(o.opts)]
    return problems


@cache
def cli() -> Any:
    return typer.main.get_command(app)
