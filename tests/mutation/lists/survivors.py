"""Mistakes that once survived the tests of their module. Each has a test of its own now."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

RETENTION = "ledger/adapters/runners/subprocess/retention.py"
PLAN, PASSES = "ledger/core/plan/plan.py", "ledger/core/plan/reconcile.py"
RULES, CHAIN = "ledger/core/fold/rules.py", "ledger/archive/format/chain.py"
STRATEGY, CANDIDATE = "ledger/adapters/zookeeper/node_strategy.py", "ledger/adapters/candidate_thread.py"
TERM, RESTORING = "ledger/roles/projector/term.py", "ledger/archive/restore/restoring.py"
RECONCILER = "ledger/roles/reconciler/term.py"
STRATEGIES = "tests/adapters/zookeeper/test_node_strategy.py::"

MUTANTS = (
    Mutant(
        "old-checkpoints-go-before-there-are-enough-new-ones", RETENTION,
        "    if len(kept) < keep:\n"
        "        return []  # there are not enough newer checkpoints yet to replace any\n", "",
        ("tests/adapters/runners/test_retention.py::test_which_checkpoints_are_subsumed",),
        "after a mistaken start from scratch, the first checkpoint deletes all older restore points",
    ),
    Mutant(
        "a-stray-of-another-runner-holds-no-slot", PASSES,
        "        if job_id not in views or views[job_id].entry.runner != runner:", "        if job_id not in views:",
        ("tests/core/plan/test_pools.py::test_what_runs_with_another_runner_under_a_jobs_id_holds_a_slot_beside_the_job",),
        "more attempts run than the pool has slots",
    ),
    Mutant(
        "what-a-job-took-over-is-garbage", "ledger/core/garbage.py",
        "        points += [entry.base, *entry.restore_points]", "        points += [*entry.restore_points]",
        ("tests/core/test_garbage.py::test_the_checkpoint_that_a_job_took_over_stays_while_its_first_attempt_runs",),
        "the checkpoint that a replacing job started from is deleted while its attempt may still read it",
    ),
    Mutant(
        "a-silent-runner-is-waited-for-though-the-job-was-given-up", PLAN,
        "        here = () if silent else disposable(entry, report)", "        here = disposable(entry, report)",
        ("tests/core/fold/test_disposed.py::test_a_forced_cancel_is_retired_without_a_runner_that_could_delete_anything",),
        "a forced cancel of a job on a lost host never ends",
    ),
    Mutant(
        "a-silent-runner-is-asked-to-dispose", PASSES,
        "not (entry.terminal or entry.runner in observed.silent):", "not entry.terminal:",
        ("tests/core/fold/test_disposed.py::test_it_stays_while_its_runner_is_silent",),
        "the job is blocked again and again for the duration of a call that gets no answer",
    ),
    Mutant(
        "a-reader-keeps-the-keys-of-retired-jobs", "ledger/core/model/published.py",
        "            del self.raw[partition][key]", "            pass",
        ("tests/core/model/test_published.py::test_nothing_is_kept_of_what_the_leader_has_removed",),
        "the memory of every reader grows with each past job",
    ),
    Mutant(
        "an-unknown-kind-is-looked-for-in-the-first-restore-point", RULES,
        "for point in self.points)",
        "for point in self.points[:1])",
        (
            "tests/core/fold/test_entry.py::test_a_restore_point_of_unknown_kind_stops_a_start_wherever_it_stands_among_those_offered",
        ),
        "an older version starts from a restore point of a kind that it does not know",
    ),
    Mutant(
        "the-longest-names-are-foreign", "ledger/core/model/registers.py",
        "_NAME_CHARS_MAX = 128", "_NAME_CHARS_MAX = 104",
        ("tests/core/model/test_registers.py::test_a_legal_name_is_read_and_written_back_unchanged",),
        "a savepoint of an attempt with a long number can't be disposed of",
    ),
    Mutant(
        "numbers-of-records-need-not-fit-the-offsets", CHAIN,
        "    if manifest.count < 0 or manifest.missing < 0 or "
        "manifest.count + manifest.missing != manifest.next - manifest.first:\n"
        '        return "its numbers of records do not fit its offsets"\n', "",
        (
            "tests/archive/format/test_chain.py::test_numbers_that_do_not_fit_the_offsets_are_told_though_nobody_names_the_manifest",
        ),
        "the newest manifest may claim fewer records than it covers",
    ),
    Mutant(
        "fewer-than-no-records-may-be-missing", CHAIN,
        "    if manifest.count < 0 or manifest.missing < 0 or manifest.count", "    if manifest.count",
        (
            "tests/archive/format/test_chain.py::test_numbers_that_do_not_fit_the_offsets_are_told_though_nobody_names_the_manifest",
        ),
        "the newest manifest may claim more records than it covers",
    ),
    Mutant(
        "manifests-are-compared-by-their-length", CHAIN,
        "        if made.encode() != data:", "        if len(made.encode()) != len(data):",
        ("tests/archive/format/test_chain.py::test_other_bytes_are_refused",),
        "one manifest has two hashes: the stored form differs from the hashed one",
    ),
    Mutant(
        "a-job-is-retired-under-the-one-that-took-over-from-it", "ledger/core/plan/replacements.py",
        "    taken = {point.location for pair in pairs for point in _taken(pair.new.entry, by_old)}", "    taken = set[str]()",
        ("tests/core/plan/test_replacing.py::test_what_another_took_over_is_kept",),
        "the checkpoint that a job must start from is deleted",
    ),
    Mutant(
        "what-a-job-that-is-over-has-taken-over-is-not-kept", "ledger/core/plan/replacements.py",
        "    if new.terminal and not any(map(_why_kept, by_old.get(new.job_id, ()))):\n", "    if new.terminal:\n",
        ("tests/roles/test_replacing.py::test_a_chain_goes_link_by_link",),
        "the third job in a chain of replacements is offered a deleted checkpoint of the first",
    ),
    Mutant(
        "a-start-does-not-wait-until-its-predecessor-is-settled", PLAN,
        "    if not _settled(entry, known, given_up):\n"
        "        return (_settle(entry, known),)\n"
        "    if not entry.due", "    if not entry.due",
        ("tests/core/plan/test_plan.py::test_decide",),
        "an attempt starts from a checkpoint that is not the newest",
    ),
    Mutant(
        "a-put-into-a-folder-keeps-the-age-of-what-is-there", "ledger/adapters/local/blobs.py",
        "                    os.utime(path)", "                    pass",
        ("tests/contract/test_blobs.py::test_a_put_of_what_is_there_makes_it_young_again",),
        "a graph that was just stored again is collected before its spec is in the log",
    ),
    Mutant(
        "a-put-into-a-bucket-keeps-the-age-of-what-is-there", "ledger/adapters/s3/blobs.py",
        ' and age_s(found["LastModified"], found) < AGE_OFF_S:', ":",
        ("tests/adapters/test_s3.py::test_a_put_of_what_is_old_puts_it_again_and_so_makes_it_young",),
        "a graph that was just stored again is collected before its spec is in the log",
    ),
    Mutant(
        "the-lease-counts-from-the-answer", STRATEGY,
        "        until = link.answered + recipe.lease_s(link.session_s)",
        "        until = self._clock.monotonic() + recipe.lease_s(link.session_s)",
        (f"{STRATEGIES}test_an_answer_that_takes_long_leaves_less_of_the_lease",),
        "the time between the end of a lease and the next leader is shorter than calculated",
    ),
    Mutant(
        "what-was-released-leads-on-if-it-is-wanted-again", CANDIDATE,
        "            self._request = LeaseRequest(False, self._request.term + 1)",
        "            self._request = LeaseRequest(False, self._request.term)",
        (f"{STRATEGIES}test_what_is_released_and_wanted_again_at_once_takes_a_new_place",),
        "a role that released the lead keeps leading",
    ),
    Mutant(
        "a-node-behind-anothers-leads-on", STRATEGY,
        "        if self.lease is not None:\n"
        '            self._lose("another candidate\'s node is before its own")\n', "",
        (f"{STRATEGIES}test_whose_node_comes_to_stand_behind_anothers_leads_no_more",),
        "two candidates believe that they lead after the servers lost recent changes",
    ),
    Mutant(
        "a-forked-child-leads", CANDIDATE,
        "lease.term != request.term or os.getpid() != self._pid:", "lease.term != request.term:",
        (f"{STRATEGIES}test_a_process_that_is_not_the_one_that_became_a_candidate_leads_nothing",),
        "a forked child process writes as the leader until the unrenewed lease ends",
    ),
    Mutant(
        "a-standby-is-always-at-the-end-of-the-log", "ledger/roles/projector/projector.py",
        "            if self._reached(self._reader.high_watermarks()):\n                self._at_end_at = now",
        "            self._at_end_at = now",
        ("tests/roles/test_projector.py::test_a_standby_that_never_comes_to_the_end_of_the_log_reads_everything_anew",),
        "when a standby becomes leader, jobs come back whose tombstones it missed",
    ),
    Mutant(
        "progress-that-was-overwritten-is-not-written-again", TERM,
        "            self._progressed.pop(partition, None)\n", "",
        ("tests/roles/test_projector.py::test_a_zombies_late_progress_is_written_over_though_nothing_has_changed",),
        "readers do not see the leader's progress until something changes",
    ),
    Mutant(
        "an-entry-that-cannot-be-encoded-stays-as-it-was", TERM,
        "        except LedgerError as error:\n            return str(error)\n",
        "        except LedgerError:\n            raise\n",
        ("tests/roles/test_projector.py::test_an_entry_that_no_record_can_hold_quarantines_its_job_alone",),
        "the reconciler acts on an entry that stays out of date, and nobody is warned",
    ),
    Mutant(
        "who-else-writes-to-restored-topics-is-not-looked-for", RESTORING,
        "            if reader.high_watermarks()[tp] != found.end:", "            if False:",
        ("tests/archive/restore/test_restoring.py::test_what_somebody_else_writes_beside_a_restore_keeps_it_from_being_finished",),
        "a restored ledger has foreign records at its end",
    ),
    Mutant(
        "a-restored-topic-may-be-longer-than-what-was-compared", RESTORING,
        "            if reader.high_watermarks()[tp] != found.end:",
        "            if reader.high_watermarks()[tp] < found.end:",
        ("tests/archive/restore/test_restoring.py::test_what_somebody_else_writes_beside_a_restore_keeps_it_from_being_finished",),
        "a restored ledger has foreign records at its end",
    ),
    Mutant(
        "restored-though-jobs-fold-otherwise", RESTORING,
        "        if not differences:\n", "        if True:\n",
        ("tests/archive/restore/test_restoring.py::test_what_folds_otherwise_than_its_archive_is_told_and_never_finished",),
        "roles start on a restored ledger whose jobs differ from the archived ones",
    ),
    Mutant(
        "what-looked-wrong-once-is-confirmed-for-good", RECONCILER,
        "                self._memory[job_id].confirm = None", "                pass",
        ("tests/roles/test_between.py::test_what_looks_wrong_again_is_confirmed_anew",),
        "a healthy job is stopped, because its entry is old",
    ),
    Mutant(
        "what-looks-wrong-is-confirmed-by-the-newest-end-of-the-log", RECONCILER,
        "            if memory.confirm is None:", "            if True:",
        ("tests/roles/test_between.py::test_what_looks_wrong_is_confirmed_though_others_go_on_writing",),
        "while others write, a lost job is not restarted, and a stalled one is not stopped",
    ),
    Mutant(
        "who-leads-no-more-goes-on-saying-what-jobs-wait-for", RECONCILER,
        "        self._note({})\n", "",
        ("tests/roles/test_reconciler.py::test_who_leads_no_more_says_of_no_job_what_it_waits_for",),
        "a wait that is over is still reported",
    ),
    Mutant(
        "a-start-that-is-not-wanted-any-more-is-waited-for", RECONCILER,
        "        if entry.state not in (JobState.CREATED, JobState.RESTARTING):\n"
        '            memory.backoff = ""\n', "",
        ("tests/roles/test_reconciler.py::test_a_job_that_is_not_to_start_any_more_does_not_wait_for_that",),
        "a suspended job is reported as waiting for its storage",
    ),
)  # fmt: skip
