"""In which order `make test` runs the files, and which of them one worker runs, one after the other.

A worker that is given a long file last leaves the others idle. Files that share a server which is not everybody's run on
the same worker, or each worker would start that server.

tests/seconds.txt holds what a file took; only the order of the numbers counts. After a `make test`,
`python -m tests.support.order` writes it anew.
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
LEAST_S = 5  # what takes less is not in the table

#: File -> what it shares with others.
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
    """What one worker runs as a whole: the file, or what it shares. file: its path from the root of the repository."""
    return SHARED.get(file, file)


@cache
def known() -> Mapping[str, int]:
    """File -> seconds, as in the table."""
    rows = (line.split() for line in TABLE.read_text().splitlines())
    return {file: int(seconds) for seconds, file in rows}


def rank(file: str) -> tuple[int, str]:
    """To sort by: the longest units first, files of one unit beside each other, all others as they are."""
    mates = [one for one in SHARED if unit(one) == unit(file)] or [file]
    seconds = sum(known().get(one, 0) for one in mates)
    return -seconds, unit(file) if seconds else ""


def scheduler(config: Any, log: Any) -> Any:
    """`--dist loadfile`, but files that share a server go to the same worker; None: as xdist does by itself."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Sharing(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit(super()._split_scope(nodeid))

    return Sharing(config, log) if config.getvalue("dist") == "loadfile" else None


def measured(report: str, root: Path) -> dict[str, float]:
    """File -> seconds, by a report that pytest wrote as JUnit's XML: set-up and clearing away included."""
    took: dict[str, float] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        words = (case.get("classname") or "").split(".")
        paths = ["/".join(words[:end]) + ".py" for end in range(len(words), 0, -1)]  # a class may stand in a file
        if file := next((path for path in paths if (root / path).is_file()), ""):
            took[file] = took.get(file, 0) + float(case.get("time") or 0)
    return took


def table(took: Mapping[str, float]) -> str:
    """The longest first, in whole seconds."""
    rows = sorted((-round(seconds), file) for file, seconds in took.items() if seconds >= LEAST_S)
    return "".join(f"{-seconds:5} {file}\n" for seconds, file in rows)


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else REPORT
    TABLE.write_text(table(measured(given.read_text(), ROOT)))
