"""Full disks, one for each part of the ledger. Writes that find no room are refused with the reason, and acknowledged
data is kept. Running jobs go on, and once there is room the ledger recovers by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from tests.support.folder import Folder
from tests.support.small_disks import fill, make_room, small_disk

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

PATIENCE_S = 300.0
TRIES = 40
DISKS = {"blobs": 4, "spark": 256, "broker/data": 64}  # MiB; Spark copies 60 MiB of jars into its folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """A running ledger with one job. Each part is on a small disk of its own."""
    made = Folder(tmp_path_factory.mktemp("full") / "ledger")
    with ExitStack() as disks:
        for part, size_mb in DISKS.items():
            disks.enter_context(small_disk(made.path / part, size_mb))
        try:
            made.up("--projectors", "1")
            made.ticker("steady")
            made.until(lambda: "steady" in made.running(), "a job runs", PATIENCE_S)
            yield made
        finally:
            made.clear()


@pytest.fixture
def steady(folder: Folder) -> Iterator[None]:
    """Checks that the same attempt of the job runs before and after, and that the published entries match the log."""
    before = folder.running()["steady"]
    yield
    assert folder.running()["steady"] == before
    folder.run("replay")


def submit(folder: Folder, name: str) -> tuple[int, str]:
    """The exit code and the output on stderr of a submit."""
    done = folder.run("submit", "--id", name, "--name", name, "--", "true", expect=None)
    return done.returncode, done.stderr


def finished(folder: Folder, name: str) -> None:
    folder.run("wait", name, timeout_s=2 * PATIENCE_S)


def test_no_room_for_graphs(folder: Folder, steady: None) -> None:
    disk = folder.path / "blobs"
    fill(disk)
    code, said = submit(folder, "no-graph")
    assert code == 3 and "No space left on device" in said and f"Make room on the disk of {disk}" in said, said
    assert folder.entry("no-graph") is None, "nothing was recorded"
    make_room(disk)
    assert submit(folder, "no-graph")[0] == 0
    finished(folder, "no-graph")


def test_no_room_for_sparks_checkpoint(folder: Folder, steady: None) -> None:
    disk = folder.path / "spark"
    fill(disk)
    code, said = submit(folder, "no-checkpoint")
    assert code == 0, said  # the log accepted the job, which is all that counts
    make_room(disk)
    finished(folder, "no-checkpoint")


def test_no_room_for_the_log(folder: Folder, steady: None) -> None:
    disk = folder.path / "broker" / "data"
    broker = folder.pid("broker")
    fill(disk)
    acknowledged, said = [], ""
    for number in range(TRIES):
        code, said = submit(folder, f"no-log-{number}")
        if code == 3:
            break
        assert code in (0, 4), said
        acknowledged += [f"no-log-{number}"] if code == 0 else []
    assert f"The disk of {disk} is full: make room there" in said, said
    folder.until(lambda: not psutil.pid_exists(broker) or None, "the broker gives up", PATIENCE_S)
    make_room(disk)
    folder.until(lambda: folder.entry("steady"), "the broker is back", PATIENCE_S)
    assert submit(folder, "log-again")[0] == 0
    for name in [*acknowledged, "log-again"]:
        finished(folder, name)
