"""Every command in docs/INCIDENTS.md, run on the bundles beside the page, prints the output that the page shows."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest
from typer.testing import CliRunner

from ledger.cli import app
from ledger.cli.bundling import PICTURES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "INCIDENTS.md"
TOPICS = ("ledger.events", "ledger.recovery")
INCIDENTS = ("000", "001", "002", "003", "004")


class Shown(NamedTuple):
    """A command and the output shown below it. `…` stands for omitted lines. exit_code: the one given on the page."""

    command: str
    lines: tuple[str, ...]
    exit_code: int


def shown(page: str) -> Iterator[Shown]:
    for block in re.findall(r"^```console\n(.*?)^```", page, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *lines = part.rstrip().splitlines()
            code = re.search(r"  # exit code ([0-9])\Z", command)
            yield Shown(command.partition("  #")[0], tuple(lines), int(code[1]) if code else 0)


def squeezed(line: str) -> str:
    """The line with runs of blanks collapsed: columns may be wider here than on the page."""
    return " ".join(line.split())


COMMANDS = list(shown(PAGE.read_text()))


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: one.command[:60])
def test_what_the_page_shows_is_what_is_said(one: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(one.command)
    assert program == "jobledger"
    told = CliRunner().invoke(app, arguments, env={"COLUMNS": "300", "LEDGER_DIR": str(tmp_path)}, prog_name="jobledger")
    assert told.exit_code == one.exit_code, told.output
    left = iter([squeezed(line) for line in told.output.splitlines()])
    for line in one.lines:
        if line.strip() != "…":
            assert any(squeezed(line) in said for said in left), f"not printed, or not in this order: {line}\n{told.output}"


def test_each_incident_has_a_bundle_and_is_looked_into() -> None:
    for number in INCIDENTS:
        file = f"docs/incidents/{number}.zip"
        assert (ROOT / file).is_file()
        verbs = {one.command.split()[1] for one in COMMANDS if file in one.command}
        assert len(verbs) >= 3, number


@pytest.mark.parametrize("number", INCIDENTS)
def test_every_record_is_proved_by_the_anchors_beside_its_bundle(number: str) -> None:
    files = [str(ROOT / "docs" / "incidents" / f"{number}.{kind}") for kind in ("zip", "anchors")]
    told = CliRunner().invoke(app, ["audit", "verify", "--bundle", files[0], "--anchors", files[1], "-o", "json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)
    assert {(row["topic"], row["partition"]) for row in rows} == {(t, p) for t in TOPICS for p in range(4)}
    assert [row for row in rows if row["proved"] < row["sealed"] or not row["anchored"] or row["broken"]] == []


@pytest.mark.parametrize("number", INCIDENTS)
def test_in_each_bundle_there_are_pictures_of_its_jobs(number: str) -> None:
    with ZipFile(ROOT / "docs" / "incidents" / f"{number}.zip") as bundle:
        pictures = [name for name in bundle.namelist() if name.startswith("timelines/")]
    told = CliRunner().invoke(app, ["list", "--all", "-o", "name", "--bundle", str(ROOT / f"docs/incidents/{number}.zip")])
    jobs = told.stdout.split()
    assert jobs and len(pictures) == (len(jobs) if len(jobs) <= PICTURES else 0)


def test_bundles_stay_small() -> None:
    assert sum(file.stat().st_size for file in (ROOT / "docs" / "incidents").glob("*.zip")) < 8 << 20
