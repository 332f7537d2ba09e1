"""The laws of the fold. Each is a function of one drawn history and raises AssertionError if the law is broken.

`book` defines the histories for each law. `test_laws` runs the laws on the real fold, `test_mutants` on weaker variants,
which they must detect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ledger.core.model.facts import CheckpointCompleted, RestoreBy, RestorePoint
from ledger.core.model.recovery import TERMINAL, JobState
from ledger.core.model.registers import Admitted, Checkpoint, Ended, Register, Spec
from tests.laws import actors, histories, oracle
from tests.laws.drawn import History, kind_of, place, play, played, shuffled, value
from tests.laws.histories import DIGEST, JOB, KEEP, Log, RawValue, bare, least_favourable, registers_of
from tests.support.offered import offered


def fold_all(jobs: dict[str, dict]) -> dict[str, Any]:
    return {job_id: histories.fold(registers, job_id) for job_id, registers in jobs.items()}


# -- the log and the set of all facts ----------------------------------------------------------------------------------


def the_log_says_what_the_set_of_facts_says(history: History) -> None:
    """The log folds like the set of all facts, with redelivery, any order, pruning and log compaction at any moment. With a
    result, all other registers may be gone, and then the job has no entry."""
    for operation, log in play(history):
        got, want = histories.fold(log.registers()), histories.fold(log.facts[JOB])
        if want is not None and want.retiring:
            assert histories.view(log.registers()).result == histories.view(log.facts[JOB]).result, f"after {operation}"
            assert got is None or got.retiring, f"after {operation}\nlog {got}\nset {want}"
        else:
            assert bare(got) == bare(want), f"after {operation}\nlog {got}\nset {want}"


def order_does_not_matter(history: tuple[History, int]) -> None:
    """The fold depends neither on the order in which facts arrive, nor on the order of registers in a reader's table."""
    log = played(history[0])
    want = histories.fold(log.facts[JOB])
    assert fold_all(registers_of(shuffled(log.sent, history[1])))[JOB] == want
    assert histories.fold(dict(shuffled(log.facts[JOB].items(), history[1]))) == want


def terminal_is_final(history: History) -> None:
    """A terminal job stays terminal, and a cancel is never undone. A terminal job may change to another terminal state,
    retire, and then be gone."""
    before, gone = None, False
    for operation, log in play(history):
        entry = histories.fold(log.registers())
        state = entry.state if entry else None
        if before in TERMINAL:
            assert state in TERMINAL or state is None, f"{before}, then {state} after {operation}"
        if before is JobState.CANCELLING:
            assert state in TERMINAL | {JobState.CANCELLING}, f"{before}, then {state} after {operation}"
        gone = gone or (before is not None and state is None)
        assert not (gone and state not in TERMINAL | {None}), f"came back as {state} after {operation}"
        before = state


def the_fold_says_what_the_plain_rules_say(history: History) -> None:
    """The fold agrees with the simple oracle on the registers in the log."""
    for operation, log in play(history):
        facts = {held.register: held.fact for held in log.registers().values()}
        want, entry = oracle.opinion(facts, KEEP, JOB), histories.fold(log.registers())
        if want is None or entry is None:
            assert want is None and entry is None, f"after {operation}: {entry}, but {want}"
            continue
        got = oracle.of_entry(entry)
        assert got == want, f"after {operation}\nfold  {got}\nrules {want}"


# -- readers -----------------------------------------------------------------------------------------------------------


def compaction_changes_nothing(history: tuple[History, int]) -> None:
    """At every prefix: the worst-case compaction of the prefix, the same repeated, and then with the rest of the log."""
    log, cut = played(history[0], clean=False), history[1]
    cut %= len(log.records) + 1
    prefix, rest = log.records[:cut], log.records[cut:]
    whole = registers_of(log.records)
    once = least_favourable(prefix, cut)
    twice = least_favourable(once, cut)
    assert fold_all(registers_of(once)) == fold_all(registers_of(prefix))
    assert fold_all(registers_of(twice)) == fold_all(registers_of(prefix))
    assert fold_all(registers_of(once + rest)) == fold_all(whole)
    later = least_favourable(twice + rest, log.end)
    assert fold_all(registers_of(later)) == fold_all(whole)


