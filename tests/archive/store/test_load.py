"""Under load, archiver, broker and disks fail at random. At the end the archive holds every acknowledged event once.

    EVENTS=200000 .venv/bin/python -m pytest tests/archive/store/test_load.py -s --timeout 3600

SEED=… repeats the kinds and the order of the faults, and after how many events each one comes. Their effect depends on
the machine.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledger.adapters.kafka.topics import create_topics
from ledger.adapters.local.objects import MARKER
from ledger.app import archives
from ledger.app.ledger import Ledger
from ledger.config.config import Config, load_config
from ledger.embedded.broker import Broker
from tests.support.consumers import SHOWN
from tests.support.pages import ROOT
from tests.support.servers import RunningBroker, die_with_parent
from tests.support.small_disks import fill, make_room, small_disk
from tests.support.waiting import until

EVENTS = int(os.environ.get("EVENTS", "5000"))
pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900 + EVENTS / 50)]

SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
#: Slow enough that there is load during the faults: a long run takes four minutes.
EVENTS_PER_S = max(400.0, EVENTS / 240)
HARMS = max(4, EVENTS // 20_000)
DISK_MB = 384
PATIENCE_S = 300.0
FIRST = 50


class Stage:
    """A broker and an archiver, each on a small disk if the machine permits mounts, and a load."""

    def __init__(self, folder: Path, disks: ExitStack) -> None:
        self.folder, self.log = folder, folder / "archiver.log"
        self.broker = RunningBroker(Broker.at(folder / "broker"))
        self.dir, self.acknowledged = folder / "ledger", folder / "acknowledged"
        self.archive = self.dir / "archive"
        self.acknowledged.touch()
        try:
            disks.enter_context(small_disk(self.broker.broker.data, DISK_MB))
            disks.enter_context(small_disk(self.archive, DISK_MB))
            (self.archive / MARKER).touch()
            self.small = True
        except pytest.skip.Exception:
            self.small = False
        self.environment = {
            **os.environ, "LEDGER_DIR": str(self.dir), "LEDGER_KAFKA__BOOTSTRAP_SERVERS": self.broker.bootstrap,
            "LEDGER_ARCHIVE__ADAPTER": "file", "LEDGER_ARCHIVE__INTERVAL_S": "0.5",
            "LEDGER_TOPICS__REPLICATION_FACTOR": "1", "LEDGER_TOPICS__MIN_INSYNC_REPLICAS": "1",
            "LEDGER_TOPICS__PARTITIONS": "4",
        }  # fmt: skip
        self.archiver: subprocess.Popen[bytes] | None = None
        self.load: subprocess.Popen[bytes] | None = None

    def config(self) -> Config:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in self.environment.items():
                if name.startswith("LEDGER_"):
                    patched.setenv(name, value)
            return load_config(self.dir)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=600,
            check=False,
        )  # fmt: skip

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *command], cwd=ROOT, env=self.environment, stdout=log, stderr=log,
                preexec_fn=die_with_parent, start_new_session=True,
            )  # fmt: skip

    def count_all(self, acknowledged: Path) -> subprocess.CompletedProcess[str]:
        """Runs the command that docs/CONSUMERS.md shows, with real files and a real broker."""
        ((_, _, module, *shown),) = SHOWN["completeness"]
        assert shown == ["ACKNOWLEDGED", "ARCHIVE", "localhost:9092"]
        return self.run(module, str(acknowledged), str(self.archive), self.broker.bootstrap)

    def story(self) -> str:
        return self.log.read_text(errors="replace")[-5000:] if self.log.exists() else ""

    def count(self) -> int:
        return self.acknowledged.read_bytes().count(b"\n")

    # -- processes that are kept running

    def keep_archiver(self) -> None:
        """Restarts the archiver as a supervisor would: it ends by itself after long trouble."""
        if self.archiver is None or self.archiver.poll() is not None:
            self.archiver = self.start("ledger", "serve", "archiver")

    def kill_archiver(self) -> None:
        """kill -9 of the archiver and of its JVM."""
        if self.archiver is not None:
            os.killpg(self.archiver.pid, signal.SIGKILL)
            self.archiver.wait(30)
            self.archiver = None

    def clear(self) -> None:
        for process in (self.load, self.archiver):
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
        self.broker.kill()

    # -- harms

    def harms(self) -> dict[str, Callable[[random.Random], None]]:
        always = {"archiver killed": self.harm_archiver, "broker killed": self.harm_broker}
        disks = {"archive's disk full": self.harm_archive_disk, "broker's disk full": self.harm_broker_disk}
        return {**always, **disks} if self.small else always

    def harm_archiver(self, _drawn: random.Random) -> None:
        self.kill_archiver()
        self.keep_archiver()

    def harm_broker(self, drawn: random.Random) -> None:
        self.broker.kill()
        self.wait(drawn.uniform(0, 5))
        self.broker.start()

    def harm_archive_disk(self, drawn: random.Random) -> None:
        fill(self.archive)
        self.wait(drawn.uniform(1, 8))
        make_room(self.archive)

    def harm_broker_disk(self, drawn: random.Random) -> None:
        """The broker stops once it can't write. The events that it acknowledged are kept all the same."""
        fill(self.broker.broker.data)
        process = self.broker.process
        assert process is not None
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:  # without a write the broker need not notice
            self.wait(0.2)
        self.broker.kill()
        make_room(self.broker.broker.data)
        self.broker.start()

    def wait(self, for_s: float) -> None:
        """Waits for the duration of a fault. No check depends on it."""
        time.sleep(for_s)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as disks:
        made = Stage(tmp_path, disks)
        try:
            yield made
        finally:
            made.clear()


