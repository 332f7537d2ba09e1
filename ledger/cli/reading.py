"""`jobledger list|show|history|explain|rejects|replay`: read jobs and records, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli import (
    checkpoint_runs,
    entry_diff,
    explaining,
    parsing,
    rendering,
    session,
    timelines,
)
from ledger.cli.checkpoint_runs import AllRecords
from ledger.cli.jobs import Job
from ledger.cli.options import Context, InNamespace, WithLabel, bundle_verb, verb
from ledger.cli.output import Column, utc
from ledger.cli.selection import Selection, selection
from ledger.cli.session import AsOf
from ledger.errors import NotFound, UsageError
from ledger.util.plain import to_plain

if TYPE_CHECKING:
    from ledger.reader.publication_lag import EntryProvenance
    from ledger.reader.rejects import Reject

PANEL = "Look"
All = Annotated[bool, typer.Option("--all", help="Include retired jobs.", show_default=False)]
State = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE",
                 help="Only jobs in this state, such as quarantined; repeatable."),
]  # fmt: skip
Sort = Annotated[
    str | None,
    typer.Option("--sort", metavar="KEY", help="trouble (default for people), name, namespace, state, age or id."),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep printing changes.", show_default=False)]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new records.", show_default=False)]
WhatIf = Annotated[
    list[str] | None,
    typer.Option("--what-if", metavar="'drop EVENT'", help="Leave out this record: 'drop EVENT_ID' or 'drop KEY@OFFSET'; "
                 "repeatable.", show_default=False),
]  # fmt: skip
From = Annotated[
    str | None,
    typer.Option("--from", metavar="MOMENT", help="Play the records from then on: the effect of each on its job.",
                 show_default=False),
]  # fmt: skip
To = Annotated[str | None, typer.Option("--to", metavar="MOMENT", help="End of --from. Default: now.")]
Only = Annotated[str | None, typer.Option("--job", metavar="JOB", help="With --from: only this job.")]
REJECTS = [
    Column("PLACE", "place"),
    Column("TIME", "time_ms", lambda time_ms: utc(time_ms / 1000) if time_ms else "-"),
    Column("KEY", "key"),
    Column("SIZE", "size"),
    Column("REASON", "reason"),
    Column("SHA256", "sha256", wide=True),
]


@bundle_verb
def list_(
    world: Context, all_: All = False, watch: Watch = False, state: State = None, namespace: InNamespace = None,
    label: WithLabel = None, sort: Sort = None, as_of: AsOf = None,
) -> None:  # fmt: skip
    """List the jobs of the ledger: those to be brought back, and those suspended, quarantined or just over.

    Jobs in trouble come first. -o name prints ids. --state adds a short reason; with -w then also jobs that enter or
    leave these states. --as-of lists what the leader had published then; jobledger replay --as-of compares it with the
    log.
    """
    from ledger.reader.publication_lag import published_with_stamps
    from ledger.reader.reading import all_registers, results

    states, selected = parsing.job_states(state or ()), selection(namespace, label)
    if sort is not None and sort not in rendering.SORTS:
        raise UsageError(f"--sort takes {', '.join(rendering.SORTS)}, not {sort}.")
    if watch:
        _not_of_the_past(world, as_of, "--watch")
        _watch(world, all_, states, selected)
        return
    with session.source(world, as_of=as_of, thin=True) as source:
        view, stamps = published_with_stamps(source)
        retired = results(source, all_registers(source)) if all_ else {}
        now_s = source.clock.time()
    rows = _rows(view.entries, retired, states, stamps, selected)
    rendering.jobs(
        world.printer, rows, _none(states, selected), _waits(world, as_of), bool(states), now_s, sort,
        {*view.entries, *retired},
    )  # fmt: skip
    _say_unreadable(world, view.unreadable)


@bundle_verb
def show(world: Context, job: Job, as_of: AsOf = None) -> None:
    """Show the published entry of a job, or its result if it is retired.

    --as-of also compares the entry with the log of that moment, and says how far the leader was behind.
    """
    from ledger.reader.job_lookup import SEE_ALL, resolve
    from ledger.reader.publication_lag import compare_with_log, published_with_stamps
    from ledger.reader.reading import registers_of, result_of

    with session.source(world, as_of=as_of, thin=True) as source:
        job_id = resolve(source, job, retired=True)
        view, stamps = published_with_stamps(source)
        entry = view.entries.get(job_id)
        retired = None if entry is not None else result_of(registers_of(source, job_id).job())
        said = None if as_of is None else compare_with_log(source, job_id, view)
        then: dict[str, Any] = {} if said is None else {"log": to_plain(said), "vector": session.vector_of(source)}
        now_s = source.clock.time()
    if entry is not None:
        row = {**rendering.entry_row(entry, stamps.of(job_id)), **then}
        rendering.one_job(world.printer, row, _waits(world, as_of), now_s)
    elif retired is not None:
        rendering.one_job(world.printer, {**rendering.retired_row(retired), **then}, now_s=now_s)
    elif said is not None and said.entry is not None:
        rendering.one_job(world.printer, {"job_id": job_id, "state": "UNPUBLISHED", **then}, now_s=now_s)
    else:
        raise NotFound(f"{job_id} is not admitted.", hint=f"jobledger explain {job_id} says why. {SEE_ALL}")


@bundle_verb
def history(
    world: Context, job: Job, follow: Follow = False, as_of: AsOf = None, timeline: timelines.File = None,
    all_records: AllRecords = False,
) -> None:  # fmt: skip
    """List every record of a job that is still in the log, in order; with --as-of also those in the archive.

    For people a run of checkpoints is one line; --all-records shows each, as -o json does. Times are UTC. A narrow
    terminal leaves out ACTOR and EPOCH; -o wide shows everything. --timeline draws a picture instead: attempts,
    checkpoints, leaders and intents on one time axis.
    """
    from ledger.history.historical_log import picked
    from ledger.reader.job_lookup import resolve
    from ledger.reader.reading import history as records_of

    if timeline is not None:
        timelines.draw(world, job, timeline, as_of, follow)
        return
    if follow:
        _not_of_the_past(world, as_of, "--follow")
    with session.source(world, as_of=as_of, thin=True) as source:
        job_id = resolve(source, job, retired=True)
        if not follow:
            own = picked(source, (f"{job_id}/".encode(),))
            rows = [rendering.record_row(record) for record in records_of(own, job_id)]
    if not follow:
        shown = checkpoint_runs.folded(rows) if world.printer.for_people and not all_records else rows
        rendering.history(world.printer, shown)
        if len(shown) < len(rows):
            world.printer.note(checkpoint_runs.NOTE)
        return
    for record in records_of(source, job_id, follow=True):
        rendering.history_line(world.printer, rendering.record_row(record))


@bundle_verb
def explain(world: Context, job: Job, as_of: AsOf = None) -> None:
    """Explain why a job is in its state, in or out of the recovery set, and for what it waits, with the records that
    decide."""
    from ledger.reader.job_lookup import resolve
    from ledger.reader.publication_lag import end_of

    with session.source(world, as_of=as_of, thin=True) as source:
        row = explaining.explained(source, resolve(source, job, retired=True))
        if as_of is not None:
            row |= {"log_end": end_of(source, row["partition"]), "vector": session.vector_of(source)}
    row["reconciler_waits"] = _waits(world, as_of).get(row["job_id"], "")
    if world.printer.for_people and as_of is None and world.bundle is None and "reconciler" in row["waits_for"]:
        row["reconciler_leads"] = _reconciler_leads(world)
    explaining.show(world.printer, row)


@verb
def rejects(world: Context) -> None:
    """List the records that the ledger could not use, and why."""
    from ledger.reader.rejects import list_rejects

    with session.source(world) as source:
        reader = source.log.reader([source.topics.rejects])
        try:
            rows = [_reject_row(reject) for reject in list_rejects(reader)]
        finally:
            reader.close()
    world.printer.rows(rows, REJECTS, empty="no rejects")


@bundle_verb
def replay(
    world: Context, as_of: AsOf = None, what_if: WhatIf = None, from_: From = None, to: To = None, job: Only = None,
    all_records: AllRecords = False,
) -> None:  # fmt: skip
    """Fold the log again and compare the result with the published entries. Exit code 1: they differ.

    The command waits up to half a minute for a projector that is behind, except for a past moment. --what-if folds the
    log once more without some records and compares the two results. --from compares nothing: it plays the log from one
    moment to another, for people with a run of checkpoints as one line."""
    from ledger.reader.replaying import CATCH_UP_S
    from ledger.reader.replaying import replay as fold_anew

    if from_ is not None:
        if as_of is not None or what_if:
            raise UsageError("--from goes with --to and --job alone.")
        from ledger.cli.event_trace import show_steps

        show_steps(world, from_, "0s" if to is None else to, job, all_records)
        return
    if to is not None or job is not None:
        raise UsageError("--to and --job go with --from.", hint="For example: jobledger replay --from 15m")
    if what_if:
        from ledger.cli.what_if import show_without

        show_without(world, what_if, as_of)
        return
    with session.source(world, "folding the log", as_of, thin=True) as source:
        past = as_of is not None or world.bundle is not None  # no projector catches up in the past
        found = fold_anew(source, timeout_s=0.0 if past else CATCH_UP_S)
        vector = "" if as_of is None else session.vector_of(source)
    entry_diff.say_replay(world, found, vector, past)


def register(app: typer.Typer) -> None:
    app.command("list", rich_help_panel=PANEL)(list_)
    for function in (show, history, explain, rejects, replay):
        app.command(function.__name__, rich_help_panel=PANEL)(function)


def _waits(world: Context, as_of: str | None) -> dict[str, str]:
    """job id -> what it waits for now, as the reconciler of this host reported."""
    from ledger.app import waiting_reasons

    return {} if as_of is not None or world.bundle is not None else waiting_reasons.read(world.config.waits_file)


def _reconciler_leads(world: Context) -> bool | None:
    """Whether a reconciler leads, by the election; None: it does not answer."""
    from ledger.errors import LedgerError

    try:
        return any(candidate.leads for candidate in world.ledger.candidates("reconciler"))
    except LedgerError:
        return None


def _not_of_the_past(world: Context, as_of: str | None, flag: str) -> None:
    """Raises: UsageError."""
    for past, value in (("--as-of", as_of), ("--bundle", world.bundle)):
        if value is not None:
            raise UsageError(f"{past} and {flag} don't go together: in the past nothing comes any more.")


# -- list --------------------------------------------------------------------------------------------------------------


def _rows(
    entries: Mapping[str, Any],
    retired: Mapping[str, Any],
    states: frozenset[str],
    stamps: EntryProvenance,
    selected: Selection,
) -> list[dict[str, Any]]:
    """The selected jobs in these states (none given: in any), retired ones last."""
    rows = [rendering.entry_row(entries[job_id], stamps.of(job_id)) for job_id in sorted(entries)]
    rows += [rendering.retired_row(retired[job_id]) for job_id in sorted(retired) if job_id not in entries]
    return [row for row in rows if (not states or row["state"] in states) and selected.holds_row(row)]


def _none(states: frozenset[str], selected: Selection) -> str:
    which = f"no jobs in state {' or '.join(sorted(states))}" if states else "no jobs"
    return f"{which} with this namespace or label" if selected else which


def _watch(world: Context, all_: bool, states: frozenset[str], selected: Selection) -> None:
    """Prints the list, then a line for each change, without end. A job that leaves the states gets one more line."""
    from ledger.core.model.published import Published
    from ledger.reader.publication_lag import EntryProvenance
    from ledger.reader.reading import POLL_S, Tail, all_registers, results

    with session.source(world) as source:
        view, stamps = Published(source.codec.decode), EntryProvenance(source)
        tail = Tail(source, [source.topics.recovery])
        for records in tail.to_end():
            for record in records:
                stamps.take(record, view.apply(record))
        retired = results(source, all_registers(source)) if all_ else {}
    with tail:
        rows = _rows(view.entries, retired, states, stamps, selected)
        if world.printer.for_people:
            none = _none(states, selected)
            rendering.jobs(world.printer, rows, none, reasons=bool(states), known={*view.entries, *retired})
        else:
            for row in rows:
                rendering.job_change(world.printer, row, {})
        shown: dict[str, dict[str, Any]] = {}
        while True:
            for row in _changes(view, stamps, tail.more(POLL_S), states):
                if selected.holds_row(row):
                    rendering.job_change(world.printer, row, shown, bool(states))


def _changes(view: Any, stamps: EntryProvenance, records: Any, states: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Rows of the entries that changed in meaning and are or were in one of the states. A retired job gives its last
    entry with "retired": true."""
    from ledger.core.model.recovery import same_meaning

    for record in records:
        change = view.apply(record)
        stamps.take(record, change)
        if change is None or same_meaning(change.before, change.after):
            continue
        if states and not any(entry and entry.state in states for entry in (change.before, change.after)):
            continue
        if change.after is not None:
            yield rendering.entry_row(change.after, stamps.of(change.job_id))
        else:
            yield {**rendering.entry_row(change.before), "retired": True}


def _say_unreadable(world: Context, unreadable: set[str]) -> None:
    for job_id in sorted(unreadable):
        world.printer.note(f"the entry of {job_id} can't be read by this version")


# -- rejects and replay ------------------------------------------------------------------------------------------------


def _reject_row(reject: Reject) -> dict[str, Any]:
    """A row with bytes as text; other bytes as \\x…."""
    headers = [[name, _text(value)] for name, value in reject.headers]
    bytes_of = {"key": _text(reject.key), "value_head": _text(reject.value_head), "headers": headers}
    return {"place": reject.origin, **to_plain(reject), **bytes_of}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
