"""docs/CONSUMERS.md describes what the consumers do."""

from __future__ import annotations

import json
from dataclasses import fields

from consumers.rules import RULES, Finding
from consumers.settings import KNOWN, load
from tests.consumers.given import Records, judged
from tests.support.pages import ROOT, blocks

TEXT = (ROOT / "docs" / "CONSUMERS.md").read_text()


def rows(heading: str) -> list[list[str]]:
    section = TEXT.split(f"\n### {heading}\n", 1)[1].split("\n#", 1)[0]
    lines = [line.strip("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line.split(" | ")] for line in lines[2:]]


def test_every_rule_is_on_the_page() -> None:
    assert [row[0] for row in rows("Rules")] == list(RULES)


def test_every_setting_is_on_the_page_with_its_default() -> None:
    table = {name: default for name, default, _ in rows("Settings")}
    assert set(table) == KNOWN
    settings = load({"AUDIT_BOOTSTRAP_SERVERS": "none"})
    held = {name: getattr(settings.rules, name, None) or getattr(settings, name, ()) for name in table}
    said = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in held.items() if value}
    nothing = {name: default for name, default in table.items() if name not in said}
    assert said == {name: default for name, default in table.items() if name in said}
    assert nothing == {"prefix": "empty", "accepted": "none", "actors": "none: anybody"}


def test_the_finding_on_the_page_is_one() -> None:
    (shown,) = [json.loads("\n".join(block.lines)) for block in blocks(TEXT) if block.info == "json finding"]
    assert list(shown) == [field.name for field in fields(Finding)]
    records = Records()
    event = records("orders-1/intent/1/u", {"kind": "CANCEL", "reason": ""}, ce_id=shown["event"])
    (found,) = judged([event])
    assert (found.id, found.what) == (shown["id"], shown["what"])


def test_the_commands_on_the_page_that_others_run() -> None:
    """tests/protocol/test_protocol_page.py runs `plain`, test_audit.py runs `audit`, and the load test runs
    `completeness`: tests/archive/store/test_load.py."""
    shown = {block.info: block.lines for block in blocks(TEXT) if block.info.startswith("sh")}
    assert set(shown) == {"sh plain", "sh audit", "sh completeness", "sh load"}
    (load_line,) = shown["sh load"]
    assert "tests/archive/store/test_load.py" in load_line
    assert load_line in (ROOT / "tests" / "archive" / "store" / "test_load.py").read_text()
