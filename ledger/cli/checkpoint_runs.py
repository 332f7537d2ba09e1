"""Folds each run of checkpoint records into one line, since a job with a checkpoint a second would fill every screen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Annotated, Any

import typer

from ledger.cli.output import counted, utc

Row = dict[str, Any]
AllRecords = Annotated[
    bool, typer.Option("--all-records", help="One line for each checkpoint record, added or removed.", show_default=False)
]
NOTE = "runs of checkpoints are folded: --all-records shows each record"


def folded(rows: Iterable[Row], state: Callable[[Row], Hashable] | None = None) -> list[Row]:
    """Rows of records (as `rendering.record_row`, of one job or with job_id), with each run of checkpoints as one row.

    A run belongs to one job and attempt, ends at any other record of the job, and holds no savepoint. In the row of a
    run, `run` describes the run in words, and the other fields are of its first record. state: fields that no record of
    a run may change."""
    found: list[list[Row]] = []
    open_runs: dict[Hashable, dict[tuple[str, bool], list[Row]]] = {}
    for row in rows:
        job = row.get("job_id")
        run = _run_of(row)
        if run is None:
            open_runs.pop(job, None)
            found.append([row])
            continue
        runs = open_runs.setdefault(job, {})
        kept = runs.get(run)
        if kept is not None and (state is None or state(kept[-1]) == state(row)):
            kept.append(row)
        else:
            runs[run] = [row]
            found.append(runs[run])
    return [_one(run) if len(run) > 1 else run[0] for run in found]


def _run_of(row: Mapping[str, Any]) -> tuple[str, bool] | None:
    """The run that a record belongs to: attempt, and whether it is a removal; None: it is a row by itself."""
    kind, _, rest = row["register"].partition("/")
    if kind != "checkpoint" or row["skew"] or row.get("redacted") or not row["readable"]:
        return None
    if not row["tombstone"] and (row["fact"] or {}).get("kind") != "CHECKPOINT":
        return None
    return rest.partition("/")[0], row["tombstone"]


def _one(run: list[Row]) -> Row:
    first, last = run[0], run[-1]
    attempt, ids = first["register"].split("/")[1], [row["register"].split("/")[2] for row in run]
    what = f"{len(run)} removed" if first["tombstone"] else counted(len(run), "checkpoint")
    summary = {"register": f"checkpoint/{attempt}/{ids[0]}…{ids[-1]}", "run": f"{what}, the last at {utc(last['time_s'])}"}
    return {**first, **summary, "after": last.get("after")}
