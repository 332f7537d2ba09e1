"""The recovery stream and the executor on a real Spark session and a real broker."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.spark.executor import SparkExecutor, _group
from ledger.adapters.spark.scratch import LOCK
from ledger.adapters.spark.session import start_session
from ledger.adapters.spark.stream import SparkRecoveryStream
from ledger.app import worker_daemon
from ledger.app.worker_daemon import ARCHIVES
from ledger.core.model.facts import FailureRule, GraphRef, RestorePoint
from ledger.core.model.published import EPOCH_HEADER, ROLE, Published
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import claim_key
from ledger.errors import PermanentError
from ledger.ports import (
    BlobStore,
    FenceTask,
    ObservedAttempt,
    Runner,
    StartAnswer,
    StartTask,
    Task,
    TaskOutcome,
    TaskStatus,
)
from tests.support.servers import create_topic
from tests.support.waiting import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(240),
    # py4j leaves its sockets to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(tmp_path_factory.mktemp("spark"), daemon=worker_daemon.__name__)
    yield session
    session.stop()
    gc.collect()


# -- files of Spark


def test_spark_writes_into_its_folder_and_not_where_its_role_stands(tmp_path: Path) -> None:
    """The working directory of a service may be read-only, as in a container with a read-only file system."""
    folder, standing = tmp_path / "a folder", tmp_path / "standing"
    standing.mkdir()
    code = """
import sys
from pathlib import Path
from ledger.adapters.spark.session import start_session
spark = start_session(Path(sys.argv[1]), slots=1)
rows = spark.readStream.format("rate").load().writeStream.format("noop")
rows.trigger(availableNow=True).option("checkpointLocation", sys.argv[1] + "/offsets").start().awaitTermination(120)
spark.stop()
"""
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, cwd=standing, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(standing.iterdir()) == []
    assert len(list(folder.glob("local/driver-*/artifacts"))) == 1


# -- workers


def test_workers_are_forked_with_everything_imported_and_look_for_nothing_in_archives(spark: SparkSession) -> None:
    def seen(_: int) -> tuple[bool, list[str]]:
        archives = [path for path in [*sys.path, *sys.path_importer_cache] if path.endswith(ARCHIVES)]
        return "ledger.app.wiring" in sys.modules, archives

    ready, archives = spark.sparkContext.parallelize([0], 1).map(seen).collect()[0]
    assert ready and archives == []
    assert [path for path in sys.path if path.endswith(".jar")] == [], "the driver does not either"


def test_archives_are_left_alone_by_name() -> None:
    path = ["/a", "/b/spark-core.jar", "/c.zip", "/d.jar/e"]
    cache: dict[str, object] = dict.fromkeys(path)
    worker_daemon.leave_archives(path, cache)
    assert path == ["/a", "/d.jar/e"] == list(cache)


# -- the session


def test_settings_of_the_section_spark_reach_the_driver_s_jvm_and_all_that_it_writes_lies_in_its_scratch_folder(
    tmp_path: Path,
) -> None:
    """The session runs in a separate process, since PySpark keeps the JVM of its first session."""
    code = """
