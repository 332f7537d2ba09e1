"""The library for jobs in Python: the restore point, atomic checkpoints, and requests to stop or to make a savepoint.

Standard library only, without Kafka: job and agent communicate through folders and signals. Source: docs/JOBS.md.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from ledger.errors import UsageError

ID_MAX = 2**63 - 1
#: Exit code of a job that was asked to stop: 143, as in shells for SIGTERM. Never 0, which means finished for good.
STOPPED = 128 + signal.SIGTERM
_NAME = re.compile(r"(?:chk|sav)-(0|[1-9][0-9]{0,18})(?:@[A-Za-z0-9._:+-]{1,128})?\Z")
_LABEL = re.compile(r"[A-Za-z0-9._:+-]{1,128}\Z")


def job(*, fallback: Path | str | None = None, savepoints: bool = True) -> RunningJob:
    """This program's own job, as a context manager: `with ledger.job() as job: …`.

    fallback: the folder for checkpoints if the ledger did not start this program, so that you can run it by hand. Then
    `restored` is the newest checkpoint in the folder, and old checkpoints are not deleted. savepoints: if False, the
    job makes no savepoints; the ledger then does not request or wait for any (SIGUSR1 has no handler).

    Raises: UsageError if the ledger did not start this program and fallback is None.
    """
    signals = (signal.SIGTERM, signal.SIGUSR1) if savepoints else (signal.SIGTERM,)
    environment = os.environ
    if folder := environment.get("LEDGER_CHECKPOINT_DIR"):
        restored = environment.get("LEDGER_RESTORE_FROM")
        base = Path(restored) if restored else None
        attempt = int(environment.get("LEDGER_ATTEMPT", "0"))
        return RunningJob(Path(folder), base, signals, environment.get("LEDGER_JOB_ID", ""), attempt)
    if fallback is None:
        raise _wrong(
            "The ledger did not start this program: LEDGER_CHECKPOINT_DIR is not set.",
            "Submit it with jobledger submit. To run it by hand: ledger.job(fallback=FOLDER).",
        )
    folder_by_hand = Path(fallback).absolute()
    folder_by_hand.mkdir(parents=True, exist_ok=True)
    newest = max(_complete(folder_by_hand), default=None)
    return RunningJob(folder_by_hand, None if newest is None else folder_by_hand / newest[1], signals)


class RunningJob:
    """One attempt of a job, for use inside its process. `ledger.job()` returns this object.

    id: the id of the job. attempt: the attempt's number, from 1. If the ledger did not start this program, id is "" and
    attempt is 0. restored: the file or folder to resume from, which must not be changed; None = from scratch.

    Any thread may make checkpoints. The `with` block must be entered in the main thread, because it handles signals."""

    def __init__(
        self, folder: Path, restored: Path | None, signals: Iterable[signal.Signals], job_id: str = "", attempt: int = 0
    ) -> None:
        self.id, self.attempt, self.restored = job_id, attempt, restored
        self._signals = signals
        self._folder = folder
        self._newest = max((number for number, _ in _complete(folder)), default=-1)
        # Numbers must rise within an attempt. They need not rise from attempt to attempt, but that is easier to read.
        found = _NAME.match(restored.name) if restored is not None else None
        self._follows = int(found[1]) if found else 0
        self._lock = threading.RLock()
        self._writing = False
        self._completed_at = time.monotonic()
        self._stopping = False
        self._asked = self._answered = 0  # savepoints: signals count requests, checkpoint() counts answers
        self._handlers: dict[signal.Signals, object] = {}
        self._wake_up = (-1, -1)

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether SIGTERM came. The job should write a last checkpoint and leave the `with` block: SIGKILL follows
        after the grace period (10 s unless the job was submitted with another one)."""
        return self._stopping

    @property
    def savepoint_asked(self) -> bool:
        """Whether a savepoint is requested (SIGUSR1): the next checkpoint will be a savepoint."""
        return self._asked > self._answered

    def checkpoint_due(self, every_s: float) -> bool:
        """Whether the job should make a checkpoint now: the newest is `every_s` seconds old, a savepoint is requested,
        or the job has to stop."""
        return self._stopping or self.savepoint_asked or time.monotonic() - self._completed_at >= every_s

    def wait(self, seconds: float) -> None:
        """Sleeps, but returns at once if the job has to stop or a savepoint is requested. `time.sleep` would not return
        early."""
        until = time.monotonic() + seconds
        while not (self._stopping or self.savepoint_asked) and (left := until - time.monotonic()) > 0:
            if self._wake_up[0] < 0:
                raise _wrong("A job waits only inside its with block.", "Use: with ledger.job() as job: …")
            select.select([self._wake_up[0]], [], [], left)
            self._drain()

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    @contextmanager
    def checkpoint(self, number: int | None = None, *, label: str = "") -> Iterator[Path]:
        """A new folder to write the state into. When the `with` block ends, the folder becomes a completed checkpoint,
        synced to disk.

        The files are fsynced, and the folder is renamed to `chk-<number>`, or to `sav-<number>` if a savepoint is
        requested. If the block raises, the folder is removed, and no checkpoint is made.

        number: must be above that of the last checkpoint; None = the next number. label: of the cut through several
        jobs to which the checkpoint belongs; "" = no cut.
        Raises: UsageError if the number does not rise, the label is invalid, or a checkpoint is open already; OSError.
        """
        if label and not _LABEL.match(label):
            raise UsageError(f"{label!r} is not a label: 1 to 128 of A-Z, a-z, 0-9 and . _ : + -")
        with self._lock:
            if self._writing:
                raise _wrong("A checkpoint was begun inside another one.", "End the with block of the first one before.")
            number = max(self._newest, self._follows) + 1 if number is None else number
            if not self._newest < number <= ID_MAX:
                raise _wrong(
                    f"Checkpoint {number} can't follow checkpoint {self._newest}: numbers rise, up to {ID_MAX}.",
                    "Leave the number out, or take a larger one.",
                )
            # The state is written from here on, so this checkpoint answers all savepoint requests that came before.
            savepoint, part = self.savepoint_asked, self._folder / f".part-{number}"
            self._writing = True
            try:
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                yield part
                _sync_tree(part)
                name = f"{'sav' if savepoint else 'chk'}-{number}{'@' if label else ''}{label}"
                part.rename(self._folder / name)
                _sync(self._folder)
            finally:
                self._writing = False
                shutil.rmtree(part, ignore_errors=True)
            self._newest, self._completed_at = number, time.monotonic()
            if savepoint:
                self._answered += 1

    # -- the block -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Installs the signal handlers. Raises: UsageError outside the main thread, or if entered twice."""
        if threading.current_thread() is not threading.main_thread():
            raise _wrong("Enter a job in the main thread: it handles signals.", "Other threads may use it afterwards.")
        if self._handlers:
            raise _wrong("This job was entered already.", "Use the object of the first with block.")
        self._wake_up = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._handlers = {n: signal.signal(n, self._signalled) for n in self._signals}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:  # fmt: skip
        """Removes the signal handlers. After SIGTERM the program exits with code 143 where it would have exited with 0.
        If the ledger ordered the stop, the code is ignored. If someone else sent SIGTERM, 0 would mark the job as
        finished."""
        for number, before in self._handlers.items():
            signal.signal(number, before)  # type: ignore[arg-type]
        self._handlers = {}
        for end in self._wake_up:
            os.close(end)
        self._wake_up = (-1, -1)
        if self._stopping and (error is None or (isinstance(error, SystemExit) and not error.code)):
            raise SystemExit(STOPPED) from None

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _signalled(self, number: int, _: FrameType | None) -> None:
        # Runs between two instructions of the main thread, so it must not acquire a lock.
        if number == signal.SIGTERM:
            self._stopping = True
        else:
            self._asked += 1
        with suppress(BlockingIOError):  # a full pipe wakes the waiter too
            os.write(self._wake_up[1], b"x")

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake_up[0], 4096):
                pass


def _wrong(message: str, hint: str) -> UsageError:
    """A UsageError whose traceback shows the hint too, since a job has no command line that prints hints."""
    error = UsageError(message, hint=hint)
    error.add_note(hint)
    return error


def _complete(folder: Path) -> list[tuple[int, str]]:
    """(number, name) of the completed checkpoints in a folder; [] if there is no such folder."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return [(number, name) for name in names if (found := _NAME.match(name)) and (number := int(found[1])) <= ID_MAX]


def _sync_tree(folder: Path) -> None:
    """Fsyncs a folder and everything in it; the targets of links are not synced. Raises: OSError."""
    for path, _, names in os.walk(folder, onerror=_fail):
        for name in names:
            if stat.S_ISREG((file := Path(path, name)).lstat().st_mode):
                _sync(file)
        _sync(Path(path))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _fail(error: OSError) -> None:
    raise error
