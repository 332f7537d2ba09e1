"""How an explanation reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.cli.output import Column, Printer, utc
from ledger.cli.showing import restore_text
from ledger.plain import to_plain

if TYPE_CHECKING:
    from ledger.reading import Source


def explained(source: Source, job_id: str) -> dict[str, Any]:
    from ledger.explaining import explained as explained_job

    row: dict[str, Any] = to_plain(explained_job(source, job_id))
    return row


def show(printer: Printer, row: dict[str, Any]) -> None:
    if not printer.for_people:
        printer.one(row, [Column("ID", "job_id")])
        return
    for line in lines(row):
        printer.text(line)


def lines(row: dict[str, Any]) -> list[str]:
    """The answer first, then its reasons, then what else there is to know."""
    inside = "in the recovery set" if row["in_recovery_set"] else "not in the recovery set"
    out = [f"{row['job_id']} is {row['state'] or 'not a job of the ledger'}, {inside}"]
    if row["reason"]:
        out.append(f"  reason: {row['reason']}")
    out.append(f"  rule {row['rule']}: {row['rule_text']}")
    if row["because"]:
        out += ["  decided by:", *(f"    {_evidence(item, row['partition'])}" for item in row["because"])]
    if row["waits_for"]:
        out.append(f"  waits for: {row['waits_for']}")
    if row.get("reconciler_waits"):
        out.append(f"  the reconciler of this host waits: {row['reconciler_waits']}")
    out += _restore_points(row)
    if row["remarks"]:
        out += ["  remarks:", *(f"    {_remark(item, row['partition'])}" for item in row["remarks"])]
    out.append(_published(row))
    return out


def _restore_points(row: dict[str, Any]) -> list[str]:
    if not row["restore_points"]:
        return ["  restore points: none offered"] if row["in_recovery_set"] else []
    points = [(point["restore_point"], point["origin"]) for point in row["restore_points"]]
    return ["  restore points, best first:", *(f"    {restore_text(p)}  {p['location']}  ({why})" for p, why in points)]


def _evidence(item: dict[str, Any], partition: int) -> str:
    if item["offset"] is None:
        return f"{item['register']} (not in the log)"
    who = " ".join(word for word in (item["actor"], f"epoch {item['epoch']}" if item["epoch"] else "") if word)
    by = who or item["source"] or "somebody who gave no name"
    return f"{item['register']}  at [{partition}]@{item['offset']}, {utc(item['time_s'])}, by {by}"


def _remark(item: dict[str, Any], partition: int) -> str:
    mark = "" if item["ordinary"] else "anomaly: "
    effect = " (without effect)" if item["without_effect"] else ""
    return f"{mark}{_evidence(item, partition)}: {item['text']}{effect}"


def _published(row: dict[str, Any]) -> str:
    state = row["published_state"] or "no entry"
    behind = "" if row["as_of"] >= row["end"] else f"; the projector is behind: the job's records end at {row['end']}"
    return f"  published: {state}, as of [{row['partition']}]@{row['as_of']}{behind}"
