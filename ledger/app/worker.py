"""The library for jobs in Python: the restore point to start from, atomic checkpoints, requests to stop or to save.

Standard library only, and no Kafka: the job speaks with the agent through folders and signals. Source: docs/JOBS.md.
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
#: Exit code of a job that was asked to stop, as shells say it of SIGTERM: never 0, which means finished for ever.
STOPPED = 128 + signal.SIGTERM
_NAME = re.compile(r"(?:chk|sav)-(0|[1-9][0-9]{0,18})(?:@[A-Za-z0-9._:+-]{1,128})?\Z")
_LABEL = re.compile(r"[A-Za-z0-9._:+-]{1,128}\Z")


def job(*, fallback: Path | str | None = None, savepoints: bool = True) -> RunningJob:
    """The job that this program is, as a context manager: `with ledger.job() as job: …`.

    fallback: the folder for checkpoints if the ledger did not start this program, so that it can be tried by hand. The
    newest checkpoint in it is then what `restored` names, and nobody deletes old ones. None: that is an error.
    savepoints: False: it makes none, so the ledger does not ask for any (SIGUSR1 has no handler), nor wait for one.
    Raises: UsageError if the ledger did not start this program and there is no fallback.
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
            "Submit it with jobledger submit. To try it by hand: ledger.job(fallback=FOLDER).",
        )
    folder_by_hand = Path(fallback).absolute()
    folder_by_hand.mkdir(parents=True, exist_ok=True)
    newest = max(_complete(folder_by_hand), default=None)
    return RunningJob(folder_by_hand, None if newest is None else folder_by_hand / newest[1], signals)


class RunningJob:
    """One attempt of a job, seen from inside. Made by `ledger.job()`.

    id: of the job; attempt: its number, from 1. Both are "" and 0 if the ledger did not start this program.
    restored: the file or folder to go on from, to be read and not changed; None: from scratch.
    Checkpoints may be made by any thread. The block itself must be entered in the main thread: it handles signals.
    """

    def __init__(
        self, folder: Path, restored: Path | None, signals: Iterable[signal.Signals], job_id: str = "", attempt: int = 0
    ) -> None:
        self.id, self.attempt, self.restored = job_id, attempt, restored
        self._signals = signals
        self._folder = folder
        self._newest = max((number for number, _ in _complete(folder)), default=-1)
        # Numbers have to rise within an attempt. Over attempts they need not; they are easier to read if they do.
        found = _NAME.match(restored.name) if restored is not None else None
        self._follows = int(found[1]) if found else 0
        self._lock = threading.RLock()
        self._writing = False
        self._completed_at = time.monotonic()
        self._stopping = False
        self._asked = self._answered = 0  # savepoints: one is counted by signals, one under the lock
        self._handlers: dict[signal.Signals, object] = {}
        self._wake_up = (-1, -1)

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether SIGTERM came: write a last checkpoint and leave the block. SIGKILL follows after the grace (10 s if the
        job was not submitted with another)."""
        return self._stopping

    @property
    def savepoint_asked(self) -> bool:
        """Whether a savepoint is asked for (SIGUSR1): the next checkpoint will be one."""
        return self._asked > self._answered

    def checkpoint_due(self, every_s: float) -> bool:
        """Whether a checkpoint should be made now: the newest is `every_s` seconds old, a savepoint is asked for, or the
        job has to stop."""
        return self._stopping or self.savepoint_asked or time.monotonic() - self._completed_at >= every_s

    def wait(self, seconds: float) -> None:
        """Sleeps; returns at once if the job has to stop or a savepoint is asked for. `time.sleep` would sleep on."""
        until = time.monotonic() + seconds
        while not (self._stopping or self.savepoint_asked) and (left := until - time.monotonic()) > 0:
            if self._wake_up[0] < 0:
                raise _wrong("A job waits only inside its with block.", "Use: with ledger.job() as job: …")
            select.select([self._wake_up[0]], [], [], left)
            self._drain()

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    @contextmanager
    def checkpoint(self, number: int | None = None, *, label: str = "") -> Iterator[Path]:
        """A new folder to write the state into; when the block ends it is a completed checkpoint, on disk.

        Files and folders are fsynced and renamed to `chk-<number>`, or to `sav-<number>` if a savepoint is asked for. If
        the block raises, the folder is removed and no checkpoint was made.
        number: above that of the last one; None: the next. label: names the cut through several jobs that it belongs to.
        Raises: UsageError: a number that does not rise, a wrong label, or a checkpoint within a checkpoint; OSError.
        """
        if label and not _LABEL.match(label):
            raise UsageError(f"{label!r} is no label: 1 to 128 of A-Z, a-z, 0-9 and . _ : + -")
        with self._lock:
            if self._writing:
                raise _wrong("A checkpoint is begun within another one.", "End the with block of the first before.")
            number = max(self._newest, self._follows) + 1 if number is None else number
            if not self._newest < number <= ID_MAX:
                raise _wrong(
                    f"Checkpoint {number} can't follow checkpoint {self._newest}: numbers rise, up to {ID_MAX}.",
                    "Leave the number out, or take a larger one.",
                )
            # The state is written from here on, so it answers what was asked before.
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
        """Handles its signals from here on. Raises: UsageError outside the main thread, or if entered twice."""
        if threading.current_thread() is not threading.main_thread():
            raise _wrong("A job is entered in the main thread: it handles signals.", "Other threads may use it then.")
        if self._handlers:
            raise _wrong("This job was entered already.", "Share the one that is there.")
        self._wake_up = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._handlers = {n: signal.signal(n, self._signalled) for n in self._signals}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:  # fmt: skip
        """After SIGTERM the program exits with code 143 where it would have exited with 0. If the ledger ordered the stop,
        the code means nothing; if somebody else did, 0 would mean that the job is finished for ever."""
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
        # Between two instructions of the main thread: no lock can be taken here.
        if number == signal.SIGTERM:
            self._stopping = True
        else:
            self._asked += 1
        with suppress(BlockingIOError):  # a full pipe wakes up as well
            os.write(self._wake_up[1], b"x")

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake_up[0], 4096):
                pass


def _wrong(message: str, hint: str) -> UsageError:
    """An error whose traceback shows the hint too: a job has no command line that would."""
    error = UsageError(message, hint=hint)
    error.add_note(hint)
    return error


def _complete(folder: Path) -> list[tuple[int, str]]:
    """(number, name) of the completed checkpoints in a folder; [] if it is not there."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return [(number, name) for name in names if (found := _NAME.match(name)) and (number := int(found[1])) <= ID_MAX]


def _sync_tree(folder: Path) -> None:
    """Everything in it is on disk. Links count as names only. Raises: OSError."""
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
