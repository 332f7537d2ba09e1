"""The pages are right: links resolve, commands parse, and the modules and tests that they name exist."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from ledger.core.fold.rules import RULES
from tests.support.pages import (
    PAGES,
    ROOT,
    Command,
    blocks,
    broken_links,
    commands,
    missing_paths,
    missing_tests,
    problems_of,
)  # fmt: skip

EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))


def test_the_pages_are_there() -> None:
    wanted = {
        "ARCHITECTURE", "CRITIQUES", "FAILURES", "GLOSSARY", "GUARANTEES", "INCIDENTS", "JOBS", "PROTOCOL", "RECORDER",
        "RELIABILITY", "RUNBOOK", "SETTINGS",
    }  # fmt: skip
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} >= wanted
    linked = (ROOT / "README.md").read_text()
    assert [name for name in sorted(wanted) if f"(docs/{name}.md)" not in linked] == []


@EACH
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[x](docs/GLOSSARY.md) [y](docs)", []),
        ("[x](docs/GLOSSARY.md#topics)", []),
        ("# A title, with `code`\n[x](#a-title-with-code)", []),
        ("[x](https://example.org/nowhere)", []),
        ("```\n[x](nowhere.md)\n```", []),
        ("[x](nowhere.md)", ["nowhere.md"]),
        ("[x](docs/GLOSSARY.md#nowhere)", ["docs/GLOSSARY.md#nowhere"]),
        ("[x](#nowhere)", ["#nowhere"]),
        ("[x](../)", ["../"]),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str, broken: list[str]) -> None:
    assert broken_links(ROOT / "README.md", text) == broken


@EACH
def test_every_command_can_be_typed(page: Path) -> None:
    assert [problem for command in commands(page.read_text()) for problem in problems_of(command)] == []


def test_commands_are_seen_at_all() -> None:
    shown = [command.text.split()[1] for page in PAGES for command in commands(page.read_text())]
    assert {"up", "submit", "list", "cancel", "retry", "explain", "topics", "down"} <= set(shown)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("```sh\njobledger list -o wide | head\n```", []),
        ("```sh\n$ jobledger topics check  # --what\n```", []),
        ("```sh\njobledger submit --id x -- sleep --forever 9\n```", []),
        ("```sh\njobledger submit \\\n    --id x -- sleep 9\n```", []),
        ("```sh\ncurl --no-such-option\n```", []),
        ("`jobledger cancel` `jobledger up --dir X`", []),
        ("```sh\njobledger lsit\n```", ["there is no verb lsit"]),
        ("```sh\njobledger submit \\\n    --idd x -- sleep 9\n```", ["there is no option --idd"]),
        ("```text\n  $ jobledger list --everything\n jobledger is prose\n```", ["there is no option --everything"]),
        ("`jobledger serve ROLE`", []),
        ("`jobledger topics mend`", ["there is no verb mend"]),
        ("`jobledger cancel --why`", ["there is no option --why"]),
        ("```sh\njobledger cancel X\n```", ["--reason is missing"]),
        ("```sh\njobledger topics\n```", ["a verb is missing"]),
    ],
)
def test_a_command_that_can_not_be_typed_is_found(text: str, problems: list[str]) -> None:
    found = [problem for command in commands(text) for problem in problems_of(command)]
    assert [problem.rpartition(": ")[2] for problem in found] == problems


def test_a_hint_in_the_code_can_be_typed() -> None:
    """Hints of errors name commands. Every `jobledger VERB` in a string literal of the code must exist."""
    found = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in sorted((ROOT / "ledger").rglob("*.py"))
        for text in hints(path.read_text())
        for problem in problems_of(Command(text, False))
    ]
    assert found == []


def hints(source: str) -> list[str]:
    """The texts `jobledger VERB [VERB]` in string literals, without the prose or options after them."""
    import ast
    import re

    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += re.findall(r"jobledger (?:topics|config|serve|archive|schema) [a-z]+|jobledger [a-z]+", node.value)
    return [text for text in found if text.split()[1] not in ("again", "knows", "is")]


@EACH
def test_every_path_exists(page: Path) -> None:
    assert missing_paths(page.read_text()) == []


@EACH
def test_every_test_that_is_named_exists(page: Path) -> None:
    assert missing_tests(page.read_text()) == []


def test_what_is_not_there_is_found() -> None:
    text = "`ledger/core/fold/fold.py` `ledger/core/unfold.py` `schemas/<fact>/x` `tests/nowhere/`\n"
    assert missing_paths(text) == ["ledger/core/unfold.py", "tests/nowhere/"]
    named = "`tests/docs/test_pages.py::test_what_is_not_there_is_found` `tests/docs/test_pages.py::test_nothing`"
    assert missing_tests(named) == ["tests/docs/test_pages.py::test_nothing"]


# -- single pages ------------------------------------------------------------------------------------------------------


def test_the_rules_of_the_fold_are_those_that_explain_prints() -> None:
    lines = (ROOT / "docs" / "ARCHITECTURE.md").read_text().splitlines()
    assert [rule.text for rule in RULES if rule.number and f"{rule.number}. {rule.text}" not in lines] == []


def test_decisions_have_a_number_each_and_are_listed() -> None:
    """Two decisions written at the same time take different numbers, so one number may be unused for a while."""
    listed = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    numbers = [int(page.name[:4]) for page in DECISIONS]
    assert len(set(numbers)) == len(numbers) and numbers[:39] == [*range(1, 40)]
    for number, page in zip(numbers, DECISIONS, strict=True):
        title = page.read_text().partition("\n")[0]
        assert page.name.startswith(f"{number:04}-")
        assert title.startswith(f"# {number}. ")
        assert f"[{number}](decisions/{page.name}) | {title.removeprefix(f'# {number}. ')} |" in listed


def test_what_the_runbook_calls_an_event_of_the_log_is_one() -> None:
    """Each `word_word` in the runbook is a log event of a role, a field, or a setting."""
    import re

    code = "\n".join(path.read_text() for path in (ROOT / "ledger").rglob("*.py"))
    words = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", (ROOT / "docs" / "RUNBOOK.md").read_text()))
    assert {"stands_back", "overwritten_by_another"} <= words
    assert [word for word in sorted(words) if f'"{word}"' not in code] == []


def test_every_guarantee_says_how_and_names_a_test() -> None:
    text = (ROOT / "docs" / "GUARANTEES.md").read_text().partition("## The limits")[0]
    guarantees = text.split("\n### ")[1:]
    assert len(guarantees) > 10
    for guarantee in guarantees:
        title = guarantee.partition("\n")[0]
        assert "*Kept by*: " in guarantee, title
        assert "`tests/" in guarantee.partition("*Shown by*: ")[2], title


def test_the_first_steps_are_marked_for_the_test_that_runs_them() -> None:
    steps = [block for block in blocks((ROOT / "README.md").read_text()) if block.info == "sh first-steps"]
    assert len(steps) == 4


def test_the_readme_lists_every_part_that_can_be_installed() -> None:
    install = (ROOT / "README.md").read_text().partition("## Install")[2].partition("\n## ")[0]
    parts = {part for named in re.findall(r"pip install '\.\[([a-z0-9,]+)\]'", install) for part in named.split(",")}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert parts == set(extras) - {"all", "dev"}


def test_what_is_typed_after_an_installation_puts_the_command_on_the_path(tmp_path: Path) -> None:
    (installing,) = [b for b in blocks((ROOT / "README.md").read_text()) if b.info == "sh install"]
    command = tmp_path / ".venv" / "bin" / "jobledger"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o700)
    made, *rest = installing.lines
    assert made == "make setup"
    typed = "\n".join([*rest, "command -v jobledger"])
    told = subprocess.run(["bash", "-euc", typed], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(command)
