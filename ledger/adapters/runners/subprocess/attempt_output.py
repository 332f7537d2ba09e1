"""The output of an attempt, read from its log files while the job appends to them and the supervisor rotates and
truncates them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ledger.adapters.runners.subprocess.folders import log_paths
from ledger.adapters.runners.subprocess.log_retention import is_past, log_folder
from ledger.adapters.runners.subprocess.supervisor.files import read_json
from ledger.errors import NotFound
from ledger.ports import Clock

STREAMS = ("stdout", "stderr")
CHUNK = 1 << 16
POLL_S = 0.2
#: How long a follower waits for the first log file: the attempt is recorded before its folder is made.
APPEAR_S = 15.0


def read(folder: Path, job_id: str, n: int, follow: Clock | None = None) -> Iterator[tuple[str, bytes]]:
    """The output of attempt n as (stream, bytes): stdout first, each stream in order, including rotated files.

    folder: the folder of the agent. follow: a clock; keep reading new output, both streams in turn, until the attempt
    is over; None: stop at the end. Output between our last read and a rotation is skipped. Raises: NotFound if this
    host has no logs of the attempt."""
    deadline = None if follow is None else follow.monotonic() + APPEAR_S
    while not (found := log_paths(folder, job_id, n)):
        if follow is None or deadline is None or follow.monotonic() > deadline:
            raise NotFound(f"This host has no logs of attempt {n} of {job_id}.", hint="Read them on the host of its agent.")
        follow.sleep(POLL_S)
    logs = log_folder(folder, job_id, n)
    positions = dict.fromkeys(STREAMS, 0)
    for stream in STREAMS:
        for path in found:
            if path.name.startswith(f"{stream}.log."):
                for data, _ in _from(path, 0):
                    yield stream, data
        for data, end in _from(logs / f"{stream}.log", 0):
            positions[stream] = end
            yield stream, data
    while follow is not None:
        # Check this before reading: all output from before the end is in the files by then.
        over = is_past(folder, logs) or _over(logs.parent)
        idle = True
        for stream in STREAMS:
            for data, end in _from(logs / f"{stream}.log", positions[stream]):
                idle, positions[stream] = False, end
                yield stream, data
        if over:
            return
        if idle:
            follow.sleep(POLL_S)


def _from(path: Path, position: int) -> Iterator[tuple[bytes, int]]:
    """(bytes, position after them). A file that was truncated is read from its beginning."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size < position:
                position = 0
            file.seek(position)
            while data := file.read(CHUNK):
                position += len(data)
                yield data, position
    except FileNotFoundError:
        return


def _over(attempt: Path) -> bool:
    """Whether the agent knows the end of the attempt. An attempt whose folder is gone is over too."""
    try:
        progress = read_json(str(attempt / "progress.json"))
    except ValueError:  # damaged: the agent will write it again
        progress = None
    return not attempt.is_dir() or bool(progress and progress.get("ended"))
