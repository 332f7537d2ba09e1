"""Garbage, by tables. A law: an object is no garbage if a fold refers to it, of the same registers or of later ones
too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as draw
from hypothesis import strategies as st

from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.garbage import ENTRY_UNREAD, GRACE_MIN_S, Claims, Classified, Kind, StoredItem, claims_of, judge
from ledger.core.model.facts import GraphRef, JobAdmitted, RestorePoint
from ledger.core.model.registers import parse_register
from tests.support.registers import (
    DIGEST,
    OTHER_DIGEST,
    UNREADABLE,
    checkpoint,
    entry,
    given,
    intent,
    plain,
    point,
    read,
    spec,
    started,
)

A, B = (GraphRef(f"graphs/job-1/{letter * 64}", letter * 64, 7) for letter in "cd")
OLD_S, LOG_S = 90_000.0, 1e6
SPEC_A, SPEC_B = {f"spec/{DIGEST}": spec(graph=A)}, {f"spec/{OTHER_DIGEST}": spec(graph=B)}
BLOB = StoredItem(Kind.BLOB, "blobs", "job-1", A.uri, 7, OLD_S)
PUT = replace(BLOB, kind=Kind.UNFINISHED, where="graphs/job-1/.put-x")
FOLDER = StoredItem(Kind.RUN_FOLDER, "subprocess", "job-1", "/agent/jobs/job-1", 9, OLD_S)
POINTS = replace(FOLDER, kind=Kind.CHECKPOINTS, locations=("chk-1/4",))


def judged(
    *item: StoredItem, claims: dict[str, Claims] | None = None, grace_s: float = 86_400.0, log_s: float = LOG_S,
    held: dict[str, str] | None = None,
) -> Classified:  # fmt: skip
    return judge(item, claims or {}, lambda job_id: "ledger.events[0]@123", grace_s, log_s, held or {})


def claims(*names: str, facts: dict[str, Any] | None = None, admitted: bool = False) -> Claims:
    return claims_of(given(*names, facts=facts, admitted=admitted), None, 3)


def why(item: StoredItem, of: Claims | None) -> str:
    """The evidence that the object is garbage; "" = it is none."""
    found = judged(item, claims={"job-1": of} if of is not None else None)
    assert not found.young and not found.spared
    return found.orphans[0].evidence if found.orphans else ""


ADMITTED_A = {**SPEC_A, "admitted": JobAdmitted(DIGEST)}
TABLE: dict[str, tuple[StoredItem, Claims | None, str]] = {
    "a blob of nobody": (BLOB, None, "no register of this job in the log up to ledger.events[0]@123"),
    "a put of nobody": (PUT, None, "no register of this job in the log up to ledger.events[0]@123"),
    "a folder of nobody": (FOLDER, None, "no register of this job in the log up to ledger.events[0]@123"),
    "checkpoints of nobody: perhaps its result has expired": (POINTS, None, ""),
    "a spec that nobody admitted yet": (BLOB, claims(facts=SPEC_A), ""),
    "an admitted spec": (BLOB, claims(facts=ADMITTED_A), ""),
    "another graph is admitted": (
        replace(BLOB, where=B.uri), claims(facts={**ADMITTED_A, **SPEC_B}), f"another graph is the job's: {A.uri}",
    ),
    "two specs, and nobody has decided": (replace(BLOB, where=B.uri), claims(facts={**SPEC_A, **SPEC_B}), ""),
    "a put beside its blob": (
        PUT, claims(facts=ADMITTED_A), f"a put that did not come to its end left it; the graph of the job is {A.uri}",
    ),
    "no spec, but something else": (
        BLOB, claims(facts={"intent/1/u": intent("CANCEL")}), "no spec of this job in the log up to ledger.events[0]@123",
    ),
    "a job that runs": (FOLDER, claims("attempt/1/1", "running/1", facts=ADMITTED_A), ""),
    "a job that is over and not retired": (BLOB, claims("ended/1/finished/agent-a", facts=ADMITTED_A), ""),
    "its folder": (FOLDER, claims("ended/1/finished/agent-a", facts=ADMITTED_A), ""),
    "a retired job": (BLOB, claims("result/FINISHED"), "the job is FINISHED and retired"),
    "a retired job whose spec came late": (
        BLOB, claims("result/CANCELED", facts=SPEC_A), "the job is CANCELED and retired",
    ),
    "its folder, once retired": (FOLDER, claims("result/FAILED"), "the job is FAILED and retired"),
    "its checkpoints, once retired": (
        POINTS, claims("result/FINISHED"),
        "the job is FINISHED and retired, keeps no checkpoint, and no job begins from these",
    ),
    "its checkpoints, if they were kept": (
        replace(POINTS, locations=("chk-1/2",)),
        claims(facts={"result/FINISHED": replace(plain(parse_register("result/FINISHED")), restore_point=point("1/4"))}),
        "",
    ),
    "something of it is alive: an orphan": (replace(FOLDER, alive=(1,)), claims("result/FINISHED"), ""),
    "something of nobody is alive": (replace(FOLDER, alive=(1,)), None, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_what_is_garbage_and_why(name: str) -> None:
    item, of, expected = TABLE[name]
    assert why(item, of) == expected


def test_names_are_told_where_they_are_known() -> None:
    (orphan,) = judged(BLOB, claims={"job-1": claims("result/FINISHED")}).orphans
    assert (orphan.name, orphan.namespace) == ("etl", "prod")


@pytest.mark.parametrize(
    "of",
    [
        claims(facts={**ADMITTED_A, f"spec/{OTHER_DIGEST}": UNREADABLE}),
        claims(facts={"result/FINISHED": UNREADABLE}),
        claims(facts={**SPEC_B, "admitted": UNREADABLE}),
        claims(facts={"admitted": JobAdmitted(DIGEST), **SPEC_B}),  # the admitted spec is missing
        claims("result/FINISHED", facts={"result/FAILED": UNREADABLE}),
        ENTRY_UNREAD,
    ],
)
@pytest.mark.parametrize("item", [BLOB, PUT, FOLDER, POINTS])
def test_a_job_of_which_something_cannot_be_read_is_never_touched(of: Claims, item: StoredItem) -> None:
    found = judged(item, claims={"job-1": of})
    assert not found.orphans and [one.item for one in found.spared] == [item]


def test_all_of_a_pinned_job_is_spared_with_the_pin_as_the_reason() -> None:
    disposed = replace(claims("result/FINISHED"), disposed=frozenset({"/sav-1"}))
    saved = StoredItem(Kind.SAVEPOINT, "subprocess", "job-1", "/sav-1", 7, OLD_S, locations=("/sav-1",))
    item = [BLOB, PUT, FOLDER, POINTS, saved]
    assert len(judged(*item, claims={"job-1": disposed}).orphans) == len(item)
    found = judged(*item, claims={"job-1": disposed}, held={"job-1": "pin-7", "job-2": "pin-8"})
    assert found.orphans == () and {one.why for one in found.spared} == {"the pin pin-7 holds its job"}
    assert [one.item for one in found.spared] == item
    assert judged(replace(BLOB, where=A.uri), claims={"job-1": claims(facts=ADMITTED_A)}, held={"job-1": "p"}).spared == ()


def test_what_is_published_counts_although_its_registers_are_gone() -> None:
    published = replace(entry("attempt/1/1"), graph=A)
    assert why(BLOB, claims_of(Job("job-1", {}, read), published, 3)) == ""
    assert why(BLOB, claims_of(given("result/FINISHED", admitted=False), published, 3)) == ""


def test_checkpoints_that_another_job_begins_from_stay() -> None:
    of = {"job-1": claims("result/FINISHED")}
    other = claims(facts={f"spec/{DIGEST}": spec(restore_from=RestorePoint(0, 0, "chk-1/4"))})
    assert not judged(POINTS, claims={**of, "job-2": other}).orphans
    assert judged(POINTS, claims={**of, "job-2": claims(facts=ADMITTED_A)}).orphans


@pytest.mark.parametrize("newest", [0, 4], ids=["without a checkpoint of its own", "with more than are offered"])
def test_the_checkpoint_that_a_job_took_over_stays_while_its_first_attempt_runs(newest: int) -> None:
    """Only the record of the attempt names the checkpoint: the spec names the replaced job, and no location."""
    of = {"job-1": claims("result/FINISHED")}
    facts = {
        f"spec/{DIGEST}": spec(replaces="job-1"), "admitted": JobAdmitted(DIGEST),
        "attempt/1/1": replace(started(), base=RestorePoint(0, 0, "chk-1/4")),
        **{f"checkpoint/1/{n}": replace(checkpoint(f"1/{n}"), location=f"own/{n}") for n in range(1, newest + 1)},
    }  # fmt: skip
    other = claims("running/1", facts=facts)
    assert ("own/4" in other.points) == (newest == 4), "three of its own checkpoints are offered"
    assert not judged(POINTS, claims={**of, "job-2": other}).orphans


@pytest.mark.parametrize(
    ("age_s", "grace_s", "log_s", "orphans", "young", "spared"),
    [
        (3_700.0, 3_600.0, LOG_S, 1, 0, 0),
        (3_500.0, 3_600.0, LOG_S, 0, 1, 0),
        (3_500.0, 0.0, LOG_S, 0, 1, 0),  # a grace shorter than the minimum is not possible
        (90_000.0, 3_600.0, 89_000.0, 0, 0, 1),  # older than the log
        (90_000.0, 3_600.0, 0.0, 0, 0, 1),  # a log that never had a leader
    ],
)
def test_age_counts(age_s: float, grace_s: float, log_s: float, orphans: int, young: int, spared: int) -> None:
    found = judged(replace(BLOB, age_s=age_s), grace_s=grace_s, log_s=log_s)
    assert (len(found.orphans), found.young, len(found.spared)) == (orphans, young, spared)
    assert GRACE_MIN_S == 3600.0


# -- law: no object that a fold refers to ------------------------------------------------------------------------------

NAMES = [
    f"spec/{DIGEST}", f"spec/{OTHER_DIGEST}", "admitted", "intent/1/u", "intent/2/v", "attempt/1/1", "attempt/2/1",
    "running/1", "checkpoint/1/4", "ended/1/failed/agent-a", "ended/1/finished/agent-a", "ended/2/canceled/reconciler-1",
    "result/FINISHED", "result/CANCELED",
]  # fmt: skip


def fact_of(name: str, admits: str) -> Any:
    known = {
        **SPEC_A, **SPEC_B, "admitted": JobAdmitted(admits),
        "intent/1/u": intent("CANCEL"), "intent/2/v": intent("SUSPEND"),
    }  # fmt: skip
    register = parse_register(name)
    assert register is not None
    return known.get(name) or plain(register)


def job_of(names: set[str], admits: str) -> Job:
    return Job("job-1", {name.encode(): fact_of(name, admits) for name in names}, read)


@draw(
    st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)), st.sampled_from([DIGEST, OTHER_DIGEST]), st.booleans()
)
def test_no_orphan_is_referred_to_by_a_fold_at_or_after_the_snapshot(
    before: set[str], later: set[str], admits: str, is_published: bool
) -> None:
    """Holds for any later records in any order, except new specs: the submitter of a spec checks its graph again."""
    snapshot = job_of(before, admits)
    folded = fold_job(snapshot, 3)
    found = judged(
        *(replace(BLOB, where=graph.uri) for graph in (A, B)),
        claims={"job-1": claims_of(job_of(before, admits), folded if is_published else None, 3)} if before else {},
    )
    orphans = {orphan.item.where for orphan in found.orphans}
    later_specs = {name for name in later - before if name.startswith("spec/")}
    for records in (before, before | later - later_specs, before | later):
        after = fold_job(job_of(records, admits), 3)
        if after is not None and after.graph is not None and f"spec/{after.digest}" not in later_specs:
            assert after.graph.uri not in orphans
    if "result/FINISHED" in before:
        assert orphans == {A.uri, B.uri}, "all graphs of a retired job are garbage"
