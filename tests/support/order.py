"""The order in which `make test` runs the files, and the groups of files that one worker runs.

Long files come first: a worker that gets a long file last leaves the others idle. Files that share a special server run
on the same worker, because otherwise each worker would start that server.

tests/seconds.txt holds the seconds that each file took; only the order of the numbers matters. After a `make test`,
`python -m tests.support.order` updates it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "seconds.txt"
REPORT = ROOT / "build" / "tests.xml"
LEAST_S = 5  # faster files are not in the table

#: File -> the server that it shares with others.
SHARED = {
    **dict.fromkeys(
        [f"tests/acceptance/test_{name}.py" for name in ("archive", "garbage", "loop", "replace")], "a running ledger"
    ),
    **dict.fromkeys(
        [f"tests/adapters/zookeeper/test_{name}.py" for name in ("credentials", "leadership", "members")],
        "three members of ZooKeeper",
    ),
    **dict.fromkeys(
        [f"tests/scenarios/test_{name}.py" for name in ("one_writer", "written_over")], "members and a broker, cut apart"
    ),
}


def unit(file: str) -> str:
    """The name of the group that one worker runs: the shared server, or the file itself. file: its path in the
    repository."""
    return SHARED.get(file, file)


@cache
def known() -> Mapping[str, int]:
    """File -> seconds, read from the table."""
    rows = (line.split() for line in TABLE.read_text().splitlines())
    return {file: int(seconds) for seconds, file in rows}


def rank(file: str) -> tuple[int, str]:
    """A sort key: the longest groups first, the files of one group together, all others in their order."""
    mates = [one for one in SHARED if unit(one) == unit(file)] or [file]
    seconds = sum(known().get(one, 0) for one in mates)
    return -seconds, unit(file) if seconds else ""


def scheduler(config: Any, log: Any) -> Any:
    """A scheduler as for `--dist loadfile`, except that files that share a server go to the same worker. None: use the
    default of xdist."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Sharing(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit(super()._split_scope(nodeid))

    return Sharing(config, log) if config.getvalue("dist") == "loadfile" else None


def measured(report: str, root: Path) -> dict[str, float]:
    """File -> seconds, from pytest's report in JUnit XML, with set-up and teardown."""
    took: dict[str, float] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        words = (case.get("classname") or "").split(".")
        paths = ["/".join(words[:end]) + ".py" for end in range(len(words), 0, -1)]  # the last words may be a class
        if file := next((path for path in paths if (root / path).is_file()), ""):
            took[file] = took.get(file, 0) + float(case.get("time") or 0)
    return took


def table(took: Mapping[str, float]) -> str:
    """The text of the table: the longest files first, in whole seconds."""
    rows = sorted((-round(seconds), file) for file, seconds in took.items() if seconds >= LEAST_S)
    return "".join(f"{-seconds:5} {file}\n" for seconds, file in rows)


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else REPORT
    TABLE.write_text(table(measured(given.read_text(), ROOT)))
