"""The cut from which a region would start together, for `jobledger plan`: what the reconciler asks runners pass by pass is
asked here at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping

from ledger.core.facts import RestorePoint
from ledger.core.passes import View
from ledger.core.plan import Action, Verify
from ledger.errors import LedgerError
from ledger.ports import Runner, Verification

#: Each round asks for at least one label more; an entry offers a handful.
_ROUNDS_MAX = 10


def with_cuts(
    views: MutableMapping[str, View], runners: Mapping[str, Runner], actions_of: Callable[[], list[Action]]
) -> list[Action]:
    """The actions of a pass over `views`, once all has been verified that a region needs to choose by; a Verify that is
    left could not be answered."""
    actions = actions_of()
    for _ in range(_ROUNDS_MAX):
        asked = [a for a in actions if isinstance(a, Verify) and not _silent(views[a.job_id], a)]
        if not asked:
            break
        for action in asked:
            view = views[action.job_id]
            said = {**dict(view.known.verified), **_verified(action, runners.get(view.entry.runner))}
            views[action.job_id] = view._replace(known=view.known._replace(verified=tuple(said.items())))
        actions = actions_of()
    return actions


def _silent(view: View, action: Verify) -> bool:
    said = dict(view.known.verified)
    return all(said.get(point) == Verification.UNKNOWN for point in action.points)


def _verified(action: Verify, runner: Runner | None) -> dict[RestorePoint, str]:
    try:
        return {point: str(runner.verify(point)) if runner else "unknown" for point in action.points}
    except LedgerError:
        return dict.fromkeys(action.points, "unknown")
