"""Mistakes in how a role becomes leader, keeps leading, or steps down."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

RECONCILER, PROJECTOR, TERM = "ledger/roles/reconciler/reconciler.py", "ledger/roles/projector/projector.py", "ledger/roles/projector/term.py"
RECONCILER_TERM = "ledger/roles/reconciler/term.py"
TAKE_OVERS = "tests/roles/test_take_overs.py::"

MUTANTS = (
    Mutant(
        "reconcilers-do-not-fence-each-other", RECONCILER,
        'self._parts.log.writer(f"{self._topic}-{ROLE}")',
        'self._parts.log.writer(f"{self._topic}-{ROLE}-{self._parts.new_id()}")',
        ("tests/roles/test_reconciler.py::test_a_stale_reconciler_is_fenced_and_starts_nothing",),
        "two reconcilers record and start attempts of one job",
    ),
    Mutant(
        "projectors-do-not-fence-each-other", PROJECTOR,
        'self._parts.log.writer(f"{self._topics.recovery}-{ROLE}")',
        'self._parts.log.writer(f"{self._topics.recovery}-{ROLE}-{self._parts.new_id()}")',
        ("tests/roles/test_projector.py::test_a_stale_leader_writes_nothing_that_readers_see",),
        "an old leader's entries supersede those of the new one",
    ),
    Mutant(
        "a-higher-claim-is-not-looked-for", RECONCILER_TERM,
        "        if self._claims.highest > self.epoch:", "        if False:",
        (f"{TAKE_OVERS}test_a_reconciler_that_was_replaced_orders_nothing_though_its_lease_lies",),
        "two reconcilers order stops, starts and deletions of one job",
    ),
    Mutant(
        "the-lease-is-not-looked-at-after-the-reconcilers-fence", RECONCILER,
        '            self.candidacy.require_lease("fencing its predecessor; nothing was written")\n', "",
        (f"{TAKE_OVERS}test_who_loses_the_lease_while_it_fences_its_predecessor_writes_nothing[reconciler]",),
        "a candidate that continues late writes while another one leads",
    ),
    Mutant(
        "the-lease-is-not-looked-at-after-the-projectors-fence", PROJECTOR,
        '            self.candidacy.require_lease("fencing its predecessor; nothing was written")\n', "",
        (f"{TAKE_OVERS}test_who_loses_the_lease_while_it_fences_its_predecessor_writes_nothing[projector]",),
        "a candidate that continues late writes while another one leads",
    ),
    Mutant(
        "the-lease-is-not-looked-at-while-the-log-is-read", "ledger/roles/common/catching_up.py",
        '        candidacy.require_lease("reading the log")\n', "",
        (f"{TAKE_OVERS}test_who_loses_the_lease_while_the_log_does_not_come_to_its_end_gives_up",),
        "a candidate without a lease waits for the end of the log instead of standing by",
    ),
    Mutant(
        "the-lease-is-not-looked-at-at-the-projectors-commit", TERM,
        "        if not self._leadership.valid():", "        if False:",
        (f"{TAKE_OVERS}test_who_loses_the_lease_when_all_is_read_claims_nothing[projector]",),
        "a candidate whose lease has ended claims an epoch, and takes the lead from its holder",
    ),
    Mutant(
        "the-lease-is-not-looked-at-at-the-reconcilers-commit", RECONCILER_TERM,
        '        self._candidacy.require_lease("leading")\n        return self._writer.commit(events)',
        "        return self._writer.commit(events)",
        (f"{TAKE_OVERS}test_who_loses_the_lease_when_all_is_read_claims_nothing[reconciler]",),
        "a candidate whose lease has ended claims an epoch, and takes the lead from its holder",
    ),
)  # fmt: skip
