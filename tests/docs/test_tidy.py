"""No file holds paths of one machine, no installation file holds addresses, and cited pages are in the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.pages import ROOT

SKIPPED = {
    ".git", ".venv", ".hypothesis", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".import_linter_cache", "__pycache__",
    "build", "dist", "artifacts", ".ledger", "spark-warehouse", "metastore_db",
}  # fmt: skip
#: Files that install packages. They may name no index or address, so that they work behind any mirror.
INSTALLING = re.compile(r"Makefile|pyproject\.toml|.*constraints.*\.txt|.*requirements.*\.txt|\.ci/.*|.*\.(cfg|ini|sh)")
DECISIONS = {page.name[:4] for page in (ROOT / "docs" / "decisions").glob("*.md")}
INCIDENTS = set(re.findall(r"^\| (\d{3}) \|", (ROOT / "docs" / "ARCHITECTURE.md").read_text(), re.MULTILINE))


def tree(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.name in SKIPPED or path.is_symlink():
            continue
        if path.is_dir():
            yield from tree(path)
        else:
            yield path


@cache
def texts() -> dict[str, str]:
    """Path -> content of every text file of the repository except this one, which holds the forbidden patterns."""
    found = {}
    for path in tree(ROOT):
        if path == Path(__file__):
            continue
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):  # a missing file was a temporary file of a concurrent test
            continue
    return found


MACHINE = re.compile(r"(?<![\w.}])/(?:work|root|tmp/\w+_jobs|home/(?!someone\b)\w+|Users/\w+)(?:/|\b)")
ADDRESS = re.compile(r"https?://|git\+|--(?:extra-)?index-url|--find-links")
REGISTRY = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|repo1?\.maven|maven\.org|npmjs\.|docker\.io|ghcr\.io|quay\.io|artifactory)", re.I
)
#: The project's texts speak only of the project.
ELSEWHERE = re.compile(
    r"\b(?:DESIGN|PITFALLS|FAULTS|LIBRARIES|PEERS|ROADMAP)(?:\.md| (?:section|rule)\b)"
    r"|\b(?:next|previous|this|another) session\b|\bissue #?\d|\b(?:sub-?agents?|helper|colleague|copilot|chatbot|LLM)\b"
    r"|\btaste rule\b|\bin the brief\b",
    re.I,
)


def found(pattern: re.Pattern[str], path: str, text: str) -> list[str]:
    return [
        f"{path}:{number}: {match[0]}"
        for number, line in enumerate(text.splitlines(), start=1)
        if (match := pattern.search(line))
    ]


@pytest.mark.parametrize("pattern", [MACHINE, REGISTRY, ELSEWHERE], ids=["machine paths", "registries", "other places"])
def test_no_file_holds(pattern: re.Pattern[str]) -> None:
    assert [hit for path, text in texts().items() for hit in found(pattern, path, text)] == []


def test_what_installs_names_no_address() -> None:
    installing = {path: text for path, text in texts().items() if INSTALLING.fullmatch(path)}
    assert {"Makefile", "pyproject.toml", "constraints.txt", ".ci/run"} <= set(installing)
    assert [hit for path, text in installing.items() for hit in found(ADDRESS, path, text)] == []


@pytest.mark.parametrize(
    ("pattern", "bad", "good"),
    [
        (MACHINE, ["cd /" + "work/x", "'/" + "root/.cache'", "/home/alice/x"],
         ["a/" + "work/b", "/home/someone", "/tmp/x", "rootfs", "$HOME/x"]),
        (ADDRESS, ["pip install -i https://x", "git+ssh://y", "--index-url z"], ["pip install x"]),
        (REGISTRY, ["from PyPI.org", "repo1.maven.org"], ["pip", "maven coordinates"]),
        (ELSEWHERE, ["Source: DESIGN section 5", "PITFALLS.md", "see issue #12", "in the next session"],
         ["a Spark session", "design", "tasks", "the agent"]),
    ],
)  # fmt: skip
def test_what_is_forbidden_is_found_and_nothing_else(pattern: re.Pattern[str], bad: list[str], good: list[str]) -> None:
    assert [text for text in bad if not found(pattern, "x", text)] == []
    assert [text for text in good if found(pattern, "x", text)] == []


# -- cited pages exist -------------------------------------------------------------------------------------------------


def cited_and_missing(path: str, text: str) -> list[str]:
    """The pages, decisions and incidents that a text cites and that do not exist."""
    pages = re.findall(r"\bdocs/([A-Z]+)\b", text)
    decisions = re.findall(r"\bdocs/decisions/(\d{4})", text)
    decisions += [number.zfill(4) for number in re.findall(r"\bdecision (\d+)\b", text)]
    incidents = re.findall(r"\bincidents? (\d{3})\b", text)
    missing = [f"docs/{page}" for page in pages if not (ROOT / "docs" / f"{page}.md").exists()]
    missing += [f"decision {number}" for number in decisions if number not in DECISIONS]
    missing += [f"incident {number}" for number in incidents if number not in INCIDENTS]
    return [f"{path}: {one}" for one in missing]


def test_what_is_cited_is_here() -> None:
    assert sorted(INCIDENTS) == [f"{number:03}" for number in range(5)]
    assert [one for path, text in texts().items() for one in cited_and_missing(path, text)] == []


def test_what_is_cited_and_not_here_is_found() -> None:
    assert cited_and_missing("x", "docs/GUARANTEES.md, docs/decisions/0003, decision 5, incident 004") == []
    assert cited_and_missing("x", "docs/NOWHERE, docs/decisions/0999, decision 98, incident 009") == [
        "x: docs/NOWHERE", "x: decision 0999", "x: decision 0098", "x: incident 009",
    ]  # fmt: skip


#: An assertion that a deadline has not passed, or that a step took at most so long.
DEADLINE = re.compile(r"^ +assert (?:time\.monotonic\(\) (?:- \w+ )?<|took <|.* < deadline\b).*$", re.MULTILINE)


def test_a_deadline_that_passed_says_so():
    """It raises tests.support.waiting.NotInTime: only this type lets a test be tried once more."""
    silent = [
        f"{path}: {found.group().strip()}" for path, text in texts().items()
        if path.startswith("tests/") and path.endswith(".py")
        for found in DEADLINE.finditer(text)
    ]  # fmt: skip
    assert silent == []


def test_what_tests_share_lies_in_no_module_of_tests():
    """An import from a test module brings its marks and fixtures along unseen, and a split of it would break others."""
    borrowing = [
        f"{path}: {found.group()}" for path, text in texts().items() if path.endswith(".py")
        for found in re.finditer(r"^from tests\.(?:\w+\.)*test_\w+ import .*", text, re.MULTILINE)
    ]  # fmt: skip
    assert borrowing == []


def test_headers_are_asked_for_by_the_one_function_that_may_not_fail():
    """`Record.headers()` fails, or ends the process, if a header name is not UTF-8. `headers_of` of
    `core.model.published` does not."""
    asking = [
        hit for path, text in texts().items()
        if path.startswith("ledger/") and path.endswith(".py") and path != "ledger/core/model/published.py"
        for hit in found(re.compile(r"\w\.headers\(\)|methodcaller\(.headers"), path, text)
    ]  # fmt: skip
    assert asking == []
