"""Runs mutants: each in a copy of the tree, with the tests that must detect it.

Shapes: a `Result` per mutant; `killer` = node id of the test that failed first, "" = the mutant survived.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.mutant import Mutant

#: A mutant that makes its tests hang counts as killed after this many seconds.
HANGS_S = 300.0
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py::.*?)(?: - .*)?$", re.MULTILINE)
#: Exit codes of pytest.
_PASSED, _FAILURES = 0, 1
_SIZES = frozenset({"REPETITIONS", "SEED"})  # they change the drawn cases, so a recorded killer might not exist


@dataclass(frozen=True, slots=True)
class Result:
    """The result for one mutant. killer: node id, or "time limit". seconds: the whole pytest run, imports included."""

    name: str
    killer: str
    seconds: float

    def line(self) -> str:
        return json.dumps(asdict(self))


class NotRun(Exception):
    """The tests gave no verdict on the mutant: they could not be collected, or fail without it."""


def run(
    mutants: Sequence[Mutant], root: Path, jobs: int = 2, tell: Callable[[Result], None] = lambda _: None
) -> list[Result]:
    """Runs mutants and returns their results in the order of `mutants`. First the tests run on the unchanged source.

    Raises: NotRun; ValueError if a mutant does not fit the source."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for n in range(min(jobs, len(mutants))):
            trees.put(copy(root, Path(folder) / str(n)))

        def judge(mutant: Mutant) -> Result:
            tree = trees.get()
            try:
                with edited(tree, mutant):
                    result = _killed(tree, mutant)
            finally:
                trees.put(tree)
            tell(result)
            return result

        plain = trees.get()
        must_be_green(plain, sorted({node for mutant in mutants for node in mutant.killers}))
        trees.put(plain)
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge, mutants))


def copy(root: Path, to: Path) -> Path:
    """Copies the files that git tracks or would add, in their current state; all files if `root` is no checkout."""
    asked = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    known = subprocess.run(asked, capture_output=True, check=False)
    names = known.stdout.decode().split("\0") if known.returncode == 0 else [
        str(path.relative_to(root)) for path in root.rglob("*")
    ]  # fmt: skip
    for name in names:
        if name and (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, to / name)
    return to


@contextmanager
def edited(tree: Path, mutant: Mutant) -> Iterator[None]:
    """The tree with the mutant's edit. Compiled files are matched by whole seconds and size, so they are deleted before and
    after."""
    path = tree / mutant.file
    source = path.read_text()
    path.write_text(mutant.mutated(source))
    _forget_compiled(path)
    try:
        yield
    finally:
        path.write_text(source)
        _forget_compiled(path)


def _forget_compiled(path: Path) -> None:
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)


def must_be_green(tree: Path, nodes: Sequence[str]) -> None:
    """Runs the tests on the unchanged source. Raises: NotRun with pytest's output unless all of them pass."""
    code, said = _pytest(tree, nodes, limit_s=None)
    if code != _PASSED:
        raise NotRun(f"on the unchanged source the tests end with exit code {code}:\n{said[-4000:]}")


def _killed(tree: Path, mutant: Mutant) -> Result:
    began = time.monotonic()
    try:
        code, said = _pytest(tree, mutant.killers, limit_s=HANGS_S)
    except subprocess.TimeoutExpired:
        return Result(mutant.name, "time limit", round(time.monotonic() - began, 1))
    failed = _FAILED.search(said)
    if code == _PASSED:
        killer = ""
    elif code == _FAILURES and failed:
        killer = failed[1]
    else:
        raise NotRun(f"{mutant.name}: pytest ended with exit code {code}:\n{said[-4000:]}")
    return Result(mutant.name, killer, round(time.monotonic() - began, 1))


def _pytest(tree: Path, nodes: Sequence[str], limit_s: float | None) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=line", *nodes]
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_") and k not in _SIZES}
    environment = own | {"PYTHONPATH": str(tree)}
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as running:
        try:
            said, _ = running.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, 9)
            raise
    return running.returncode, said.decode(errors="replace")
