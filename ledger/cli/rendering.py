"""Prints jobs and records: turns entries, results and records into rows. JSON has the field names of the schemas;
tables have what people need."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledger.cli.output import Column, Format, Printer, age, brief, cell, counted, lines_of, short_digests, utc
from ledger.util.plain import to_plain

if TYPE_CHECKING:
    from ledger.core.model.facts import RestorePoint
    from ledger.core.model.recovery import RecoveryEntry
    from ledger.reader.publication_lag import Stamp
    from ledger.reader.reading import HistoryRecord, RetiredJob

#: States that need attention, and the words that the table shows behind a comma.
TROUBLES = ("QUARANTINED", "FAILING", "RUNNING,stalled", "CANCELLING,", "RESTARTING")
#: Seconds after which a job that is still being canceled, or given up, counts as trouble.
LONG_S = 60.0


def state_style(shown: str) -> str:
    """The colour of a state as the table shows it."""
    if shown.startswith(("QUARANTINED", "FAILING", "FAILED")):
        return "red"
    if "," in shown or shown == "RESTARTING":
        return "yellow"
    return "green" if shown == "RUNNING" else "dim" if shown in ("FINISHED", "CANCELED", "RETIRED") else ""


ID = Column("ID", "job_id", id=True)
NAME, NAMESPACE = Column("NAME", "name"), Column("NAMESPACE", "namespace")
STATE = Column("STATE", "state", style=state_style)
ATTEMPT, RESTORE, AGE = Column("ATTEMPT", "attempt"), Column("RESTORE", "restore"), Column("AGE", "age")
FAILURES, NEXT = Column("FAILURES", "failures", wide=True), Column("NEXT", "next", wide=True)
LABELS, WAITS = Column("LABELS", "labels", wide=True), Column("WAITS", "waits", wide=True)
#: At most twelve columns: more do not fit on a screen. `show` has the rest.
JOBS = [
    NAME, NAMESPACE, STATE, ATTEMPT, RESTORE, FAILURES, NEXT, LABELS, ID, Column("REASON", "reason", wide=True), WAITS, AGE,
]  # fmt: skip
#: One job, one line per column.
JOB = [
    NAME, NAMESPACE, STATE, ATTEMPT, RESTORE,
    Column("RUNNER", "runner"),
    Column("PRIORITY", "priority"),
    Column("SLOTS", "slots"),
    Column("REGION", "region"),
    FAILURES, NEXT,
    Column("STALLS", "stalls"),
    Column("INTENT", "intent"),
    LABELS,
    Column("REPLACES", "replaces"),
    Column("PUBLISHED", "record.time_s", utc),
    Column("CE_TIME", "record.ce_time_s", utc),
    Column("SKEW", "record.skew"),
    ID, WAITS, AGE,
]  # fmt: skip
RESTORE_POINT = [
    ID,
    Column("RESTORE", "restore"),
    Column("KIND", "kind"),
    Column("LOCATION", "location"),
    Column("SIZE", "size"),
]
NO_WAITS: Mapping[str, str] = {}
HISTORY = [
    Column("PARTITION", "partition", wide=True),
    Column("OFFSET", "offset"),
    Column("TIME", "time_s", time=True),
    Column("CE_TIME", "ce_time_s", utc, wide=True),
    Column("SKEW", "skew", wide=True),
    Column("REGISTER", "register", short=short_digests),
    Column("FACT", "fact", rest=True),
    Column("ACTOR", "actor", spare=1),
    Column("EPOCH", "epoch", spare=2),
    Column("EVENT", "event_id", wide=True),
    Column("SOURCE", "source", wide=True),
    Column("SEQUENCE", "sequence", wide=True),
]


def entry_row(entry: RecoveryEntry, stamp: Stamp | None = None) -> dict[str, Any]:
    """A row for an entry: the fields of its schema, and `record`: the record that published the entry, if known."""
    row: dict[str, Any] = to_plain(entry)
    return row if stamp is None else {**row, "record": to_plain(stamp)}


def retired_row(retired: RetiredJob) -> dict[str, Any]:
    """A row for a retired job: its id and state, and the fields of its JobResult."""
    return {"job_id": retired.job_id, "state": retired.state, **to_plain(retired.result)}


def known_row(known: RecoveryEntry | RetiredJob) -> dict[str, Any]:
    from ledger.core.model.recovery import RecoveryEntry

    return entry_row(known) if isinstance(known, RecoveryEntry) else retired_row(known)


def record_row(record: HistoryRecord) -> dict[str, Any]:
    row: dict[str, Any] = to_plain(record)
    return row


def jobs(
    printer: Printer, rows: Iterable[dict[str, Any]], empty: str, waits: Mapping[str, str] = NO_WAITS,
    reasons: bool = False, now_s: float | None = None, sort: str | None = None, known: Iterable[str] = (),
) -> None:  # fmt: skip
    """Prints a list of jobs. -o name prints ids, since names need not be unique.

    waits: job id -> what the job waits for, from the reconciler of this host; for people, since entries do not have it.
    reasons: show the reasons of states in brief, also in a narrow table. now_s: the moment of the list, in seconds
    since the epoch; None = now. sort: a key of `SORTS`; None = jobs in trouble first for people, unsorted for programs.
    known: as in `Printer.rows`."""
    at_s = time.time() if now_s is None else now_s
    if sort is not None or printer.for_people:
        rows = sorted(rows, key=lambda row: SORTS[sort or "trouble"](row, at_s))
    if printer.for_people:
        printer.rows([_for_people(row, waits, at_s) for row in rows], _columns(reasons), empty=empty, known=known)
    else:
        printer.rows(rows, [ID], empty=empty)


def _state_shown(row: Mapping[str, Any], now_s: float) -> str:
    """The state, and behind a comma what is wrong with it."""
    if row.get("retired"):
        return "RETIRED"
    state, record = str(row["state"]), row.get("record") or {}
    if row.get("stalled"):
        return f"{state},stalled"
    since_s = now_s - record.get("time_s", now_s)
    return f"{state},{age(since_s)}" if state in ("CANCELLING", "FAILING") and since_s > LONG_S else state


def _trouble(row: Mapping[str, Any], now_s: float) -> tuple[int, int, str]:
    """Worst first, jobs that are over last, then retired jobs; equal ones by id."""
    shown = _state_shown(row, now_s)
    rank = next((at for at, start in enumerate(TROUBLES) if shown.startswith(start)), len(TROUBLES))
    over = ("attempts" in row) + (row["state"] in ("FINISHED", "CANCELED", "FAILED"))
    return over, rank, row["job_id"]


def _youngest(row: Mapping[str, Any], _now_s: float) -> tuple[bool, float, str]:
    made = submitted_at(row["job_id"])
    return made is None, -(made or 0.0), row["job_id"]


#: Value of `list --sort` -> the sort key of a row.
SORTS: dict[str, Callable[[Mapping[str, Any], float], Any]] = {
    "trouble": _trouble,
    "name": lambda row, _: (row.get("name") or "", row["job_id"]),
    "namespace": lambda row, _: (row.get("namespace") or "", row.get("name") or "", row["job_id"]),
    "state": lambda row, _: (row["state"], row["job_id"]),
    "age": _youngest,
    "id": lambda row, _: row["job_id"],
}


def one_job(printer: Printer, row: dict[str, Any], waits: Mapping[str, str] = NO_WAITS, now_s: float | None = None) -> None:
    """Prints one job: its entry, or its result if it is retired. waits, now_s: as in `jobs`."""
    if printer.for_people:
        columns = [replace(column, wide=False) for column in JOB]
        shown = _for_people(row, waits, now_s)
        if row["state"] == "QUARANTINED":
            verbs = (f"jobledger {verb} {row['job_id']} --reason TEXT" for verb in ("retry", "cancel"))
            shown["waits"] = f"an operator: {', or '.join(verbs)}"
            columns.append(Column("LOGS", "logs"))
            shown["logs"] = f"jobledger logs {row['job_id']}" if row.get("known") else None
        if row.get("savepoint_at") is not None:
            columns.append(Column("SAVEPOINTS", "periodic"))
            shown["periodic"] = _periodic(row, shown["savepoint"])
        if row.get("log"):
            columns += [Column("LOG SAID", "log", _log_said), Column("LEADER", "log", _leader)]
        if row.get("instance"):
            columns.append(Column("INSTANCE", "instance"))
        if row.get("together"):
            columns.append(Column("TOGETHER", "together", _together))
        printer.one(shown, [*columns, Column("REASON", "reason", _in_full)])
    else:
        printer.one(row, [ID])


def one_restore_point(printer: Printer, job_id: str, point: RestorePoint) -> None:
    """Prints a restore point of a job. The field `restore` has the form that `retry --from` takes."""
    printer.one({"job_id": job_id, "restore": str(point), **to_plain(point)}, RESTORE_POINT)


def job_change(
    printer: Printer, row: dict[str, Any], shown: dict[str, dict[str, Any]], reasons: bool = False
) -> None:  # fmt: skip
    """Prints one change of a job, as one line of a stream. shown: job id -> the last printed line, updated here; an
    equal line is not printed again. reasons: as in `jobs`."""
    if not printer.for_people:
        printer.stream(row, [ID])
        return
    line = _for_people(row)
    columns = _columns(reasons)
    visible = [column for column in columns if column.key != "age" and (_wide(printer) or not column.wide)]
    seen = {column.key: column.of(line) for column in visible}
    if shown.get(row["job_id"]) != seen:
        shown[row["job_id"]] = seen
        printer.stream(line, columns)


def _columns(reasons: bool) -> list[Column]:
    """reasons: in brief, and without the columns that would leave no room for them."""
    if not reasons:
        return JOBS
    reason = Column("REASON", "reason", lambda text: brief(text or ""), text=True)
    return [reason if column.key == "reason" else column for column in JOBS]


def _periodic(row: dict[str, Any], at: str) -> str:
    """The interval, and when the next one is due."""
    policy = row["savepoint_policy"]
    keeps = f", keeps {policy['keep_max']}" if policy["keep_max"] else ""
    asked = ", one is asked for" if any(ask.startswith("periodic-") for ask in row["asks"]) else ""
    return f"every {policy['interval_s']:g} s{keeps}{asked}, the next {'is due' if at == 'due' else f'at {at}'}"


def _log_said(said: dict[str, Any]) -> str:
    """The log's answer at that moment, as `beside.LogSaid`."""
    entry = said["entry"]
    what = f"{entry['state']}/{entry['attempt']}" if entry else "no entry"
    return f"{what}; what was published differs: {', '.join(said['differs'])}" if said["differs"] else f"{what}, the same"


