"""The selection of jobs by `-n` and `-l`, for every verb that takes several jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ledger.cli import parsing
from ledger.errors import UsageError


class LabelRule(NamedTuple):
    """One condition on a label of a job. value None: the label must exist, with any value. equal False: the value must
    differ, or the label be missing."""

    name: str
    value: str | None
    equal: bool = True

    def holds(self, labels: Mapping[str, str]) -> bool:
        if self.value is None:
            return self.name in labels
        return (labels.get(self.name) == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class Selection:
    """The jobs that `-n` and `-l` select: those in one of the namespaces (none given: in any) that match every label
    rule."""

    namespaces: frozenset[str] = frozenset()
    labels: tuple[LabelRule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.namespaces or self.labels)

    def holds(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return (not self.namespaces or namespace in self.namespaces) and all(rule.holds(labels) for rule in self.labels)

    def holds_row(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of `rendering.entry_row` or `rendering.retired_row` is selected."""
        return self.holds(row.get("namespace") or "", row.get("labels") or {})


def selection(namespaces: Iterable[str] | None = None, labels: Iterable[str] | None = None) -> Selection:
    """The selection that `-n` and `-l` define. Raises: UsageError."""
    names = frozenset(parsing.name(namespace, "--namespace") for namespace in namespaces or ())
    rules = [_rule(part) for text in labels or () for part in text.split(",")]
    return Selection(names, tuple(rules))


def _rule(text: str) -> LabelRule:
    name, sign, value = text.partition("=")
    equal = not (sign and name.endswith("!"))
    if equal:
        value = value.removeprefix("=")  # NAME==VALUE means the same, as kubectl has it
    name = name.strip() if equal else name[:-1].strip()
    if not name:
        raise UsageError(f"--label takes NAME=VALUE, NAME!=VALUE or NAME, not {text!r}.")
    return LabelRule(name, value.strip() if sign else None, equal)
