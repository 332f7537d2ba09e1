"""Keeps the logs of past jobs. When the agent forgets a job, the logs of its attempts stay, for a bounded number of
jobs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

PAST = "past-logs"
PAST_JOBS_MAX = 1000


def log_folder(folder: Path, job_id: str, n: int) -> Path:
    """The folder of an attempt's log files: in the attempt's run folder, or among the past logs. folder: the agent's
    folder."""
    live = folder / "jobs" / job_id / "attempts" / str(n) / "logs"
    past = folder / PAST / job_id / str(n)
    return past if past.exists() and not live.exists() else live


def attempts_with_logs(folder: Path, job_id: str) -> list[int]:
    """The numbers of the job's attempts that have log files in the agent's folder, live or past; ascending."""
    live, past = (folder / "jobs" / job_id / "attempts").glob("*/logs"), (folder / PAST / job_id).glob("*")
    names = [*(path.parent.name for path in live), *(path.name for path in past)]
    return sorted({int(name) for name in names if name.isascii() and name.isdigit()})


def is_past(folder: Path, logs: Path) -> bool:
    return logs.is_relative_to(folder / PAST)


def keep(folder: Path, job_id: str, jobs_max: int = PAST_JOBS_MAX, held: Callable[[str], bool] = lambda _: False) -> None:
    """Moves the logs of all attempts of a job to the past logs. Then deletes the logs of the oldest past jobs beyond
    jobs_max; jobs for which `held` returns True do not count and are not deleted. The call may be repeated. Raises:
    OSError."""
    for logs in sorted((folder / "jobs" / job_id / "attempts").glob("*/logs")):
        target = folder / PAST / job_id / logs.parent.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            logs.rename(target)
    past = [path for path in (folder / PAST).glob("*") if path.is_dir() and not held(path.name)]
    for oldest in sorted(past, key=lambda path: path.stat().st_mtime)[: max(0, len(past) - jobs_max)]:
        shutil.rmtree(oldest, ignore_errors=True)