def a_log_read_by_two_is_the_log_read_by_one(history: tuple[History, int]) -> None:
    """A second reader continues from a first reader's state at any offset. Log compaction may have run in between, but not
    removed tombstones that the second reader still has to read (a reader that is too late starts anew)."""
    log, cut = played(history[0], clean=False), history[1]
    cut %= len(log.records) + 1
    first = registers_of(log.records[:cut])
    whole = fold_all(registers_of(log.records))
    assert fold_all(registers_of(log.records[cut:], first)) == whole
    tail = histories.cleaned(log.records, log.end, horizon=cut)
    assert fold_all(registers_of([r for r in tail if r.offset >= cut], first)) == whole


def no_clock_and_no_timestamp_is_read(history: tuple[History, list[int]]) -> None:
    """The same records with other append times give the same entry."""
    times = history[1]
    registers = played(history[0]).registers()
    retimed = {name: held._replace(time_s=float(times[i % len(times)])) for i, (name, held) in enumerate(registers.items())}
    assert histories.fold(retimed) == histories.fold(registers)
    assert histories.prunable(retimed) == histories.prunable(registers)


# -- isolation ---------------------------------------------------------------------------------------------------------


def one_jobs_records_change_only_that_job(history: tuple[History, list[tuple[bytes, Any]]]) -> None:
    """Bad records, also with bad keys, change no other job, and the fold never raises."""
    log, strange = played(history[0]), history[1]
    alone = histories.fold(registers_of(log.records)[JOB])
    mixed: list[Any] = []
    for i, record in enumerate(log.records):
        mixed.append(record)
        key, raw = strange[i % len(strange)] if strange else (b"", None)
        if not key.startswith(JOB.encode() + b"/"):
            mixed.append(record._replace(key=key, value=raw))
    jobs = registers_of(mixed)
    assert fold_all(jobs)[JOB] == alone
    for job_id, registers in jobs.items():
        histories.prunable(registers, job_id)


def what_cannot_be_read_counts_as_absent(history: tuple[History, list[tuple[Register, Any]]]) -> None:
    registers, garbage = played(history[0]).registers(), history[1]
    added = {histories.name_of(r): raw for r, raw in garbage if histories.name_of(r) not in registers}
    with_it = registers | added
    got, want = histories.fold(with_it), histories.fold(registers)
    if got is not None and want is not None:
        got = replace(got, registers=want.registers)
        assert got == want
    else:
        assert want is None and (got is None or got.retiring), "with a result, it is one more register to remove"
    assert {histories.name_of(r) for r in histories.view(with_it).names} == set(with_it)


# -- restore points ----------------------------------------------------------------------------------------------------


def first_offered_is_what_the_newest_recorded_attempt_left(history: tuple[Any, list[Any]]) -> None:
    """This holds for healthy actors with pruning, compaction and redelivery in between. An effective retry names its own
    restore point."""
    world, operations = history
    job = actors.Actors(world)
    for operation in operations:
        job.step(operation)
        entry, due = job.entry(), job.due()
        got = entry.restore_points[0] if entry.restore_points else None
        if due is not None and due.order in job.given_up:
            assert got is None or got.order not in job.given_up, f"offers {got}, which is disposed of, after {operation}"
            due = got  # a remaining one of the kept restore points
        trace = f"after {operation} in {operations}\nstate {entry.state}, top {entry.attempt}"
        assert got == due, f"offers {got}, due is {due}, {trace}"
        whole = histories.fold(job.log.facts[JOB])
        assert whole is not None
        assert (bare(entry), entry.known, entry.stall_policy) == (bare(whole), whole.known, whole.stall_policy), trace
        assert due is None or entry.restore_from_named, trace


