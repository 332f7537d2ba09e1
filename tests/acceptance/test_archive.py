"""The archive of a real ledger: no record is lost when the archiver is killed, and verification names an altered byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters import cloudevents
from ledger.app.ledger import Ledger
from tests.support.folder import Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]
CHECK = Path(__file__).parents[2] / "docs" / "check_proof.py"


def archived(folder: Folder, topic: str) -> list[tuple[int, int]]:
    archive, partitions = Ledger.open(folder.config).archive, range(folder.config.topic_settings().partitions)
    return [(partition, record.offset()) for partition in partitions for record in archive.records(topic, partition)]


def is_archived(folder: Folder) -> None:
    """Waits until every record that is in the log now is in the archive exactly once. Other tests may write meanwhile."""
    topic = folder.config.topics.events
    written = sorted((r.partition(), r.offset()) for r in folder.records(topic))
    ends = dict(written)  # the last offset of each partition
    folder.until(
        lambda: [(p, offset) for p, offset in archived(folder, topic) if offset <= ends.get(p, -1)] == written,
        "every record of the log is archived",
    )


def verified(folder: Folder) -> dict[int, dict[str, Any]]:
    """Partition of the events -> its row from `audit verify`."""
    rows = json.loads(folder.run("audit verify", "-o", "json").stdout)
    return {row["partition"]: row for row in rows if row["topic"] == folder.config.topics.events}


def is_proved(folder: Folder) -> None:
    """Waits until anchors of the archiver itself prove every fact that is sealed now."""
    sealed = {partition: row["sealed"] for partition, row in verified(folder).items()}
    assert any(sealed.values())
    folder.until(
        lambda: all(row["proved"] >= sealed[partition] for partition, row in verified(folder).items()),
        "the archiver has anchored all sealed facts",
    )


def test_all_is_kept_whoever_is_killed_and_what_is_altered_is_named(shared_ledger: Folder, tmp_path: Path) -> None:
    folder, first, second = shared_ledger, "archived-first", "archived-second"
    folder.submit(first, "true", options=("--wait",))
    is_archived(folder)
    archiver = folder.pid("archiver-1")
    os.kill(archiver, signal.SIGKILL)
    folder.submit(second, "true", options=("--wait",))
    is_archived(folder)
    assert folder.pid("archiver-1") != archiver, "another archiver took over"

    def topics() -> set[str]:
        return {row["topic"] for row in json.loads(folder.run("archive status", "-o", "json").stdout)}

    folder.until(lambda: topics() == {"ledger.events", "ledger.recovery"}, "both topics are archived")
    anchors = tmp_path / "anchors"
    heads = json.loads(folder.run("audit anchor", "--to", str(anchors), "-o", "json").stdout)
    folder.run("audit verify", "--no-topic", "--anchors", str(anchors))
    is_proved(folder)

    topic = folder.config.topics.events
    record = next(r for r in folder.records(topic) if r.key() == f"{second}/admitted".encode())
    event_id = cloudevents.parse(record.headers()).id
    (tmp_path / "proof.json").write_text(folder.run("audit prove", event_id).stdout)
    head = next(h["sha256"] for h in heads if (h["topic"], h["partition"]) == (topic, record.partition()))
    for anchor, code in ((head, 0), ("0" * 64, 1)):
        command = [sys.executable, "-I", str(CHECK), str(tmp_path / "proof.json"), anchor]
        assert subprocess.run(command, check=False, capture_output=True).returncode == code
    folder.run("audit prove", "nobody", expect=1)

    asked = "SELECT job_id, n, outcome FROM attempts WHERE job_id LIKE 'archived-%' ORDER BY job_id"
    told = folder.run("archive query", asked, "-o", "csv")
    assert told.stdout.split() == ["job_id,n,outcome", f"{first},1,finished", f"{second},1,finished"]
    folder.run("history", first, "--as-of", "0s", "--timeline", str(tmp_path / "first.svg"))
    assert "attempt 1: finished" in (tmp_path / "first.svg").read_text()

    archive = Ledger.open(folder.config).archive
    manifest = next(m for m in archive.manifests(topic, record.partition()) if m.next > record.offset())
    path = folder.path / "archive" / manifest.records
    kept = path.read_bytes()
    altered = bytearray(kept)
    altered[len(kept) // 2] ^= 1
    path.write_bytes(altered)
    try:
        told = folder.run("audit verify", "--anchors", str(anchors), "-o", "json", expect=1)
    finally:
        path.write_bytes(kept)
    bad = {(row["topic"], row["partition"]): row["first_bad"] for row in json.loads(told.stdout) if row["broken"]}
    assert list(bad) == [(topic, record.partition())]
    assert manifest.first <= bad[topic, record.partition()] < manifest.next
    assert manifest.records in told.stderr
