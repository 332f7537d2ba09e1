"""Which jobs -n and -l select."""

from __future__ import annotations

import pytest

from ledger.cli.selection import selection
from ledger.errors import UsageError

LABELS = {"team": "data", "tier": "1"}


@pytest.mark.parametrize(
    ("namespaces", "labels", "holds"),
    [
        ([], [], True), (["prod"], [], True), (["dev"], [], False), (["dev", "prod"], [], True),
        ([], ["team=data"], True), ([], ["team=web"], False), ([], ["team"], True), ([], ["owner"], False),
        ([], ["team!=web"], True), ([], ["team!=data"], False), ([], ["owner!=ann"], True),
        ([], ["team=data,tier=1"], True), ([], ["team=data,tier=2"], False), ([], ["team=data", "tier=2"], False),
        (["dev"], ["team=data"], False), ([], ["team="], False),
        ([], ["team==data"], True), ([], ["team == data,tier==1"], True), ([], ["team==web"], False),
    ],
)  # fmt: skip
def test_a_job_is_selected_by_namespace_and_labels(namespaces: list[str], labels: list[str], holds: bool) -> None:
    assert selection(namespaces, labels).holds("prod", LABELS) is holds


@pytest.mark.parametrize("label", ["", "=x", "!=x", "a=1,,b=2"])
def test_what_is_no_selector_is_wrong_usage(label: str) -> None:
    with pytest.raises(UsageError):
        selection([], [label])


def test_no_flag_selects_all() -> None:
    assert not selection() and selection().holds("", {})
    assert selection(["prod"])