Bases = dict[int, RestorePoint | None]


def never_from_zero_silently(history: tuple[Any, Bases, list[Any]]) -> None:
    """Checkpoints and attempts come in any order, each attempt starts from any lower restore point, and prunes come at any
    moment. If the set of facts offers a restore point, so does the pruned log. The first offer differs only if the
    facts' first offer is no longer in the log. While any checkpoint is in the log, a job that must not start from
    scratch is offered a restore point."""
    for entry, whole, registers, trace in offers(history):
        left = {r for held in registers.values() if isinstance(r := held.register, Checkpoint)}
        assert entry.restore_points or not whole.restore_points, trace
        assert entry.restore_points or not (left and entry.restore_from_named), trace
        assert entry.restore_from_named == whole.restore_from_named, trace
        if entry.restore_points[:1] != whole.restore_points[:1]:
            first = whole.restore_points[0]
            assert Checkpoint(first.attempt, first.id) not in left, trace


def offers(history: tuple[Any, Bases, list[Any]]):
    """Yields after each operation: the entry by the log, the entry by the set of facts, the log's registers, a trace."""
    world, bases, operations = history
    log = Log()
    for register in (Spec(DIGEST), Admitted()):
        log.send(register, value(register, world))
    for operation in operations:
        match operation:
            case "new", register:
                fact = value(register, world)
                log.send(register, replace(fact, base=bases[register.n]))
            case "again", i:
                log.send_again(i)
            case "prune", _:
                log.prune()
            case "dispose", _:
                log.dispose()
            case "clean", choice:
                log.clean(choice)
        entry, whole = histories.fold(log.registers()), histories.fold(log.facts[JOB])
        assert entry is not None and whole is not None
        yield entry, whole, log.registers(), f"{operation} in {operations}\nbases {bases}\nlog {entry}\nset {whole}"


def what_is_prunable_never_matters_again(history: tuple[History, list[Register]]) -> None:
    """No later fact makes a register decisive that is prunable now."""
    (world, _), later = history
    now = played(history[0]).registers()
    gone = {histories.name_of(r) for r in histories.prunable(now)}
    left = {name: held for name, held in now.items() if name not in gone}
    for register in later:
        name = histories.name_of(register)
        if name in gone:
            continue  # if it is resent, it is pruned again: another law covers that
        fact = RawValue(register, value(register, world))
        now, left = now | {name: fact}, left | {name: fact}
        assert bare(histories.fold(left)) == bare(histories.fold(now)), f"{gone} gone, then {register}"


def a_pending_retry_finds_its_place(history: tuple[History, int]) -> None:
    """A retry names an existing checkpoint that is not disposed of. Once the retry is effective, the checkpoint is offered
    first, regardless of prunes before the end of its attempt arrived."""
    (world, _), choice = history
    log = played(history[0])
    job = histories.view(log.registers())
    there = sorted(c for cs in job.checkpoints.values() for c in cs if job.disposal(c.n, c.id) is None)
    over = job.end(job.top) or job.result or job.terminal_end
    if world.restore is RestoreBy.EXTERNAL or not there or job.top == 0 or over:
        return
    chosen = there[choice % len(there)]
    retry = actors.Intent(9, "u")
    fact = actors.IntentDeclared(actors.IntentKind.RETRY, job.top, f"{chosen.n}/{chosen.id}")
    log.send(retry, fact)
    for id_ in (7, 8, 9):
        log.send(Checkpoint(job.top, id_), CheckpointCompleted(f"{job.top}/{id_}"))
    log.prune()
    log.clean(0)
    log.send(Ended(job.top, "failed", "agent-1"), value(Ended(job.top, "failed", "agent-1"), world))
    after = histories.view(log.registers())
    if after.intent is None or after.intent[0] != retry:
        return
    assert next(offered(after), None) == place(chosen.n, chosen.id, kind_of(chosen.n, chosen.id))