def position(as_of: int, end: int) -> str:
    """The leader's position in a past partition, as `OFFSET of END`. A position beyond the end is shown as the end: the
    leader's position goes beyond the end of a transaction too."""
    return f"{min(as_of, end)} of {end}"


def _leader(said: dict[str, Any]) -> str:
    behind = f"{counted(said['behind'], 'offset')} behind" if said["behind"] else "not behind"
    return f"had come to {position(said['as_of'], said['end'])}, {behind}"


def _together(record: dict[str, Any]) -> str:
    """How its last attempt started with other jobs of its region."""
    beside = ", ".join(f"{job_id} {n}" for job_id, n in record["beside"].items())
    return "; ".join(part for part in (record["reason"], f"beside {beside}" if beside else "") if part) or "-"


def _in_full(text: str | None) -> str:
    """Every line of a reason: its last lines are the last that the job printed."""
    return "\n".join(lines_of(text or "")) or "-"


def _wide(printer: Printer) -> bool:
    return printer.form is Format.wide


def history(printer: Printer, rows: Iterable[dict[str, Any]], columns: Sequence[Column] = HISTORY) -> None:
    printer.rows(map(_record_for_people, rows) if printer.for_people else rows, columns)


def history_line(printer: Printer, row: dict[str, Any]) -> None:
    printer.stream(_record_for_people(row) if printer.for_people else row, HISTORY)


