"""Jobs that use `ledger.job()`, under the real agent: the example worker, and the pitfalls from the page for job
authors."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from ledger.adapters.runners.subprocess import pack
from ledger.adapters.runners.subprocess.supervisor import procs
from ledger.core.model.facts import CheckpointKind, RestorePoint
from ledger.core.model.registers import Checkpoint, Ended
from tests.support.host import Host, gone
from tests.support.pages import ROOT
from tests.support.servers import create_topic
from tests.support.waiting import until

pytestmark = pytest.mark.slow

J = "job-1"
SPARK_S = 180.0
SPARK = ROOT / "docs" / "jobs" / "spark_stream.py"
CONSUMER = ROOT / "docs" / "jobs" / "kafka_consumer.py"
WORKER = ROOT / "docs" / "jobs" / "worker.py"


@pytest.fixture(autouse=True)
def agent(host: Host) -> None:
    host.start_agent()


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    path.write_text("".join(f"{n}\n" for n in range(1, 401)))
    return path


def begin(host: Host, numbers: Path, n: int = 1, base: RestorePoint | None = None) -> int:
    """Starts the worker and returns its pid once it handles signals."""
    blob = pack([sys.executable, "worker.py", str(numbers)], [WORKER], folder=host.root)
    assert host.runner.start(J, n, host.blobs.put(J, blob), base, {}).value == "started"
    child = host.run_folder(J, n) / "child.json"
    until(child.exists, "the worker runs")
    pid = int(json.loads(child.read_text())["pid"])
    until(lambda: procs.catches(pid, signal.SIGUSR1), "the worker handles signals")
    return pid


def checkpoints(host: Host, n: int = 1) -> dict[Checkpoint, Any]:
    return {r: fact for r, fact in host.logged(J) if isinstance(r, Checkpoint) and r.n == n}


def point(found: tuple[Checkpoint, Any]) -> RestorePoint:
    register, fact = found
    return RestorePoint(register.n, register.id, fact.location, fact.size, fact.digest, fact.kind)


def test_a_savepoint_is_answered_and_the_stop_after_it_loses_nothing(host: Host, numbers: Path) -> None:
    begin(host, numbers)
    host.runner.savepoint(J, 1, "ask-1")
    (asked,) = until(lambda: [item for item in checkpoints(host).items() if item[1].ask == "ask-1"], "a savepoint")
    assert asked[1].kind is CheckpointKind.SAVEPOINT
    host.runner.stop(J, 1, "stopped")
    end, fact = host.end(J)
    assert end.outcome == "stopped"
    assert fact.checkpoint > asked[0].id  # the last checkpoint, written because of the stop
    newest = max(checkpoints(host).items(), key=lambda item: item[0].id)
    before = json.loads((Path(newest[1].location) / "state.json").read_text())
    assert 0 < before["line"] < 400

    begin(host, numbers, 2, point(newest))
    end, fact = host.end(J, 2)
    assert end.outcome == "finished"
    said = (host.run_folder(J, 2) / "logs" / "stdout.log").read_text()
    assert said == f"the sum of 400 numbers is {sum(range(1, 401))}\n"


def test_a_stop_with_a_savepoint_waits_for_it(host: Host, numbers: Path) -> None:
    begin(host, numbers)
    host.runner.stop(J, 1, "canceled", savepoint=True)
    end, _ = host.end(J)
    assert end.outcome == "canceled"
    assert CheckpointKind.SAVEPOINT in {fact.kind for fact in checkpoints(host).values()}


def test_sigterm_from_elsewhere_is_a_failure_that_is_restarted_and_no_finish(host: Host, numbers: Path) -> None:
    os.kill(begin(host, numbers), signal.SIGTERM)
    end, fact = host.end(J)
    assert end == Ended(1, "failed", end.writer)
    assert fact.cause.startswith("exit code 143")
    assert fact.checkpoint is not None


def test_the_consumer_counts_each_record_once_whatever_kills_it(host: Host, bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}numbers"
    create_topic(bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    counts: dict[str, int] = {}

    def produce(each: int) -> None:
        for n in range(each * 5):
            producer.produce(topic, b"x", f"key-{n % 5}", n % 2)
            counts[f"key-{n % 5}"] = counts.get(f"key-{n % 5}", 0) + 1
        assert producer.flush(60) == 0

    def begin(n: int, base: RestorePoint | None) -> int:
        blob = pack([sys.executable, CONSUMER.name, topic], [CONSUMER], {"BROKERS": bootstrap}, folder=host.root)
        assert host.runner.start(J, n, host.blobs.put(J, blob), base, {}).value == "started"
        child = host.run_folder(J, n) / "child.json"
        until(child.exists, "the consumer runs")
        return int(json.loads(child.read_text())["pid"])

    def counted(n: int) -> tuple[Checkpoint, Any] | None:
        """The newest checkpoint, once it counts every record."""
        found = max(checkpoints(host, n).items(), key=lambda item: item[0].id, default=None)
        path = Path(found[1].location) / "state.json" if found else None
        return found if path and path.exists() and json.loads(path.read_text())["counts"] == counts else None

    produce(100)
    pid = begin(1, None)
    first = until(lambda: counted(1), "all records are counted")
    produce(37)  # may be counted, but not in the checkpoint that the next attempt starts from
    os.kill(pid, signal.SIGKILL)
    assert host.end(J)[0].outcome == "failed"
    begin(2, point(first))
    until(lambda: counted(2), "each record is counted once")
    host.runner.stop(J, 2, "canceled")
    assert host.end(J, 2)[0].outcome == "canceled"


def test_ids_rise_within_an_attempt_and_begin_anew_with_the_next(host: Host) -> None:
    host.start(J)
    for number in (5, 4, 6):
        host.tell(J, f"checkpoint {number}")
        until((host.run_folder(J) / "checkpoints" / f"chk-{number}").exists, "the checkpoint is written")
        if number != 4:
            until(lambda number=number: Checkpoint(1, number) in checkpoints(host), "the checkpoint is in the log")
    host.tell(J, "exit 1")
    host.end(J)
    assert [register.id for register in checkpoints(host)] == [5, 6]
    host.start(J, 2)
    host.tell(J, "checkpoint 4")
    until(lambda: Checkpoint(2, 4) in checkpoints(host, 2), "a lower id in a later attempt counts")


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_spark_stream_copies_each_line_once_whatever_kills_it(host: Host, tmp_path: Path) -> None:
    source, target, state = (tmp_path / name for name in ("in", "out", "state"))
    source.mkdir()
    written: set[str] = set()

    def write(files: range) -> None:
        for n in files:
            lines = {f"file {n} line {i}" for i in range(50)}
            (tmp_path / "part").write_text("".join(f"{line}\n" for line in lines))
            (tmp_path / "part").rename(source / f"{n}.txt")
            written.update(lines)

    def begin(n: int) -> int:
        java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        blob = pack([sys.executable, SPARK.name, *map(str, (source, target, state))], [SPARK], java, folder=host.root)
        assert host.runner.start(J, n, host.blobs.put(J, blob), None, {}).value == "started"
        child = host.run_folder(J, n) / "child.json"
        until(child.exists, "the driver runs")
        return int(json.loads(child.read_text())["pid"])

    def marked(n: int, least: int) -> Callable[[], bool]:
        return lambda: any(register.id >= least for register in checkpoints(host, n))

    write(range(6))
    pid = begin(1)
    until(marked(1, 2), "three batches are committed", SPARK_S)
    drivers = [found.pid for found in psutil.Process(pid).children(recursive=True) if "java" in found.name()]
    assert drivers
    os.kill(pid, signal.SIGKILL)
    assert host.end(J)[0].outcome == "failed"
    assert all(gone(driver) for driver in drivers), "no JVM outlives its attempt"
    write(range(6, 8))
    begin(2)
    # A kill between Spark's two logs may merge two files into one batch. So the test waits for the data, not a batch
    # number.
    until(lambda: set(copied(target)) == written, "the rest is committed", SPARK_S)
    newest = max(int(path.name) for path in (state / "commits").glob("[0-9]*"))
    until(marked(2, newest), "its marker is recorded")
    host.runner.stop(J, 2, "canceled")
    assert host.end(J, 2)[0].outcome == "canceled"
    assert sorted(copied(target)) == sorted(written), "each line once"


def copied(target: Path) -> list[str]:
    return [line for file in sink_files(target) for line in pq.read_table(file)["value"].to_pylist()]


def sink_files(target: Path) -> list[Path]:
    """The files that Spark's readers take from a file sink: those in the sink's log, not all in the folder."""
    names = set()
    for log in (target / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            found = json.loads(line)
            names.add(Path(found["path"].removeprefix("file://")))
    return sorted(names)
