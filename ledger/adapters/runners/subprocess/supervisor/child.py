"""Starts the job of an attempt. The job is held until its identity is on disk, and never runs without a supervisor."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

from .procs import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
ERROR_BYTES_MAX = 4096
PATH_CHARS_MAX = 1000
PERMANENT, TRANSIENT = b"P", b"T"


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Makes this process the parent of orphaned descendants, so that no process of the job escapes."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


class Child:
    """A job that is forked and held. `release` lets the job run. If the supervisor dies before that, the job ends
    without having run."""

    def __init__(self, attempt: dict[str, Any], stdout: int, stderr: int) -> None:
        self._go, self._error = -1, -1
        held, self._go = os.pipe()
        self._error, failed = os.pipe()
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._go)
                _become(attempt, supervisor, held, stdout, stderr)
            except BaseException as error:
                os.write(failed, _error_text(error, attempt)[:ERROR_BYTES_MAX])
            finally:
                os._exit(127)
        os.close(held)
        os.close(failed)

    def release(self) -> tuple[str, bool]:
        """Lets the job run. Returns why its command can't be executed, and whether that is permanent; "" if the command
        is executed."""
        try:
            os.write(self._go, b"x")
        except BrokenPipeError:
            pass  # the child has ended already, and may have written why
        os.close(self._go)
        said = b""
        while more := os.read(self._error, ERROR_BYTES_MAX):
            said += more
        os.close(self._error)
        return said[1:].decode("utf-8", "replace"), said[:1] == PERMANENT


def _error_text(error: BaseException, attempt: dict[str, Any]) -> bytes:
    """The bytes that `release` reads: one byte that says whether another start could help, then the reason.

    A name is looked up in the PATH that the job always has, and a relative path in the job's own files. If they are
    missing once, they stay missing. An absolute path may be on a disk that comes back."""
    command = str(attempt["command"][0])
    if isinstance(error, FileNotFoundError) and "/" not in command and not _found_in_path(command, attempt):
        text = f"{command} is not in PATH ({attempt['environment'].get('PATH', os.defpath)[:PATH_CHARS_MAX]})"
        return PERMANENT + text.encode("utf-8", "replace")
    if isinstance(error, FileNotFoundError) and "/" in command and not (os.path.isabs(command) or os.path.lexists(command)):
        return PERMANENT + f"there is no file {command} in the job graph".encode("utf-8", "replace")
    return TRANSIENT + f"{type(error).__name__}: {error}".encode("utf-8", "replace")


def _found_in_path(command: str, attempt: dict[str, Any]) -> bool:
    folders = attempt["environment"].get("PATH", os.defpath).split(os.pathsep)
    return any(os.path.lexists(os.path.join(folder, command)) for folder in folders)


def _become(attempt: dict[str, Any], supervisor: int, held: int, stdout: int, stderr: int) -> None:
    os.setsid()  # a session and a process group of its own
    die_with_parent()
    if os.getppid() != supervisor:  # the supervisor died before the line above took effect
        os._exit(127)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    if not os.read(held, 1):
        os._exit(127)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except OSError:
                continue  # the C library reserves two signals for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.chdir(attempt["graph_dir"])
    if memory := attempt.get("memory_bytes"):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    command = attempt["command"]
    os.execvpe(command[0], command, attempt["environment"])
