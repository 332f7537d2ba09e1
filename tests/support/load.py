"""A continuous load of producers' events while a test injects faults."""

from __future__ import annotations

import threading

from ledger.adapters import avro
from ledger.config.config import Config
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    Fact,
    GraphRef,
    JobSubmitted,
    RestartKind,
    RestartPolicy,
)
from ledger.core.model.registers import Ended, Outcome, Register, Running, Spec, key_of
from ledger.producer.recorder import Recorder
from tests.simulation.copies import Delivery

SPEC = JobSubmitted("etl", "default", "outside", GraphRef("", "", 0), RestartPolicy(RestartKind.FIXED_DELAY, 3, 1.0))


class Load:
    """Within `with`, a thread writes events. told: the answers to the thread. pause_s: time between two jobs."""

    def __init__(self, config: Config, pause_s: float = 0.02) -> None:
        self._config, self._pause_s, self._over = config, pause_s, threading.Event()
        self.told: list[Delivery] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the load. May be called repeatedly."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with Recorder("load", config=self._config) as recorder:
            number = 0
            while not self._over.is_set():
                number += 1
                job_id = f"job-{number}"
                self._record(recorder, job_id, Spec(avro.spec_digest(SPEC)), SPEC)
                self._record(recorder, job_id, Running(1), AttemptRunning(str(number)))
                if number % 2:
                    self._record(recorder, job_id, Ended(1, Outcome.FAILED, "agent-1"), AttemptEnded("it fell"))
                self._over.wait(self._pause_s)

    def _record(self, recorder: Recorder, job_id: str, register: Register, fact: Fact) -> None:
        partition, offset, _ = recorder.record(job_id, register, fact)
        key = key_of(job_id, register).encode()
        topic = self._config.topics.events
        self.told.append(Delivery("ok", "load", topic, partition, key, avro.encode(fact), offset=offset))
