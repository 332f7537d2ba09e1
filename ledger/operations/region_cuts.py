"""The cut from which a region would start, for `jobledger plan`: all verifications that the reconciler spreads over passes
are made at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence

from ledger.core.model.facts import RestorePoint
from ledger.core.plan.plan import Action, Verify
from ledger.core.plan.reconcile import JobView, Observed
from ledger.core.plan.runner_report import stored_elsewhere
from ledger.errors import LedgerError
from ledger.ports import Runner, Verification, VerifyTask
from ledger.tasks import verified

#: Each round verifies at least one more label, and an entry offers only a few.
_ROUNDS_MAX = 10


def with_cuts(
    views: MutableMapping[str, JobView], runners: Mapping[str, Runner], observed: Observed,
    actions_of: Callable[[], list[Action]],
) -> list[Action]:  # fmt: skip
    """The actions of a pass over `views`, after every restore point that a region may choose was verified. A remaining
    Verify action got no answer from the runner."""
    actions = actions_of()
    for _ in range(_ROUNDS_MAX):
        asked = [a for a in actions if isinstance(a, Verify) and not _silent(views[a.job_id], a)]
        if not asked:
            break
        for action in asked:
            view = views[action.job_id]
            said = {**dict(view.known.verified), **_verified(action, view, runners.get(view.entry.runner), observed)}
            views[action.job_id] = view._replace(known=view.known._replace(verified=tuple(said.items())))
        actions = actions_of()
    return actions


def _silent(view: JobView, action: Verify) -> bool:
    said = dict(view.known.verified)
    return all(said.get(point) == Verification.UNKNOWN for point in action.points)


def _verified(action: Verify, view: JobView, runner: Runner | None, observed: Observed) -> dict[RestorePoint, str]:
    entry, report = view.entry, observed.of(view.entry)
    task = VerifyTask(
        runner=entry.runner, job_id=entry.job_id, n=action.n, restore_points=action.points, instance=report.instance,
        elsewhere=stored_elsewhere(action.points, entry, report),
    )  # fmt: skip
    unknown: Sequence[Verification] = [Verification.UNKNOWN] * len(action.points)
    try:
        answers = verified(task, runner.only(report.instance)) if runner else unknown
    except LedgerError:
        answers = unknown
    return {point: str(answer) for point, answer in zip(action.points, answers, strict=True)}
