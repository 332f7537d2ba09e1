"""The errors of the ledger, classified by their meaning and not by the module that raises them. The docstring of each
class states when it is raised and what to do.

In a role, there are two kinds of failure. After a `TemporaryError` the role waits and retries. A `PermanentError`
concerns one job and quarantines it. Any other error crashes the role, and its supervisor restarts it.
"""

from __future__ import annotations


class LedgerError(Exception):
    """Base of all errors of the ledger. `hint` is the next step for the user; the command line exits with
    `exit_code`."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NotFound(LedgerError):
    """The named job or record does not exist. List all jobs: `jobledger list --all`."""

    exit_code = 1


class UsageError(LedgerError):
    """The call or command is invalid: correct it. Nothing was changed."""

    exit_code = 2


class ConfigError(LedgerError):
    """A setting or a prerequisite (Java, a topic, a folder) is wrong or missing. Nothing was started."""

    exit_code = 2


class Unreachable(LedgerError):
    """Kafka, the agent or the blob store did not answer. Nothing was changed. Retry once it is available."""

    exit_code = 3


class RunnerBroke(Unreachable):
    """A runner raised, died, hung or returned an invalid answer. The outcome of the call is unknown. The ledger repeats
    the call by itself. Fix the runner's package, or remove it."""


class OutcomeUnknown(LedgerError):
    """An event was sent, but may or may not be in the log. Sending the same event again is safe."""

    exit_code = 4


class Refused(LedgerError):
    """The ledger rejected a request, and changed nothing: another digest under this id, a retired id, a superseded
    intent."""

    exit_code = 5


class Fenced(LedgerError):
    """Another leader has taken over, or the outcome of a transaction is unknown. This role must step down, and must win
    the election again before it writes. That is safe: no job is affected."""

    exit_code = 5


class TemporaryError(LedgerError):
    """The operation may succeed later: wait and retry."""

    exit_code = 3


class PermanentError(LedgerError):
    """The operation can never succeed for this job. The job is quarantined with this message as its reason."""

    exit_code = 1


class RecordTooLarge(PermanentError):
    """A record is larger than its topic allows. Nothing of its transaction was written. The writer continues without
    it."""

    def __init__(self, topic: str, partition: int, key: bytes, size_bytes: int) -> None:
        super().__init__(
            f"The record {key[:300].decode('utf-8', 'replace')} of {topic}[{partition}] is too large: {size_bytes} bytes.",
            hint="Make it smaller, or raise max.message.bytes of the topic and message.max.bytes of the client.",
        )
        self.topic, self.partition, self.key, self.size_bytes = topic, partition, key, size_bytes