def submitted_at(job_id: str) -> float | None:
    """The time in a job's id, in seconds since the epoch; default ids (UUIDv7) contain one. None for other ids."""
    try:
        found = uuid.UUID(job_id)
    except ValueError:
        return None
    return (found.int >> 80) / 1000 if found.version == 7 else None


def restore_text(point: dict[str, Any]) -> str:
    """A restore point in the form that `--from` takes; a restore point from outside the ledger as its location."""
    return f"{point['attempt']}/{point['id']}" if point["attempt"] else str(point["location"])


def _for_people(row: dict[str, Any], waits: Mapping[str, str] = NO_WAITS, now_s: float | None = None) -> dict[str, Any]:
    made, at_s = submitted_at(row["job_id"]), time.time() if now_s is None else now_s
    points = row.get("restore_points") or ([row["restore_point"]] if row.get("restore_point") else [])
    return {
        **row,
        "state": _state_shown(row, at_s),
        "attempt": row.get("attempt", row.get("attempts")),
        "restore": restore_text(points[0]) if points else _external(row),
        "next": _next(row),
        "stalls": None if row.get("stalls_at") is None else utc(row["stalls_at"]),
        "savepoint": _next_savepoint(row),
        "intent": row["intent"]["kind"] if row.get("intent") else None,
        "waits": waits.get(row["job_id"]),
        "age": None if made is None else age(max(0.0, at_s - made)),
    }


