"""Generates the diagram and the table of the packages in docs/ARCHITECTURE.md: `python -m tests.docs.rooms`.

The diagram comes from the layers contract in pyproject.toml, the table from the docstrings of the packages.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN, END = "<!-- rooms: begin -->\n", "<!-- rooms: end -->\n"


def layers(container: str) -> list[list[str]]:
    """The layers of a package by the contract, top layer first. Each layer is a list of packages or modules."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = [one["layers"] for one in contracts if one.get("containers") == [container]]
    split = [[name.strip() for name in layer.replace(":", "|").split("|")] for layer in found]
    return [[name for name in layer if not name.startswith(("_", "("))] for layer in split]


def packages() -> list[Path]:
    """The folders of `ledger`, in the order of the contract, top layer first."""
    order = [name for layer in layers("ledger") for name in layer]
    found = [path.parent for path in (ROOT / "ledger").rglob("__init__.py") if path.parent != ROOT / "ledger"]

    def place(folder: Path) -> tuple[int, str]:
        inside = folder.relative_to(ROOT / "ledger")
        return order.index(inside.parts[0]), inside.as_posix()

    return sorted(found, key=place)


def meaning(folder: Path) -> str:
    """The docstring of a package, on one line. Raises: AssertionError if there is none."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    assert text, f"{folder.relative_to(ROOT)} has no docstring"
    return " ".join(text.split()).replace("|", "\\|")


def rooms() -> str:
    drawn = [layer for layer in layers("ledger") if layer]
    lines = ["```mermaid", "flowchart TD"]
    for number, layer in enumerate(drawn):
        lines.append(f'    L{number}["{" · ".join(layer)}"]')
        if number:
            lines.append(f"    L{number - 1} --> L{number}")
    lines += ["```", "", "| room | what is there |", "| --- | --- |"]
    lines += [f"| `{path.relative_to(ROOT).as_posix()}/` | {meaning(path)} |" for path in packages()]
    return "\n".join(lines) + "\n"


def with_rooms(text: str) -> str:
    """The page with a newly generated part between the two marks."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + rooms() + END + tail


if __name__ == "__main__":
    PAGE.write_text(with_rooms(PAGE.read_text()))
