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
from ledger.ports.tasks import (
    AcknowledgeTask,
    Cleaned,
    CleanTask,
    DisposeTask,
    Executor,
    FenceTask,
    ForgetTask,
    Prepared,
    PrepareTask,
    RecoveryStream,
    SavepointTask,
    StartTask,
    StopTask,
    Task,
    TaskOutcome,
    TaskStatus,
    TaskTarget,
    VerifyTask,
)

__all__ = [
    "NOWHERE",
    "AcknowledgeTask",
    "BlobStore",
    "Candidate",
    "CleanTask",
    "Cleaned",
    "Clock",
    "Codec",
    "DisposeTask",
    "Envelope",
    "Event",
    "EventLog",
    "Executor",
    "FenceTask",
    "ForgetTask",
    "Headers",
    "Leadership",
    "Marks",
    "MemoryRecord",
    "Observation",
    "ObservedAttempt",
    "PrepareTask",
    "Prepared",
    "Reader",
    "Record",
    "RecoveryStream",
    "Runner",
    "RunnerEvent",
    "RunnerStorage",
    "SavepointTask",
    "Sender",
    "Standing",
    "StartAnswer",
    "StartTask",
    "StopTask",
    "StoredBlob",
    "Task",
    "TaskOutcome",
    "TaskStatus",
    "TaskTarget",
    "TopicPartition",
    "Verification",
    "VerifyTask",
    "Writer",
]
