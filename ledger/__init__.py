"""jobledger: which jobs must be brought back, from which checkpoint, and why.

The public interface consists of the names below and those of `ledger.spark`. All other names may change. The names are
imported at first use, so that `import ledger` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ledger._version import __version__

if TYPE_CHECKING:
    from ledger.adapters.runners.subprocess.graph import pack
    from ledger.app.connect import connect
    from ledger.app.ledger import Ledger
    from ledger.app.worker import RunningJob, job
    from ledger.config.config import Config, load_config
    from ledger.core.model.facts import (
        AttemptEnded,
        AttemptRunning,
        CheckpointCompleted,
        CheckpointKind,
        GraphRef,
        IntentKind,
        JobSubmitted,
        OnExhausted,
        RestartKind,
        RestartPolicy,
        RestorePoint,
    )
    from ledger.core.model.recovery import Entries, JobState, RecoveryEntry
    from ledger.core.model.registers import Checkpoint, Ended, Running
    from ledger.errors import LedgerError, OutcomeUnknown, Refused, Unreachable
    from ledger.operations.client import Client
    from ledger.producer.recorder import Recorded, Recorder, Unacknowledged

__all__ = [
    "AttemptEnded",
    "AttemptRunning",
    "Checkpoint",
    "CheckpointCompleted",
    "CheckpointKind",
    "Client",
    "Config",
    "Ended",
    "Entries",
    "GraphRef",
    "IntentKind",
    "JobState",
    "JobSubmitted",
    "Ledger",
    "LedgerError",
    "OnExhausted",
    "OutcomeUnknown",
    "Recorded",
    "Recorder",
    "RecoveryEntry",
    "Refused",
    "RestartKind",
    "RestartPolicy",
    "RestorePoint",
    "Running",
    "RunningJob",
    "Unacknowledged",
    "Unreachable",
    "__version__",
    "connect",
    "job",
    "load_config",
    "pack",
]  # fmt: skip

_MODULES = {
    "ledger.adapters.runners.subprocess.graph": ("pack",),
    "ledger.operations.client": ("Client",),
    "ledger.config.config": ("Config", "load_config"),
    "ledger.app.connect": ("connect",),
    "ledger.app.ledger": ("Ledger",),
    "ledger.core.model.facts": (
        "AttemptEnded", "AttemptRunning", "CheckpointCompleted", "CheckpointKind", "GraphRef", "IntentKind",
        "JobSubmitted", "OnExhausted", "RestartKind", "RestartPolicy", "RestorePoint",
    ),
    "ledger.core.model.recovery": ("JobState", "RecoveryEntry", "Entries"),
    "ledger.core.model.registers": ("Checkpoint", "Ended", "Running"),
    "ledger.errors": ("LedgerError", "OutcomeUnknown", "Refused", "Unreachable"),
    "ledger.producer.recorder": ("Recorded", "Recorder", "Unacknowledged"),
    "ledger.app.worker": ("RunningJob", "job"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