def all_sealed(stage: Stage) -> bool:
    stage.keep_archiver()
    rows = archives.archive_progress(Ledger.open(stage.config()))
    return bool(rows) and all(row.sealed == row.end for row in rows)


def test_every_acknowledged_event_is_archived_once_whatever_is_taken_away(stage: Stage, tmp_path: Path) -> None:
    drawn, begun = random.Random(SEED), time.monotonic()
    kinds = list(stage.harms())
    plan = [*drawn.sample(kinds, len(kinds)), *drawn.choices(kinds, k=max(0, HARMS - len(kinds)))]
    marks = sorted(drawn.randrange(EVENTS // 20, EVENTS * 9 // 10) for _ in plan)
    print(f"\nSEED={SEED} EVENTS={EVENTS}: {len(plan)} harms" + ("" if stage.small else "; no disk may be mounted here"))

    stage.broker.start()
    create_topics(stage.config().client(), stage.config().topic_settings())
    stage.keep_archiver()
    # A few events first, so that the faults meet a working archiver, however long its start took.
    chains = stage.archive / "manifests"
    load = stage.start("tests.support.archives.load", str(FIRST), str(stage.acknowledged))
    assert load.wait(PATIENCE_S) == 0, stage.story()
    until(chains.exists, "something is sealed", PATIENCE_S, story=stage.story)
    rest = str(EVENTS - FIRST), str(stage.acknowledged), str(EVENTS_PER_S)
    stage.load = stage.start("tests.support.archives.load", *rest)
    for kind, mark in zip(plan, marks, strict=True):
        until(lambda mark=mark: stage.count() >= mark, f"{mark} events", PATIENCE_S, story=stage.story)  # type: ignore[misc]
        stage.keep_archiver()
        print(f"[{time.monotonic() - begun:6.1f} s] {stage.count():>7} acknowledged: {kind}", flush=True)
        stage.harms()[kind](drawn)
    assert stage.load.wait(PATIENCE_S * 3) == 0, stage.story()
    assert stage.count() == EVENTS
    print(f"[{time.monotonic() - begun:6.1f} s] {EVENTS:>7} acknowledged: that was all")
    until(lambda: all_sealed(stage), "all records are sealed", PATIENCE_S * 2, every_s=0.5, story=stage.story)
    print(f"[{time.monotonic() - begun:6.1f} s] all is sealed")

    anchors = tmp_path / "anchors"
    assert stage.run("ledger", "audit", "anchor", "--to", str(anchors)).returncode == 0
    verified = stage.run("ledger", "audit", "verify", "--anchors", str(anchors))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    counted = stage.count_all(stage.acknowledged)
    print(counted.stdout)
    assert counted.returncode == 0, counted.stdout + counted.stderr
    assert f"acknowledged: {EVENTS} events" in counted.stdout

    lost = tmp_path / "one-more"
    lost.write_text(stage.acknowledged.read_text() + "an-event-that-nobody-archived\n")
    told = stage.count_all(lost)
    assert told.returncode == 1 and "event an-event-that-nobody-archived" in told.stdout
