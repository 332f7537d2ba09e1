"""Parses docs/PROTOCOL.md into its blocks of code, hex and vectors, so that tests can check the page.

It imports nothing of the ledger: the producer in these tests knows only the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "schemas"
TEXT = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"^```(\w+) (\S[^\n]*)\n(.*?)^```", re.S | re.M)
#: (language, name) -> content of each fenced block that has a name.
BLOCKS: dict[tuple[str, str], str] = {(language, name): content for language, name, content in _BLOCK.findall(TEXT)}


def lines(language: str, name: str) -> list[str]:
    return BLOCKS[language, name].splitlines()


def value(name: str) -> bytes:
    """The bytes of a hex block, without its comments."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines("hex", name)))


def function(block: str, name: str) -> Any:
    """A Python function from a block of the page."""
    namespace: dict[str, Any] = {}
    exec(compile(BLOCKS["python", block], f"PROTOCOL.md:{block}", "exec"), namespace)
    return namespace[name]


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without the header row."""
    section = TEXT.split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line.startswith("|")
    ]
    return rows[2:]
