"""`jobledger archive query`: runs a SQL query on the archive."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.options import Context, bundle_verb
from ledger.cli.output import Column, Format, Printer, cell, to_json, utc

if TYPE_CHECKING:
    from ledger.archive.query.querying import SealedPartition


class Form(StrEnum):
    table = "table"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"


Sql = Annotated[str, typer.Argument(metavar="SQL", help="SQL of DuckDB; - reads it from standard input.")]
Output = Annotated[Form, typer.Option("--output", "-o", help="Format of the answer.")]


@bundle_verb
def query(world: Context, sql: Sql, output: Output = Form.table) -> None:
    """Query the archive in SQL: every record, and the published entries of any moment.

    Views: events, recovery, attempts, checkpoints, recovery_records, sealed, expired, expired_jobs. Macros:
    recovery_set_at(T), entries_at(T), left_out_at(T): the jobs that the first two leave out, because records of theirs
    have expired. DESCRIBE events lists the columns. Needs neither Kafka nor a JVM; a query reads the archive and
    nothing else.
    """
    from ledger.app import archives

    text = sys.stdin.read() if sql == "-" else sql
    with world.printer.progress("reading the archive"), archives.queries(world.ledger, world.bundle) as opened:
        answer = opened.ask(text)
        if output is Form.csv:
            _csv(answer.columns, answer.rows)
        elif output is Form.table:
            columns = [Column(name, str(number), _cell) for number, name in enumerate(answer.columns)]
            rows = ({str(number): value for number, value in enumerate(row.values())} for row in answer.rows)
            world.printer.rows(rows, columns, empty="no rows")
        else:
            Printer(Format(output)).rows(answer.rows, [])
        left_out = [*opened.mixed_folders, *opened.left_out(text)]
    for line in left_out:
        world.printer.note(line)
    world.printer.note(_reach(opened.sealed))


def register(archive: typer.Typer) -> None:
    archive.command("query")(query)


def _cell(value: Any) -> str:
    return cell(to_json(value)) if isinstance(value, dict | list) else cell(value)


def _csv(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    """RFC 4180; null is empty, nested values are JSON."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([to_json(value) if isinstance(value, dict | list | bool) else value for value in row.values()])


def _reach(sealed: Sequence[SealedPartition]) -> str:
    """The end of the archive; answers know nothing later."""
    if not sealed:
        return "nothing is archived yet"
    until = {one.topic: 0.0 for one in sealed}
    for one in sealed:
        until[one.topic] = max(until[one.topic], one.until_s)
    reach = ", ".join(f"{topic} up to {utc(time_s)}" for topic, time_s in sorted(until.items()))
    return f"archived: {reach}; each partition of them: the view sealed"
