"""Mistakes in an agent's jobs: permission to start, facts that are sent and when, and the state after a restart."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

AGENTS = "tests/adapters/runners/test_agents.py::"
DAMAGED = "tests/adapters/runners/test_damaged_files.py::"

MUTANTS = (
    Mutant(
        "two-agents-on-one-folder", "ledger/adapters/runners/subprocess/agent.py",
        "            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        (f"{AGENTS}test_a_folder_has_one_agent",), "two agents start the same attempts and record their ends",
    ),
    Mutant(
        "numbers-are-not-saved-before-their-files-go", "ledger/adapters/runners/subprocess/agent.py",
        "            self._maker.sequences.save()  # the event files that hold the numbers are deleted below\n",
        "",
        (f"{AGENTS}test_numbers_of_events_that_were_forgotten_unacknowledged_are_not_used_again",), "two events of an agent have one sequence number, and audits report a false gap",
    ),
    Mutant(
        "an-end-overtakes-its-checkpoints", "ledger/adapters/runners/subprocess/events.py",
        "                return events or [stored.event]\n            events.append",
        "                return [*events, stored.event]\n            events.append",
        (f"{AGENTS}test_an_end_is_not_sent_before_all_else_is_acknowledged",), "readers take an end for the last fact of an attempt, and miss checkpoints",
    ),
    Mutant(
        "what-was-fenced-while-it-was-prepared-begins", "ledger/adapters/runners/subprocess/agent.py",
        "            if answer := _known(job, attempt.n):  # fenced meanwhile\n                return answer\n",
        "",
        (f"{AGENTS}test_a_slow_start_holds_up_nobody_else",), "an attempt starts after its fence was acknowledged",
    ),
    Mutant(
        "the-last-checkpoints-of-the-dead-are-lost", "ledger/adapters/runners/subprocess/jobs.py",
        "        self.report_late(attempt)\n        log_name",
        "        log_name",
        (f"{AGENTS}test_killing_both_ends_the_attempt_as_failed_with_its_newest_checkpoint",), "the successor starts from an older checkpoint",
    ),
    Mutant(
        "an-unknown-outcome-counts-as-finished", "ledger/adapters/runners/subprocess/jobs.py",
        "            outcome = Outcome.FAILED\n", "            outcome = Outcome.FINISHED\n",
        (f"{DAMAGED}test_an_end_whose_outcome_is_no_outcome_is_a_failure",), "a job that failed is never restarted, because a file of it is damaged",
    ),
)  # fmt: skip
