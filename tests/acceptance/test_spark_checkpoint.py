"""The ledger does not depend on Spark's checkpoint: whatever damages it, and whenever, the reconciler recovers."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.folder import Folder
from tests.support.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

PATIENCE_S = 400.0


def truncated(checkpoint: Path) -> None:
    for path in files(checkpoint):
        with suppress(FileNotFoundError):  # Spark deletes files that it no longer needs
            os.truncate(path, path.stat().st_size // 2)


def emptied(checkpoint: Path) -> None:
    for path in files(checkpoint):
        with suppress(FileNotFoundError):
            os.truncate(path, 0)


def garbage(checkpoint: Path) -> None:
    rng = random.Random(3)
    for path in files(checkpoint):
        with suppress(FileNotFoundError):
            path.write_bytes(rng.randbytes(300))
    for folder in [Path(where, name) for where, names, _ in os.walk(checkpoint) for name in names]:
        with suppress(FileNotFoundError):
            (folder / "7").write_bytes(rng.randbytes(300))
            (folder / "999999").write_bytes(b"")


def deleted(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint, ignore_errors=True)  # Spark may be writing there


def no_folder(checkpoint: Path) -> None:
    def replaced() -> bool:
        deleted(checkpoint)
        checkpoint.write_bytes(b"no folder at all")  # fails if Spark recreated the folder meanwhile
        return True

    until(replaced, "a file has the folder's place")


def files(checkpoint: Path) -> list[Path]:
    """The files that exist now, without Spark's temporary ones (`.4.…tmp`, `..4.…tmp.crc`), which it renames. Folders
    that disappear during the walk are skipped."""
    found = [Path(where, name) for where, _, names in os.walk(checkpoint) for name in names]
    return [path for path in found if ".tmp" not in path.suffixes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    made = Folder(tmp_path_factory.mktemp("damaged") / "ledger")
    try:
        made.up("--projectors", "1")
        yield made
    finally:
        made.clear()


def runs(folder: Folder, name: str) -> bool:
    return name in folder.running() and (entry := folder.entry(name)) is not None and entry.known


@pytest.mark.parametrize("damage", [truncated, emptied, garbage, deleted, no_folder])
def test_the_checkpoint_is_damaged_while_the_reconciler_runs(folder: Folder, damage: Callable[[Path], None]) -> None:
    before = folder.running()
    damage(folder.path / "spark" / "recovery")
    name = folder.ticker(damage.__name__.replace("_", "-"))
    folder.until(lambda: runs(folder, name), "a job submitted after the damage runs", PATIENCE_S)
    assert {job: folder.running()[job] for job in before} == before, "no running job was affected"


def test_it_is_damaged_while_no_reconciler_runs(folder: Folder) -> None:
    before = folder.running()
    killed = folder.pid("reconciler-1")
    psutil.Process(killed).send_signal(signal.SIGKILL)
    for damage in (garbage, truncated):
        damage(folder.path / "spark" / "recovery")
    name = folder.ticker("after-the-kill")
    folder.until(lambda: runs(folder, name), "a job submitted after the kill runs", PATIENCE_S)
    assert {job: folder.running()[job] for job in before} == before
    folder.run("replay")
