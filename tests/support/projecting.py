"""A projector in a thread, on a real broker."""

from __future__ import annotations

import threading

from ledger.app.ledger import Ledger
from ledger.app.roles_main import run_projector
from ledger.config.config import Config
from ledger.core.model.facts import JobSubmitted, RestartKind, RestartPolicy
from ledger.producer.outside import NO_GRAPH
from tests.support.waiting import in_time

SPEC = JobSubmitted("etl", "prod", "subprocess", NO_GRAPH, RestartPolicy(RestartKind.NONE))


class Projecting:
    """A projector in a thread, which a test can stop and start again."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.start()

    def start(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=run_projector, args=(Ledger.open(self._config),), kwargs={"stop": self._stop}
        )
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        in_time(not self._thread.is_alive(), "not within 60 s: the end of the projector")