import json, sys
from pathlib import Path
from ledger.adapters.spark.session import start_session
settings = {"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "3"}
spark = start_session(Path(sys.argv[1]), slots=1, settings=settings)
java = spark.sparkContext._jvm.java.lang
print(json.dumps({
    "heap": java.Runtime.getRuntime().maxMemory(),
    "standing": java.System.getProperty("user.dir"), "temporary": java.System.getProperty("java.io.tmpdir"),
    "local": spark.conf.get("spark.local.dir"), "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
}))
spark.stop()
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    scratch = Path(found["local"])
    assert found["heap"] <= 700 << 20 and found["partitions"] == "3"
    assert (scratch / LOCK).is_file() and scratch.parent == tmp_path / "local"
    assert Path(found["standing"]) == scratch == Path(found["temporary"]).parent


# -- the stream


def written(bootstrap: str, topic: str, records: Sequence[tuple[bytes, bytes | None, int]]) -> None:
    """Writes records of (key, value, epoch), all to partition 1."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value, epoch in records:
        producer.produce(topic, value, key, 1, headers=[(EPOCH_HEADER, b"%d" % epoch)])
    assert producer.flush(30) == 0


def claim(epoch: int) -> tuple[bytes, bytes, int]:
    return claim_key(ROLE, epoch).encode(), b"claim", epoch


def text(kind: type, value: bytes) -> Any:
    """Decodes an entry: here its value is the job id, and more text after a space."""
    if kind is not RecoveryEntry:
        raise ValueError("no entry")
    return RecoveryEntry(value.partition(b" ")[0].decode(), "etl", "prod", "subprocess", JobState.RUNNING, value.decode())


def taken(stream: SparkRecoveryStream, view: Published, enough: Callable[[], bool]) -> int:
    """Applies records from the stream until `enough`; returns how many."""
    count = 0

    def look() -> bool:
        nonlocal count
        for record in stream.take(0.2):
            view.apply(record)
            count += 1
        return enough()

    until(look, "the stream has reached that record", 120.0)
    return count


def test_every_epoch_reads_anew_in_bounded_batches_and_drops_what_no_reader_needs(
    spark: SparkSession, bootstrap: str, prefix: str, tmp_path: Path
) -> None:
    topic = f"{prefix}recovery"
    create_topic(bootstrap, topic, 2, {"cleanup.policy": "compact"})
    history: list[tuple[bytes, bytes | None, int]] = [claim(1)]
    history += [(b"job-%d" % (i % 5), b"job-%d at %d" % (i % 5, i), 1) for i in range(2000)]
    history += [claim(2), (b"job-0", b"job-0 anew", 2), (b"job-0", b"job-0 stale", 1), (b"job-1", None, 2)]
    history += [(b"job-2", None, 1), (b"job-3", b"job-3 unclaimed", 3), (b"job-9", b"job-9 last", 2)]
    written(bootstrap, topic, history)
    stream = SparkRecoveryStream(spark, topic, {"bootstrap.servers": bootstrap}, tmp_path, batch_offsets_max=500)
    want = {"job-0": "job-0 anew", "job-2": "job-2 at 1997", "job-3": "job-3 at 1998", "job-4": "job-4 at 1999",
            "job-9": "job-9 last"}  # fmt: skip

    def digests(view: Published) -> dict[str, str]:
        return {job_id: entry.digest for job_id, entry in view.entries.items()}

    for epoch in (1, 2):
        stream.open(epoch)
        view = Published(text)
        count = taken(stream, view, lambda view=view: "job-9" in view.entries)
        assert digests(view) == want
        assert count <= 2 + 5 * 5 + 3, "claims, and at most one record per job and batch"
        query = stream._query
        assert query is not None
        assert max(one["numInputRows"] for one in query.recentProgress) <= 500
        if epoch == 1:  # a later record is judged by the epochs claimed before it
            written(bootstrap, topic, [(b"job-8", b"job-8 stale", 1), (b"job-7", b"job-7 late", 2)])
            taken(stream, view, lambda view=view: "job-7" in view.entries)
            assert digests(view) == want | {"job-7": "job-7 late"}
            want["job-7"] = "job-7 late"
            for file in (tmp_path / "epoch-1" / "offsets").glob("*"):
                file.write_text("")  # damage to a checkpoint has no effect: the next epoch has its own
    stream.close()


# -- the executor


class Engine:
    """A Runner with some poisonous jobs."""

    def start(
        self,
        job_id: str,
        n: int,
        graph: GraphRef,
        restore_point: RestorePoint | None,
        environment: Mapping[str, str],
        failure_rules: Sequence[FailureRule] = (),
    ) -> StartAnswer:
        match job_id:
            case "hangs":
                time.sleep(600)
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "leaves":
                os._exit(3)
            case "refuses":
                raise PermanentError("never")
        return StartAnswer.STARTED

    def observe(self) -> list[ObservedAttempt]:
        return []


def world(runner: str) -> tuple[Mapping[str, Runner], BlobStore]:
    return {runner: Engine()}, MemoryBlobs()  # type: ignore[dict-item]


def test_poison_on_an_executor_harms_its_own_task_only(spark: SparkSession) -> None:
    executor = SparkExecutor(spark, partial(world, "engine"), time_limit_s=20.0)
    jobs = ["good", "hangs", "dies", "leaves", "refuses", "fine"]
    graph = GraphRef("graphs/x/y", "0" * 64, 1)
    executor.submit([StartTask(runner="engine", job_id=job, n=1, graph=graph) for job in jobs])
    executor.submit([StartTask(runner="nobody", job_id="lost", n=1, graph=graph)])
    got: dict[str, TaskOutcome] = {}

    def enough() -> bool:
        got.update((task.job_id, outcome) for task, outcome in executor.results())
        return len(got) == 7

    until(enough, "an outcome for every task", 150.0)
    executor.close()
    assert {job: got[job].status for job in jobs} == {
        "good": TaskStatus.DONE, "hangs": TaskStatus.CRASHED, "dies": TaskStatus.CRASHED,
        "leaves": TaskStatus.CRASHED, "refuses": TaskStatus.REFUSED, "fine": TaskStatus.DONE,
    }  # fmt: skip
    assert got["lost"].status is TaskStatus.NO_RUNNER and "there is no runner" in got["lost"].reason


def test_what_is_preloaded_is_there_before_children_are_forked() -> None:
    told: list[int] = []

    def found() -> tuple[Mapping[str, Runner], BlobStore]:
        raise PermanentError(f"preloaded by {told}, not by {os.getpid()}")

    tasks = [FenceTask(runner="engine", job_id="j", n=1)] * 2
    (outcomes,) = _group([tasks], world=found, preload=lambda: told.append(os.getpid()), time_limit_s=60)
    parents = [outcome.reason.partition("preloaded by ")[2].partition(",")[0] for outcome in outcomes]
    assert parents == [f"[{os.getpid()}]"] * 2


def two_worlds() -> tuple[Mapping[str, Runner], BlobStore]:
    return {"engine": Engine(), "foreign": Engine()}, MemoryBlobs()  # type: ignore[dict-item]


def test_a_plugin_that_hangs_keeps_no_slot_from_others(spark: SparkSession) -> None:
    executor = SparkExecutor(spark, two_worlds, time_limit_s=60.0, slots=3, alone={"foreign"})
    graph = GraphRef("graphs/x/y", "0" * 64, 1)
    for _ in range(6):  # a job group each: twice as many as there are slots
        executor.submit([StartTask(runner="foreign", job_id="hangs", n=1, graph=graph)])
    executor.submit([StartTask(runner="engine", job_id="good", n=1, graph=graph)])
    got: list[tuple[Task, TaskOutcome]] = []

    def some() -> bool:
        got.extend(executor.results())
        return bool(got)

    until(some, "an outcome", 90.0)
    executor.close()
    assert [(task.job_id, outcome.status) for task, outcome in got] == [("good", TaskStatus.DONE)]
