"""Prints for people why a job is in its state, as `jobledger explain` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.cli.output import Column, Printer, age, brief, lines_of, utc
from ledger.cli.rendering import position, restore_text
from ledger.util.plain import to_plain

if TYPE_CHECKING:
    from ledger.reader.reading import Source


def explained(source: Source, job_id: str) -> dict[str, Any]:
    from ledger.reader.explaining import explained as explained_job

    row: dict[str, Any] = to_plain(explained_job(source, job_id))
    return row


def show(printer: Printer, row: dict[str, Any]) -> None:
    if not printer.for_people:
        printer.one(row, [Column("ID", "job_id")])
        return
    for line in lines(row):
        printer.text(line)


def lines(row: dict[str, Any]) -> list[str]:
    """The lines of an explanation for people: the answer first, then its reasons, then further facts."""
    inside = "in the recovery set" if row["in_recovery_set"] else "not in the recovery set"
    who = f"{row['namespace']}/{row['name']} ({row['job_id']})" if row["name"] else row["job_id"]
    out = [f"{who} is {row['state'] or 'not a job of the ledger'}, {inside}"]
    out += _reason(row)
    out.append(f"  rule {row['rule']}: {row['rule_text']}")
    if row["because"]:
        out += ["  decided by:", *(f"    {_evidence(item, row['partition'])}" for item in row["because"])]
    if row["waits_for"]:
        unled = "; no reconciler leads: jobledger leader tells more" if row.get("reconciler_leads") is False else ""
        out.append(f"  waits for: {row['waits_for']}{unled}")
    if row.get("reconciler_waits"):
        out.append(f"  the reconciler of this host waits: {row['reconciler_waits']}")
    if row.get("instance"):
        out.append(f"  its newest attempt is held by: {row['instance']}")
    if row.get("periodic"):
        out.append(f"  periodic savepoints: {row['periodic']}")
    out += _restore_points(row)
    if row["remarks"]:
        out += ["  remarks:", *(f"    {_remark(item, row['partition'])}" for item in row["remarks"])]
    out.append(_published(row))
    return out


#: States in which people want to know what went wrong.
_WRONG = ("QUARANTINED", "FAILING", "RESTARTING")


def _reason(row: dict[str, Any]) -> list[str]:
    """Why the job is in its state, then what went wrong, each once: the reason of a failed job ends with its cause,
    and the cause ends with the last lines that the job printed."""
    failures = row["failures"] if row["state"] in _WRONG else []
    if row["state"] == "RUNNING":  # why it is not in its first attempt
        return [_earlier(failure) for failure in row["failures"][:1]]
    reason = row["reason"]
    for failure in failures:
        if len(lines_of(failure["cause"])) > 1:
            reason = reason.replace(f": {failure['cause']}", "")
    first, *more = lines_of(reason) or [""]
    out = [f"  reason: {first}", *(f"    {line}" for line in more)] if reason else []
    for failure in failures:
        if failure["cause"] and failure["cause"] in reason:
            continue
        who = "by its runner's word" if failure["by_runner"] else "by the reconciler's verdict"
        ran = f" after {age(failure['ran_for_s'])}" if failure["ran_for_s"] else ""
        out.append(f"  attempt {failure['attempt']} {failure['outcome']}{ran}, {who}:")
        out += [f"    {line}" for line in lines_of(failure["cause"]) or ["no cause is known"]]
    printed = next((failure["attempt"] for failure in failures if failure["by_runner"]), None)
    if printed is not None:
        out.append(f"  what it printed: jobledger logs {row['job_id']} --attempt {printed}")
    return out


def _earlier(failure: dict[str, Any]) -> str:
    """How the last failed attempt ended, in brief."""
    ran = f" after {age(failure['ran_for_s'])}" if failure["ran_for_s"] else ""
    return f"  attempt {failure['attempt']} {failure['outcome']}{ran}: {brief(failure['cause']) or 'no cause is known'}"


def _restore_points(row: dict[str, Any]) -> list[str]:
    if not row["restore_points"]:
        needed = row["in_recovery_set"] or row["state"] == "QUARANTINED"
        return ["  restore points: none offered"] if needed else []
    points = [(point["restore_point"], point["origin"]) for point in row["restore_points"]]
    return ["  restore points, best first:", *(f"    {restore_text(p)}  {p['location']}  ({why})" for p, why in points)]


def _evidence(item: dict[str, Any], partition: int) -> str:
    if item["offset"] is None:
        return f"{item['register']} (not in the log)"
    who = " ".join(word for word in (item["actor"], f"epoch {item['epoch']}" if item["epoch"] else "") if word)
    by = who or item["source"] or "somebody who gave no name"
    return f"{item['register']}  at [{partition}]@{item['offset']}, {utc(item['time_s'])}{_other_clock(item)}, by {by}"


def _other_clock(item: dict[str, Any]) -> str:
    """The time by the writer's clock, if it differs from the append time by a second or more."""
    if item["ce_time_s"] is None or abs(item["ce_time_s"] - item["time_s"]) < 1.0:
        return ""
    return f" (by its writer's clock {utc(item['ce_time_s'])}{', implausibly ' + item['skew'] if item['skew'] else ''})"


def _remark(item: dict[str, Any], partition: int) -> str:
    mark = "" if item["ordinary"] else "anomaly: "
    effect = " (without effect)" if item["without_effect"] else ""
    return f"{mark}{_evidence(item, partition)}: {item['text']}{effect}"


def _published(row: dict[str, Any]) -> str:
    state = row["published_state"] or "no entry"
    behind = "" if row["as_of"] >= row["end"] else f"; the projector is behind: the job's records end at {row['end']}"
    differs = f"; the log says otherwise: {', '.join(row['differs'])}" if row["differs"] else ""
    as_of = position(row["as_of"], row["log_end"]) if "log_end" in row else row["as_of"]
    return f"  published: {state}, as of [{row['partition']}]@{as_of}{behind}{differs}"
