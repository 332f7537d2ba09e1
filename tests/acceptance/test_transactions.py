"""kill -9 of the leading projector at each point of a transaction (`ledger.util.failpoints`), on a real broker.

Each time the standby must lead with the next epoch, and the published entries must equal the fold of the full copy of
the log. Each epoch has one writer, and no acknowledged event is lost. Flink tests one kill of a leader; Kafka Connect
and Streams wait for a rebalance. The acceptance program kills REPETITIONS times at each point, a bit later each time.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.adapters.kafka.topics import create_topics
from ledger.adapters.local.leadership import holder
from ledger.app.ledger import Ledger
from ledger.config.config import load_config
from ledger.reader.claims import Claim, read_claims
from ledger.reader.presence import present
from ledger.reader.reading import published
from ledger.reader.replaying import replay
from ledger.util.identity import instance
from tests.simulation import checkers
from tests.support import repetitions
from tests.support.folder import JOBLEDGER
from tests.support.load import Load
from tests.support.mirror import Mirror
from tests.support.servers import RunningBroker
from tests.support.waiting import until

REPETITIONS = repetitions.count(1)
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120 + 60 * REPETITIONS)]

#: An idle leader passes each of these points about five times: later hits need events.
POINTS = (
    "transaction.begun", "transaction.produced", "transaction.delivered", "transaction.committed", "transaction.offsets",
    "term.initialised",
)  # fmt: skip
SIZES = {"partitions": 2, "replication_factor": 1, "min_insync_replicas": 1}


def hit_of(point: str, repetition: int) -> int:
    """The hit at which the leader is killed. First it is among published changes. Then it is also during the take-over,
    where the first transaction is empty and the second one is the claim."""
    if point == "term.initialised":
        return 2
    return (9, 2, 1)[repetition] if repetition < 3 else 9 + 2 * ((repetitions.FIRST + repetition) % 60)


class Projectors:
    """Projector processes of one ledger on the shared broker."""

    def __init__(self, broker: RunningBroker, prefix: str, folder: Path) -> None:
        kafka = {"bootstrap.servers": broker.bootstrap}
        self.config = load_config(folder, kafka=kafka, topics={"prefix": prefix, **SIZES})
        self.source = Ledger.open(self.config).source()
        self.settings = {
            "LEDGER_DIR": str(folder), "LEDGER_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap,
            "LEDGER_TOPICS__PREFIX": prefix,
            **{f"LEDGER_TOPICS__{name.upper()}": str(size) for name, size in SIZES.items()},
        }  # fmt: skip
        self._running: list[subprocess.Popen[bytes]] = []
        create_topics(self.config.client(), self.config.topic_settings())

    def start(self, failpoint: str = "") -> subprocess.Popen[bytes]:
        log = (self.config.dir / f"projector-{len(self._running)}.log").open("wb")
        environment = {**os.environ, **self.settings, "LEDGER_FAILPOINT": failpoint}
        command = [JOBLEDGER, "serve", "projector"]
        with log:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._running.append(process)
        return process

    def holds_the_lock(self, process: subprocess.Popen[bytes]) -> bool:
        held = holder(self.config.leader_lock("projector"))
        return held is not None and held.pid == process.pid

    def stands_by(self, process: subprocess.Popen[bytes]) -> bool:
        return any(said["pid"] == process.pid for said in present(self.config.candidates_folder, "projector"))

    def claims(self) -> list[Claim]:
        return read_claims(self.source)

    def fence(self) -> None:
        """Takes the transactional id once, as a candidate does that wakes up late."""
        writer = Ledger.open(self.config).event_log.writer(f"{self.config.topics.recovery}-projector")
        writer.init()
        writer.close()

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()

    def story(self) -> str:
        logs = sorted(self.config.dir.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def until(self, holds: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
        until(holds, what, timeout_s, story=self.story)


@contextmanager
def projectors(broker: RunningBroker, prefix: str, folder: Path) -> Iterator[Projectors]:
    folder.mkdir()
    made = Projectors(broker, prefix, folder)
    try:
        yield made
    finally:
        made.end()


def kill_at(point: str, hit: int, ledger: Projectors) -> None:
    """Starts two projectors and kills the leader at the hit. The other one must lead, and every check must hold."""
    config = ledger.config
    first = ledger.start(f"{point}:kill@{hit}")
    ledger.until(lambda: ledger.holds_the_lock(first) or first.poll() is not None, "the first projector is elected")
    second = ledger.start()
    ledger.until(lambda: ledger.stands_by(second), "the second projector is a candidate")
    with Load(config) as load:
        if point == "term.initialised":
            ledger.until(lambda: ledger.claims(), "the first projector leads")
            ledger.fence()
        ledger.until(lambda: first.poll() is not None, f"the first projector reaches hit {hit} of {point}")
        assert first.returncode == -signal.SIGKILL, ledger.story()
        before = len(load.told)
        ledger.until(lambda: _leads(ledger, second.pid), "the standby leads")
        ledger.until(lambda: len(load.told) > before + 10, "events go on")
    assert second.poll() is None, ledger.story()
    found = replay(ledger.source, timeout_s=60.0)
    assert not found.differences and not found.behind, found
    mirror = Mirror(config.client(), [config.topics.events, config.topics.recovery]).to_end()
    events, recovery = mirror.committed(config.topics.events), mirror.committed(config.topics.recovery)
    mirror.close()
    wrong = checkers.acked_is_durable(load.told, events)
    wrong += checkers.one_writer_per_epoch(events, []) + checkers.one_writer_per_epoch(recovery, [])
    wrong += checkers.projection_exact(events, recovery)
    wrong += checkers.view_exact(published(ledger.source).entries, events, "readers")
    assert not wrong, "\n".join(wrong[:20])
    writers = [(claim.epoch, claim.writer) for claim in reversed(ledger.claims())]
    assert writers[-1][1] == instance("projector", second.pid)
    assert [epoch for epoch, _ in writers] == list(range(1, len(writers) + 1)), "the epochs are consecutive"
    assert len(load.told) > 10


def _leads(ledger: Projectors, pid: int) -> bool:
    claims = ledger.claims()
    return bool(claims) and claims[0].writer == instance("projector", pid)


@pytest.mark.parametrize("point", POINTS)
def test_the_leading_projector_is_killed(
    point: str, broker: RunningBroker, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for repetition in range(REPETITIONS):
        folder, hit = tmp_path / str(repetition), hit_of(point, repetition)
        with projectors(broker, f"{prefix}{repetition}.", folder) as ledger:
            kill_at(point, hit, ledger)
    if REPETITIONS > 1:
        with capsys.disabled():
            print(f"\n{point}: killed {REPETITIONS} times; each time the standby led and nothing was wrong")


@pytest.mark.parametrize("point", ["submit.unstored", "submit.stored"])
def test_a_submitter_that_is_killed_around_the_blob_leaves_no_job_and_can_submit_again(
    point: str, broker: RunningBroker, prefix: str, tmp_path: Path
) -> None:
    """Incident 001: a graph without a reference is garbage. A reference without a graph would be a job that can't
    start."""

    def submit(failpoint: str = "") -> int:
        environment = {**os.environ, **ledger.settings, "LEDGER_FAILPOINT": failpoint}
        command = [JOBLEDGER, "submit", "--id", "job", "--", "true"]
        return subprocess.run(command, env=environment, capture_output=True, timeout=90, check=False).returncode

    with projectors(broker, prefix, tmp_path / "ledger") as ledger:
        assert submit(f"{point}:kill") == -signal.SIGKILL
        blobs = list((ledger.config.dir / "blobs").rglob("*"))
        assert any(path.is_file() for path in blobs) is (point == "submit.stored")
        topics = ledger.config.topics
        mirror = Mirror(ledger.config.client(), [topics.events]).to_end()
        assert mirror.raw(topics.events) == []
        ledger.start()
        # each try takes time while the projector is slow to start
        ledger.until(lambda: submit() == 0, "the job is admitted", 120.0)
        entry = until(lambda: published(ledger.source).entries.get("job"), "the job's entry is published")
        assert entry.graph is not None and Ledger.open(ledger.config).blobs.exists(entry.graph)
        mirror.close()
