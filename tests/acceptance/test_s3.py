"""Graphs in a bucket of a real S3 server, with a real ledger and the installed command. A retired job leaves no graph."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ledger.adapters.s3.blobs import MARKER
from ledger.adapters.s3.client import connect
from ledger.adapters.s3.settings import S3Settings
from ledger.core.model.recovery import JobState
from tests.support.folder import Folder
from tests.support.s3 import BUILD_S, PART_BYTES, PASSWORD, RealS3, make_bucket, real_s3, settings

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(BUILD_S + 400)]

PREFIX = "ledger/acceptance/"
CHECK = """
import hashlib, sys
sys.exit(hashlib.sha256(open("large.bin", "rb").read()).hexdigest() != sys.argv[1])
"""


@pytest.fixture
def server(tmp_path: Path, s3_credentials: None) -> Iterator[RealS3]:
    with real_s3(tmp_path / "s3") as running:
        yield running


@pytest.fixture
def bucket(server: RealS3) -> S3Settings:
    return make_bucket(settings(server.endpoint))


@pytest.fixture
def ledger(own_folder: Folder, bucket: S3Settings) -> Folder:
    own_folder.path.mkdir()
    (own_folder.path / "ledger.toml").write_text(f"""
[blobs]
adapter = "s3"
bucket = "{bucket.bucket}"
prefix = "{PREFIX}"
endpoint_url = "{bucket.endpoint_url}"
path_style = true
part_bytes = {PART_BYTES}

[log]
level = "debug"
""")
    return own_folder


def test_a_job_lives_on_its_graph_in_a_bucket_and_leaves_nothing_there(
    ledger: Folder, server: RealS3, bucket: S3Settings, tmp_path: Path
) -> None:
    def graphs() -> list[str]:
        found = connect(bucket).list_objects_v2(Bucket=bucket.bucket, Prefix=PREFIX)
        return [one["Key"].removeprefix(PREFIX) for one in found.get("Contents", ()) if not one["Key"].endswith(MARKER)]

    def retired(job_id: str) -> bool:
        return job_id not in ledger.published().entries and not any(f"/{job_id}/" in key for key in graphs())

    until = partial(ledger.until, timeout_s=180)
    ledger.up()
    large = tmp_path / "large.bin"
    large.write_bytes(os.urandom(2 * PART_BYTES + 1))
    digest = hashlib.sha256(large.read_bytes()).hexdigest()

    # The graph is too large for one request. The job finishes only if it received every byte.
    ledger.submit("large", sys.executable, "-c", CHECK, digest, options=("--graph", str(large)))
    until(lambda: retired("large"), "the large job is retired and its graph gone")
    assert "FINISHED" in ledger.run("show", "large").stdout

    # The store goes down. A start that needs it waits and is not abandoned.
    ledger.ticker("running")
    until(lambda: ledger.running().get("running"), "the ticker runs")
    server.kill()
    attempt, pid = ledger.running()["running"]
    os.kill(int(pid), 9)
    until(lambda: "running" not in ledger.alive(), "the ticker is dead")
    said = ledger.path / "log" / "reconciler-1.log"
    waits = lambda line: "not_prepared" in line and bucket.bucket in line  # noqa: E731
    until(lambda: any(map(waits, said.read_text().splitlines())), "the log names the store that the start waits for")
    refused = ledger.run("submit", "--id", "late", "--", "true", expect=None)
    assert (refused.returncode, bucket.bucket in refused.stderr) == (3, True)
    entry = ledger.entry("running")
    assert entry is not None and entry.state in (JobState.RESTARTING, JobState.RUNNING)

    server.start()
    again = until(lambda: ledger.running().get("running"), "the ticker runs again")
    assert again[0] > attempt
    ledger.enough.touch()
    until(lambda: retired("running"), "the ticker is retired and its graph gone")
    assert graphs() == []
    assert not (ledger.path / "blobs").exists()
    logs = "".join(path.read_text(errors="replace") for path in (ledger.path / "log").iterdir())
    assert PASSWORD not in logs
    assert "Authorization" not in logs
