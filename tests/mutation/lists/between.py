"""Mistakes of a reconciler while the log, the entries and the runner are at different states."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

RECONCILER, STEPS = "ledger/roles/reconciler/term.py", "ledger/roles/reconciler/flow_steps.py"
STARTING, ENDING = "ledger/roles/reconciler/starting.py", "ledger/roles/reconciler/ending.py"
CLOSES = "\n        yield from flow.write(flow.end(n, outcome, flow.entry.reason))"
REGIONS = "tests/roles/test_regions.py::"
BETWEEN = "tests/roles/test_between.py::"

MUTANTS = (
    Mutant(
        "claim-is-no-barrier", RECONCILER,
        "        return as_of > self.barrier.get(partition, 0)", "        return True",
        (f"{BETWEEN}test_nothing_is_planned_from_an_entry_that_is_older_than_the_claim",),
        "an attempt that a predecessor recorded is recorded again, from an older state of its job",
    ),
    Mutant(
        "claim-is-planned-from-before-it-is-read", RECONCILER,
        "        return as_of > self.barrier.get(partition, 0)", "        return as_of >= self.barrier.get(partition, 0)",
        (f"{BETWEEN}test_an_entry_that_ends_right_before_the_claim_is_older_than_the_claim",),
        "the barrier is one record too early",
    ),
    Mutant(
        "slots-are-given-before-all-partitions-are-read", RECONCILER,
        '        return "the recovery set is not read up to this reconciler\'s claim"', '        return ""',
        ("tests/roles/test_pools.py::test_nothing_starts_in_a_pool_before_every_partition_is_read",),
        "more attempts run than the pool has slots",
    ),
    Mutant(
        "retired-though-something-runs", ENDING,
        " or outcome.answer.alive:", ":",
        (f"{BETWEEN}test_a_job_is_not_retired_while_anything_of_it_runs",),
        "an attempt of a retired job keeps running",
    ),
    Mutant(
        "cleaned-before-it-is-fenced", "ledger/tasks.py",
        """    runner.fence(task.job_id, NUMBER_MAX)
    alive = tuple(sorted(a.n for a in runner.observe() if a.job_id == task.job_id and a.alive))
""",
        """    alive = tuple(sorted(a.n for a in runner.observe() if a.job_id == task.job_id and a.alive))
    runner.fence(task.job_id, NUMBER_MAX)
""",
        (f"{BETWEEN}test_a_start_that_comes_while_its_job_is_cleaned_is_fenced",),
        "an attempt starts while its graph and checkpoints are deleted",
    ),
    Mutant(
        "closed-without-the-fence", ENDING,
        "    elif new is not None:" + CLOSES,
        "    else:" + CLOSES,
        (f"{BETWEEN}test_a_job_is_not_closed_before_its_next_attempt_is_fenced",),
        "a start in flight begins after its job is over",
    ),
    Mutant(
        "closed-though-the-fence-held-news", ENDING,
        "    elif new is not None:" + CLOSES,
        "    if new is not None:" + CLOSES,
        (f"{BETWEEN}test_a_job_is_not_closed_over_an_attempt_that_its_fence_brings_to_light",),
        "a finished job is also recorded as canceled",
    ),
    Mutant(
        "settled-before-the-entry-has-caught-up", RECONCILER,
        "settled=frozenset(n for n, end in memory.settled.items() if as_of >= end)", "settled=frozenset(memory.settled)",
        (f"{BETWEEN}test_a_start_waits_until_its_entry_holds_all_that_the_log_held_at_the_fence",),
        "an attempt starts from a checkpoint that is not the newest",
    ),
    Mutant(
        "confirmed-before-the-entry-has-caught-up", RECONCILER,
        "confirmed=memory.confirm is not None and as_of >= memory.confirm", "confirmed=memory.confirm is not None",
        (f"{BETWEEN}test_what_looks_wrong_is_left_alone_until_its_entry_holds_all_that_the_log_held_then",),
        "a healthy job is stopped, because its entry is old",
    ),
    Mutant(
        "started-though-the-entry-has-changed", STARTING,
        "    if prepared.unknown or not flow.context.still_planned(entry):", "    if prepared.unknown:",
        (f"{BETWEEN}test_a_start_that_was_prepared_for_an_entry_that_has_changed_is_not_recorded",),
        "a job starts that was suspended or canceled, or from an older checkpoint than it has by now",
    ),
    Mutant(
        "stopped-though-the-fence-brought-progress", ENDING,
        "    if new is None or new or not flow.context.still_planned(entry):",
        "    if new is None or not flow.context.still_planned(entry):",
        (f"{BETWEEN}test_what_a_fence_brings_keeps_a_job_from_being_stopped_until_its_entry_holds_that",),
        "after an outage of the log a healthy job is stopped",
    ),
    Mutant(
        "what-was-relayed-is-planned-from-too-soon", STEPS,
        "        self.memory.last_fact = max(self.memory.last_fact, *offsets)\n        self.memory.relayed.update",
        "        self.memory.relayed.update",
        (f"{BETWEEN}test_what_a_fence_brings_keeps_a_job_from_being_stopped_until_its_entry_holds_that",),
        "a healthy job is stopped, because its entry is older than the reconciler's own records",
    ),
    Mutant(
        "refused-restore-points-are-not-recorded", STARTING,
        "    record = _record(flow, prepared.base, passed_over + prepared.refused, together)",
        "    record = _record(flow, prepared.base, passed_over, together)",
        ("tests/roles/test_reconciler.py::test_a_damaged_checkpoint_is_refused_with_its_reason",),
        "nothing records why a job started from an older checkpoint",
    ),
    Mutant(
        "restore-points-beyond-the-cut-are-not-recorded", STARTING,
        "    record = _record(flow, prepared.base, passed_over + prepared.refused, together)",
        "    record = _record(flow, prepared.base, prepared.refused, together)",
        (f"{REGIONS}test_a_failed_member_takes_its_region_back_to_the_newest_label_that_all_have",),
        "nothing records why a member of a region started from an older checkpoint",
    ),
)  # fmt: skip
