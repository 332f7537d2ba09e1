"""Mistakes in the roles: actions of a leader before it has read enough."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

MUTANTS = (
    Mutant(
        "any-epoch-may-be-claimed", "ledger/roles/reconciler/claims.py",
        "            if claim[1] > self.highest:", "            if claim[1] < self.highest:",
        ("tests/roles/test_reconciler.py",),
        "two leaders write in one epoch",
    ),
)  # fmt: skip
