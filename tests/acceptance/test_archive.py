"""The archive of a real ledger: nothing is lost when its archiver is killed, and a byte that was altered is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger import wiring_archive
from ledger.adapters import cloudevents
from tests.acceptance.folder import Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]
CHECK = Path(__file__).parents[2] / "docs" / "check_proof.py"


@pytest.fixture
def ledger(own_folder: Folder) -> Iterator[Folder]:
    own_folder.path.mkdir(parents=True, exist_ok=True)
    (own_folder.path / "ledger.toml").write_text('[archive]\nadapter = "file"\ninterval_s = 0.5\nanchor_interval_s = 0.5\n')
    own_folder.up()
    yield own_folder


def archived(folder: Folder, topic: str) -> list[tuple[int, int]]:
    archive, partitions = wiring_archive.archive(folder.config), range(folder.config.topic_settings().partitions)
    return [(partition, record.offset()) for partition in partitions for record in archive.records(topic, partition)]


def whole(folder: Folder) -> bool:
    """All that is in the log now is in the archive, each record once."""
    topic = folder.config.topics.events
    return archived(folder, topic) == sorted((r.partition(), r.offset()) for r in folder.records(topic))


def proved(folder: Folder) -> bool:
    """All facts that are sealed are proved by what the archiver itself has anchored."""
    rows = json.loads(folder.run("audit verify", "-o", "json").stdout)
    return all(row["proved"] == row["sealed"] for row in rows if row["topic"] == folder.config.topics.events)


def test_all_is_kept_whoever_is_killed_and_what_is_altered_is_named(ledger: Folder, tmp_path: Path) -> None:
    folder = ledger
    folder.submit("first", "true", options=("--wait",))
    folder.until(lambda: whole(folder), "the first job is archived")
    os.kill(folder.pid("archiver-1"), signal.SIGKILL)
    folder.submit("second", "true", options=("--wait",))
    folder.until(lambda: whole(folder), "the second job is archived, by another archiver")

    def topics() -> set[str]:
        return {row["topic"] for row in json.loads(folder.run("archive status", "-o", "json").stdout)}

    folder.until(lambda: topics() == {"ledger.events", "ledger.recovery"}, "both topics are archived")
    anchors = tmp_path / "anchors"
    heads = json.loads(folder.run("audit anchor", "--to", str(anchors), "-o", "json").stdout)
    folder.run("audit verify", "--no-topic", "--anchors", str(anchors))
    folder.until(lambda: proved(folder), "the archiver has anchored all")

    topic = folder.config.topics.events
    record = next(r for r in folder.records(topic) if r.key() == b"second/admitted")
    event_id = cloudevents.parse(record.headers()).id
    (tmp_path / "proof.json").write_text(folder.run("audit prove", event_id).stdout)
    head = next(h["sha256"] for h in heads if (h["topic"], h["partition"]) == (topic, record.partition()))
    for anchor, code in ((head, 0), ("0" * 64, 1)):
        command = [sys.executable, "-I", str(CHECK), str(tmp_path / "proof.json"), anchor]
        assert subprocess.run(command, check=False, capture_output=True).returncode == code
    folder.run("audit prove", "nobody", expect=1)

    told = folder.run("archive query", "SELECT job_id, n, outcome FROM attempts ORDER BY job_id", "-o", "csv")
    assert told.stdout.split() == ["job_id,n,outcome", "first,1,finished", "second,1,finished"]
    folder.run("history", "first", "--as-of", "0s", "--timeline", str(tmp_path / "first.svg"))
    assert "attempt 1: finished" in (tmp_path / "first.svg").read_text()

    archive = wiring_archive.archive(folder.config)
    manifest = next(m for m in archive.manifests(topic, record.partition()) if m.next > record.offset())
    path = folder.path / "archive" / manifest.records
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    told = folder.run("audit verify", "--anchors", str(anchors), "-o", "json", expect=1)
    bad = {(row["topic"], row["partition"]): row["first_bad"] for row in json.loads(told.stdout) if row["broken"]}
    assert list(bad) == [(topic, record.partition())]
    assert manifest.first <= bad[topic, record.partition()] < manifest.next
    assert manifest.records in told.stderr
