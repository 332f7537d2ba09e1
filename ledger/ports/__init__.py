"""The ports: protocols of the outside services that the roles need. All adapters pass their contract (tests/contract).

Adapters: `adapters/memory` (tests, simulation), `adapters/kafka`, `adapters/local` (file lock, file blobs),
`adapters/runners/*`. The same contract suite runs on all adapters of a port, so the in-memory ones behave like the
others.
"""

from __future__ import annotations

from ledger.ports.blobs import BlobStore, StoredBlob
from ledger.ports.clock import Clock
from ledger.ports.codec import Codec, Envelope
from ledger.ports.leadership import Candidate, Leadership, Standing
from ledger.ports.log import NOWHERE, Event, EventLog, Headers, Marks, MemoryRecord, Reader, Record, TopicPartition, Writer
from ledger.ports.runner import Observation, ObservedAttempt, Runner, RunnerEvent, RunnerStorage, StartAnswer, Verification
from ledger.ports.sender import Sender
from ledger.ports.tasks import Executor, RecoveryStream, Task, TaskOutcome, TaskStatus

__all__ = [
    "NOWHERE",
    "BlobStore",
    "Candidate",
    "Clock",
    "Codec",
    "Envelope",
    "Event",
    "EventLog",
    "Executor",
    "Headers",
    "Leadership",
    "Marks",
    "MemoryRecord",
    "Observation",
    "ObservedAttempt",
    "Reader",
    "Record",
    "RecoveryStream",
    "Runner",
    "RunnerEvent",
    "RunnerStorage",
    "Sender",
    "Standing",
    "StartAnswer",
    "StoredBlob",
    "Task",
    "TaskOutcome",
    "TaskStatus",
    "TopicPartition",
    "Verification",
    "Writer",
]
