"""What can go wrong, told by meaning and not by origin. The docstring of each class says when it is raised and what to do.

Two kinds of failure: a `TemporaryError` waits and is tried again, a `PermanentError` concerns one job and
quarantines it; anything else crashes the role loudly, and its supervisor starts it again.
"""

from __future__ import annotations


class LedgerError(Exception):
    """Base of all errors of the ledger. `hint` says what to do next; `exit_code` is what the command line answers."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotFound(LedgerError):
    """The job or record that was named does not exist. `jobledger list --all` shows what does."""

    exit_code = 1


class UsageError(LedgerError):
    """What was asked cannot be asked this way: correct the call. Nothing was changed."""

    exit_code = 2


class ConfigError(LedgerError):
    """A setting or the surroundings (Java, a topic, a folder) are not as they must be. Nothing was started."""

    exit_code = 2


class Unreachable(LedgerError):
    """Kafka, the agent or the blob store did not answer. Nothing was changed; try again once it does."""

    exit_code = 3


class RunnerBroke(Unreachable):
    """A runner raised, died, hung or answered nonsense when it was asked. Nothing is known of what it was asked for; it is
    asked again by itself. Its package is to be mended, or removed."""


class OutcomeUnknown(LedgerError):
    """Sent, but not known to be stored: it may or may not be in the log. Sending the same event again is harmless."""

    exit_code = 4


class Refused(LedgerError):
    """The ledger said no (another digest under this id, a retired id, an overtaken intent). Nothing will come of it."""

    exit_code = 5


class Fenced(LedgerError):
    """Another leader has taken over, or the outcome of a transaction is not known. This role must stand back and prove
    its leadership anew before it writes again; it is safe to do so, and no job is touched by it."""

    exit_code = 5


class TemporaryError(LedgerError):
    """It may go well later: wait and try again."""

    exit_code = 3


class PermanentError(LedgerError):
    """It will never go well for this job: the job is quarantined with this message as its reason."""

    exit_code = 1


class RecordTooLarge(PermanentError):
    """A record is larger than its topic takes. Nothing of its transaction was written; the writer goes on without it."""

    def __init__(self, topic: str, partition: int, key: bytes, size_bytes: int) -> None:
        super().__init__(
            f"The record {key[:300].decode('utf-8', 'replace')} of {topic}[{partition}] is too large: {size_bytes} bytes.",
            hint="Make it smaller, or raise max.message.bytes of the topic and message.max.bytes of the client.",
        )
        self.topic, self.partition, self.key, self.size_bytes = topic, partition, key, size_bytes
