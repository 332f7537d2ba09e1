"""The audit consumer as a process, and a history for it to audit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from ledger.embedded.ports import free_ports
from tests.protocol import page
from tests.support.pages import blocks
from tests.support.servers import die_with_parent
from tests.support.waiting import in_time

_PAGE = (page.ROOT / "docs" / "CONSUMERS.md").read_text()
ANSWER_S = 60.0  # for an answer of a broker; the error after it is not retried
#: Commands on the page: name of the block -> the words of its lines that start a program.
SHOWN = {
    block.info.removeprefix("sh "): [line.split() for line in block.lines if line.startswith("python ")]
    for block in blocks(_PAGE)
}
MAKE_TOPICS, RUN = SHOWN["audit"]


class Audit:
    """Runs one audit consumer at a time. `start`, `kill` and `start` again is a crash."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path, **settings: str) -> None:
        self.prefix, self._bootstrap, self._log = prefix, bootstrap, folder / "audit.log"
        self.settings = {
            "AUDIT_BOOTSTRAP_SERVERS": bootstrap, "AUDIT_PREFIX": prefix, "AUDIT_NAME": f"{prefix}audit",
            "AUDIT_REPLICATION_FACTOR": "1", "AUDIT_WEB_PORT": str(free_ports(1)[0]), **settings,
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str] = RUN, **settings: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the page to its end."""
        return subprocess.run(
            [sys.executable, *command[1:]], cwd=page.ROOT, env=self._environment(settings), capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *RUN[1:]], cwd=page.ROOT, env=self._environment({}), stdout=log, stderr=log,
                preexec_fn=die_with_parent,
            )  # fmt: skip

    def kill(self) -> None:
        """Kills the consumer with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def wait(self, timeout_s: float = 120.0) -> int:
        """Waits until the consumer has ended by itself, and returns its exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self, timeout_s: float = 60.0) -> int:
        """Ends the consumer with SIGTERM, and returns its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith("AUDIT_")}
        return {**others, **self.settings, **settings}

    def ready(self) -> tuple[int, dict[str, Any]]:
        """(HTTP status, body) of the readiness page; (0, {}) while there is no page."""
        url = f"http://127.0.0.1:{self.settings['AUDIT_WEB_PORT']}/ready"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, {}

    def story(self) -> str:
        ended = self._process.poll() if self._process is not None else None
        told = self._log.read_text(errors="replace")[-6000:] if self._log.exists() else ""
        return f"exit code {ended}; page {self.ready()}\n{told}"

    def topic(self, name: str) -> list[Message]:
        """All records that are in one of its topics now."""
        return read_all(self._bootstrap, f"{self.prefix}ledger.audit.{name}")


def read_all(bootstrap: str, topic: str) -> list[Message]:
    """Every committed record up to the current end, partition by partition."""
    client = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**client, "isolation.level": "read_committed"})
    try:
        there = consumer.list_topics(topic, ANSWER_S).topics[topic].partitions
        places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in there]
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), ANSWER_S)[1] for p in there}
        consumer.assign(places)
        found: list[Message] = []
        deadline = time.monotonic() + 60
        while any(one.offset < ends[one.partition] for one in consumer.position(places) if ends[one.partition]):
            in_time(time.monotonic() < deadline, f"not within the time: {len(found)} records of {topic} came, up to {ends}")
            found += [message for message in consumer.consume(1000, 0.3) if message.error() is None]
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()
