"""The imports of `jobledger submit` up to the producer: few files, and none of features that the settings switch off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kafka

SENDER = "ledger.adapters.kafka.sender"
#: Runs a verb until it imports the producer. Prints for each module of the ledger which module imported it first.
TRACED = f"""
import json, os, sys

class Importers:
    found = {{}}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        frame = sys._getframe(1)
        while frame and not frame.f_globals.get("__name__", "").startswith("ledger"):
            frame = frame.f_back
        if name.startswith("ledger"):
            cls.found.setdefault(name, frame.f_globals["__name__"] if frame else "")
        if name == "{SENDER}":
            print(json.dumps(cls.found), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Importers)
from ledger.cli import main
main()
"""
NEEDLESS = (
    "ledger.app.pinning", "ledger.app.archives", "ledger.archive.store", "ledger.archive.query",
    "ledger.archive.snapshots", "ledger.archive.removal.pins", "ledger.adapters.s3", "ledger.history",
)  # fmt: skip


def test_a_submit_comes_to_a_producer_in_a_few_files(bootstrap: str, prefix: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")}
    environment |= {"LEDGER_TOPICS__PREFIX": prefix, "LEDGER_TOPICS__PARTITIONS": "1"}
    environment |= {"LEDGER_TOPICS__REPLICATION_FACTOR": "1", "LEDGER_TOPICS__MIN_INSYNC_REPLICAS": "1"}
    there = ["--dir", str(tmp_path), "-b", bootstrap]
    for command in (["-m", "ledger", "topics", "create", *there], ["-c", TRACED, "submit", *there, "--", "true"]):
        run = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert run.returncode == 0, run.stderr
    importers = json.loads(run.stdout)

    chain = [SENDER]
    while importers[chain[-1]]:
        chain.append(importers[chain[-1]])
    assert len(chain) <= 8, " < ".join(chain)
    assert [name for name in importers if name.startswith(NEEDLESS)] == []
