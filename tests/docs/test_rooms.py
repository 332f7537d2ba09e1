"""The packages: docs/ARCHITECTURE.md shows them, the root of `ledger` stays small, and tests/ mirrors them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.docs.rooms import END, PAGE, layers, packages, with_rooms
from tests.support.pages import ROOT

#: Folders for kinds of tests and for shared code. Every other folder mirrors a package of `ledger`.
KINDS = {
    "acceptance", "cluster", "consumers", "containers", "contract", "docs", "foreign", "fuzz", "laws", "mutation",
    "protocol", "scenarios", "schemas", "simulation", "support",
}  # fmt: skip


def test_the_page_shows_the_rooms_as_they_are() -> None:
    text = PAGE.read_text()
    assert END in text
    assert with_rooms(text) == text, "regenerate the page: python -m tests.docs.rooms"


def test_the_root_of_the_package_has_five_modules() -> None:
    modules = {path.name for path in (ROOT / "ledger").glob("*.py")}
    assert modules == {"__init__.py", "__main__.py", "_version.py", "errors.py", "tasks.py"}


def test_the_fold_can_be_read_in_half_an_hour() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / "ledger" / "core" / "fold").glob("*.py"))
    assert lines <= 900


def test_every_package_is_in_the_contract_of_the_layers() -> None:
    named = {name for layer in layers("ledger") for name in layer}
    there = {path.name for path in packages() if path.parent == ROOT / "ledger"}
    assert there == named - {"errors", "tasks"}


def test_a_package_names_modules_that_it_has() -> None:
    for folder in packages():
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        there = {path.stem for path in folder.iterdir()}
        named = set(re.findall(r"`([a-z_0-9]+)`", text)) - {"up", "down", "register", "jobledger"}
        if there == {"__init__", "__pycache__"} or there == {"__init__"}:
            continue  # a module under the name of a package: its docstring describes the package
        assert named <= there, f"{folder.relative_to(ROOT)} names {sorted(named - there)}"


def test_tests_mirror_the_rooms() -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    strangers = sorted(
        folder.as_posix() for folder in folders
        if folder.parts and folder.parts[0] not in KINDS and not (ROOT / "ledger" / folder).is_dir()
    )  # fmt: skip
    assert strangers == []
    assert {path.name for path in (ROOT / "tests").glob("*.py")} == {"__init__.py", "conftest.py"}


def test_every_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path in (ROOT / "ledger").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(ROOT).as_posix())
    assert len(places) > 300, "the search finds the test modules"
    assert {name: there for name, there in places.items() if len(there) > 1} == {}
