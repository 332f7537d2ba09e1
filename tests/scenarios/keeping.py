"""Saves the ledger of a scenario as a bundle. `BUNDLES=DIR pytest tests/scenarios` makes the bundles of docs/incidents."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Container
from contextlib import closing
from pathlib import Path

from ledger.app.ledger import Ledger
from ledger.config.config import Config
from ledger.ports import TopicPartition
from ledger.util.times import rfc3339
from tests.support.folder import JOBLEDGER
from tests.support.waiting import until

VARIABLE = "BUNDLES"
PATIENCE_S = 240.0


def keep(number: str, reason: str, config: Config, end: Callable[[], None] | None = None) -> None:
    """Archives the current ledger and writes two files: its bundle, and the anchors that prove it. Does nothing without
    the variable BUNDLES. number: the number of the incident.

    end: ends everything that writes. It is needed if the topics are compacted at once: then only the current state of the
    ledger is certain, but no past state."""
    if not (folder := os.environ.get(VARIABLE)):
        return
    bundle, anchors = (Path(folder).absolute() / f"{number}.{kind}" for kind in ("zip", "anchors"))
    bundle.unlink(missing_ok=True)
    anchors.unlink(missing_ok=True)
    environment = {
        **os.environ, "LEDGER_DIR": str(config.dir), **config.environment(),
        "LEDGER_ARCHIVE__ADAPTER": "file", "LEDGER_ARCHIVE__INTERVAL_S": "1",
    }  # fmt: skip

    def run(*arguments: str, expect: Container[int] = (0,)) -> str:
        done = subprocess.run([JOBLEDGER, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in expect, f"jobledger {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}"
        return done.stdout

    def archived() -> bool:
        """Whether all records that were in the topics are archived."""
        status = json.loads(run("archive", "status", "-o", "json", expect=(0, 1)))  # 1: the archive was begun late, as here
        rows = {(row["topic"], row["partition"]): row["sealed"] for row in status}
        return all(rows.get(place, 0) > last for place, last in there.items())

    run("topics", "create")  # creates the topic of anchors, which a ledger without an archive lacks
    if end is not None:
        end()
    moment = ("--as-of", rfc3339(time.time())) if end is None else ()
    there = newest(config)
    with (Path(folder) / f"{number}.log").open("wb") as log:
        archiver = subprocess.Popen([JOBLEDGER, "serve", "archiver"], env=environment, stdout=log, stderr=log)
        try:
            until(archived, "all records are archived", PATIENCE_S, every_s=2.0)
            run("audit", "anchor", "--to", str(anchors))
        finally:
            archiver.terminate()
            archiver.wait(60)
    run("audit", "bundle", "--to", str(bundle), "--reason", reason, *moment)
    (Path(folder) / f"{number}.log").unlink()


def newest(config: Config) -> dict[TopicPartition, int]:
    """The offset of the last record in each non-empty partition of the two topics."""
    last = dict[TopicPartition, int]()
    with closing(Ledger.open(config).event_log.reader([config.topics.events, config.topics.recovery])) as reader:
        ends = reader.high_watermarks()
        while any(reader.position()[place] < end for place, end in ends.items()):
            for record in reader.poll(10_000, 0.2):
                last[record.topic(), record.partition()] = record.offset()
    return last