def _external(row: Mapping[str, Any]) -> str | None:
    """The progress of a job that restores by itself; None for other jobs."""
    if row.get("restore") != "EXTERNAL":
        return None
    return f"external,{restore_text(row['marker'])}" if row.get("marker") else "external"


def _next_savepoint(row: dict[str, Any]) -> str | None:
    """When the next periodic savepoint is due."""
    if row.get("savepoint_at") is None:
        return None
    return "due" if row.get("savepoint_due") else utc(row["savepoint_at"])


def _next(row: dict[str, Any]) -> str | None:
    if not row.get("next_attempt"):
        return None
    if row.get("due") or row.get("due_at") is None:
        return f"{row['next_attempt']}"
    return f"{row['next_attempt']}@{utc(row['due_at'])}"


def _record_for_people(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("run"):
        fact = row["run"]
    elif row["tombstone"]:
        fact = "(removed)"
    elif row.get("redacted"):
        fact = "(redacted)"
    elif not row["readable"]:
        fact = "(can't be read)"
    else:
        fact = " ".join(f"{key}={_short(value)}" for key, value in (row["fact"] or {}).items() if _telling(key, value))
    doubt = f"(its clock: {utc(row['ce_time_s'])}, {row['skew']})" if row["skew"] else ""
    return {**row, "fact": f"{doubt} {fact}".strip()}


_NOT_TELLING = (
    "graph", "restart_policy", "digest", "checkpoint_retention", "labels", "failure_times", "recorded_at", "stall_policy",
    "replacement", "savepoint_policy",
)  # fmt: skip


def _telling(key: str, value: Any) -> bool:
    """The fields that fit on a line: no defaults, and no nested values."""
    return key not in _NOT_TELLING and value not in (None, "", 0, 0.0, False, [], {})


def _short(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, dict) and "restore_point" in one for one in value):
        text = ", ".join(f"{restore_text(one['restore_point'])}: {one['reason']}" for one in value)
    else:
        text = cell(value) if not isinstance(value, dict) else _of_parts(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _of_parts(value: dict[str, Any]) -> str:
    """A restore point, or how an attempt started with other jobs of its region."""
    return restore_text(value) if "location" in value else value.get("reason") or "…"
