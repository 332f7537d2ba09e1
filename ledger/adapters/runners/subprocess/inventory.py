"""The data that the agent's folder holds for jobs, including jobs that the agent has forgotten. Used for garbage
collection."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ledger.adapters.runners.subprocess.supervisor import checkpoints
from ledger.core.model.facts import CheckpointKind, RestorePoint
from ledger.core.model.registers import is_job_id
from ledger.ports import RunnerStorage


def kept_in(folder: Path, alive: Mapping[str, Sequence[int]], now: float) -> Iterator[RunnerStorage]:
    """The stored data of each job. folder: the folder of all jobs. alive: job id -> numbers of the running attempts.
    now: seconds since the epoch. Files may appear and disappear meanwhile.

    Raises: OSError if the folder itself can't be read."""
    if not folder.exists():
        return
    for path in sorted(folder.iterdir()):
        if is_job_id(path.name) and path.is_dir():
            yield _kept(path, tuple(alive.get(path.name, ())), now)


def _kept(folder: Path, alive: tuple[int, ...], now: float) -> RunnerStorage:
    points: list[RestorePoint] = []
    saved: list[RestorePoint] = []
    point_size = rest_size = files = 0
    newest = _changed(folder)
    for parent, folders, names in os.walk(folder):
        path = Path(parent)
        newest = max(newest, _changed(path))
        if (n := _attempt_of(folder, path)) is None:
            files += len(names)
            for name in names:
                newest = max(newest, _changed(path / name))
                rest_size += _size(path / name)
            continue
        for name in (*folders, *names):
            if (found := checkpoints.parse(name)) is None:
                files += 1  # a checkpoint that the job has not completed
                rest_size += _size(path / name)
            elif name.startswith("sav-"):
                saved.append(_savepoint(n, found[0], path / name))
            else:
                points.append(RestorePoint(n, found[0], str(path / name), kind=CheckpointKind.CHECKPOINT))
                point_size += _size(path / name)
        folders.clear()
    rest = files > 0 or not (points or saved)
    age_s = max(0.0, now - newest)
    return RunnerStorage(folder.name, str(folder), age_s, rest, rest_size, alive, tuple(points), point_size, tuple(saved))


def _savepoint(n: int, number: int, path: Path) -> RestorePoint:
    return RestorePoint(n, number, str(path), _size(path), kind=CheckpointKind.SAVEPOINT)


def _attempt_of(folder: Path, path: Path) -> int | None:
    """The number of the attempt whose checkpoint folder `path` is; None for any other folder."""
    match path.relative_to(folder).parts:
        case ("attempts", n, "checkpoints") if n.isascii() and n.isdigit():
            return int(n)
    return None


def _changed(path: Path) -> float:
    with suppress(OSError):
        return path.lstat().st_mtime
    return 0.0


def _size(path: Path) -> int:
    with suppress(OSError):
        return checkpoints.size_of(str(path))
    return 0
