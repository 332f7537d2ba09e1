"""One mistake for each guarantee of docs/GUARANTEES.md that breaks it, with a test that the page names for it."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

#: Heading of a guarantee -> a mistake that breaks it.
GUARANTEES = {
    "An acknowledged fact is durable": Mutant(
        "unheard-counts-as-refused", "ledger/producer/recorder.py",
        "                elif maybe_stored or self._outbox is not None:",
        "                elif self._outbox is not None:",
        (
            "tests/producer/test_recording.py::test_an_unheard_acknowledgement_is_told_apart_and_sending_again_sends_the_same_bytes",
        ),
        "a caller considers a stored fact lost",
    ),
    "The state of a job does not depend on how its facts arrived": Mutant(
        "intents-by-order-of-arrival", "ledger/core/fold/job.py",
        "            key=lambda x: (x[1].kind is IntentKind.CANCEL, x[0].rev, INTENT_RANK[x[1].kind], x[0].uuid),",
        "            key=lambda x: (x[1].kind is IntentKind.CANCEL, x[0].rev),",
        ("tests/core/fold/test_fold.py", "tests/laws/test_laws.py"),
        "two leaders disagree on whether a job runs",
    ),
    "A job that is over stays over": Mutant(
        "a-spec-outlives-the-result", "ledger/core/fold/rules.py",
        "lambda s: s.job.result is not None, _result)",
        "lambda s: s.job.result is not None and s.job.spec is None, _result)",
        ("tests/laws/test_laws.py",),
        "a copy of a retired job's spec starts it again",
    ),
    "Readers see the writes of one leader, whatever the election says": Mutant(
        "records-of-old-epochs-count", "ledger/core/model/published.py",
        '        return "stale" if epoch < claimed else ""',
        '        return ""',
        (
            "tests/roles/test_projector.py::test_a_zombies_late_record_is_written_over_by_the_leader",
            "tests/core/model/test_published.py",
        ),
        "a superseded leader changes the entries that readers see",
    ),
    "A leader never publishes from a part of the log": Mutant(
        "the-end-is-the-last-stable-offset", "ledger/adapters/kafka/cluster.py",
        "IsolationLevel.READ_UNCOMMITTED",
        "IsolationLevel.READ_COMMITTED",
        ("tests/contract/test_eventlog.py",),
        "a leader publishes without the records behind an open transaction",
    ),
    "The published entries agree with the log": Mutant(
        "what-was-covered-stays-covered", "ledger/roles/projector/term.py",
        "        if same_meaning(entry, before) and not overwritten:",
        "        if same_meaning(entry, before):",
        ("tests/roles/test_projector.py",),
        "log compaction removes an entry that a stale record follows",
    ),
    "An attempt is started at most once, and no two attempts of a job run at once": Mutant(
        "a-fence-is-not-put-up", "ledger/tasks.py",
        "    return runner.fence(task.job_id, task.n)",
        "    return []",
        ("tests/roles/test_reconciler.py::test_a_lost_attempt_is_fenced_before_its_successor_starts",),
        "a late start runs at the same time as its successor",
    ),
    "A job resumes from its newest valid checkpoint, never silently from scratch": Mutant(
        "what-does-not-verify-begins-from-scratch", "ledger/tasks.py",
        "    if refused or task.restore_from_named:",
        "    if task.restore_from_named and not refused:",
        ("tests/roles/test_reconciler.py::test_no_valid_checkpoint_quarantines_and_never_begins_from_scratch",),
        "a job silently loses all its work",
    ),
    "A savepoint request reaches the running attempt": Mutant(
        "any-checkpoint-answers-an-ask", "ledger/core/fold/savepoints.py",
        "    spent = {fact.ask for fact in facts if fact.kind is CheckpointKind.SAVEPOINT}",
        "    spent = {fact.ask for fact in facts} | ({ask.uuid for ask in job.asks} if facts else set())",
        ("tests/core/fold/test_savepoints.py",),
        "a savepoint request never gets an answer",
    ),
    "A job with a savepoint interval gets periodic requests, whoever leads": Mutant(
        "an-ask-is-repeated-under-its-name", "ledger/core/fold/savepoints.py",
        "Periodic(last.after, last.tries + 1)",
        "Periodic(last.after, last.tries)",
        ("tests/core/fold/test_periodic_savepoints.py",),
        "a job that once gave no answer is never asked again",
    ),
    "The disposal of a savepoint is recorded first, and a needed savepoint is never deleted": Mutant(
        "what-others-need-is-deleted", "ledger/core/plan/reconcile.py",
        "        free = tuple(point for point, user in users.items() if not user)",
        "        free = tuple(users)",
        ("tests/roles/test_periodic_savepoints.py", "tests/core/fold/test_disposed.py"),
        "a job loses the savepoint that it started from",
    ),
    "A replacement never runs together with the old job, and one of the two always continues": Mutant(
        "two-may-replace-one", "ledger/core/plan/replacing.py",
        "    if rival:\n"
        "        return ReplacementStep(refuse",
        "    if rival and new.proven:\n"
        "        return ReplacementStep(refuse",
        ("tests/core/plan/test_replacing.py::test_laws_of_a_pass", "tests/roles/test_replacing.py"),
        "two jobs continue the work of one",
    ),
    "No checkpoint is deleted while it may be needed": Mutant(
        "the-base-may-go", "ledger/adapters/runners/subprocess/retention.py",
        "if attempt.base and (n == top or not attempt.over)}",
        "if attempt.base and n == top and attempt.over}",
        ("tests/adapters/runners/test_retention.py::test_the_base_of_a_running_attempt_stays_and_later_goes",),
        "a running attempt loses the checkpoint that it reads",
    ),
    "A broken job harms no other job": Mutant(
        "entries-of-any-size-are-written", "ledger/roles/projector/term.py",
        "if size > self._settings.record_bytes_max else",
        "if size < 0 else",
        ("tests/roles/test_projector.py::test_an_entry_that_no_record_can_hold_quarantines_its_job_alone",),
        "one job with long texts stops every projector",
    ),
    "A full disk loses no acknowledged fact": Mutant(
        "a-full-disk-has-room", "ledger/adapters/local/disk_space.py",
        "        if disk.f_bavail * disk.f_frsize < room_bytes or",
        "        if disk.f_bavail * disk.f_frsize < 0 or",
        ("tests/adapters/test_disk_space.py",),
        "facts are accepted that can't be stored, and lost",
    ),
    "Nothing depends on Spark's own checkpoint": Mutant(
        "epochs-share-a-checkpoint", "ledger/adapters/spark/stream.py",
        '        checkpoint = self._folder / f"epoch-{epoch}"\n'
        "        self._make_way(checkpoint)\n",
        '        checkpoint = self._folder / "epoch-1"\n',
        (
            "tests/adapters/test_spark.py::test_every_epoch_reads_anew_in_bounded_batches_and_drops_what_no_reader_needs",
        ),
        "because of a damaged checkpoint the cluster has no reconciler",
    ),
    "Operators are notified at least once": Mutant(
        "a-new-leader-tells-nothing", "ledger/roles/projector/term.py",
        "            self._on_entry(entry)\n"
        "        return {",
        "            pass\n"
        "        return {",
        ("tests/app/test_notifying.py", "tests/roles/test_projector.py"),
        "a quarantine is missed when the leader dies just then",
    ),
    "Failures of the ledger do not affect running jobs": Mutant(
        "a-job-shares-the-agents-session", "ledger/adapters/runners/subprocess/prepare.py",
        ", start_new_session=True\n", "\n",
        ("tests/adapters/runners/test_agents.py::test_what_is_sent_to_the_agents_terminal_reaches_no_job",),
        "an event that ends the agent, such as a closed terminal or a signal to its group, also ends the jobs",
    ),
    "No process of an attempt outlives it": Mutant(
        "no-subreaper", "ledger/adapters/runners/subprocess/supervisor/main.py",
        "        become_subreaper()\n",
        "        pass\n",
        ("tests/adapters/runners/test_supervisors.py::test_nothing_of_a_job_outlives_it",),
        "a daemon of an old attempt writes at the same time as its successor",
    ),
    "A restart budget survives any failover": Mutant(
        "times-of-failures-are-forgotten", "ledger/core/fold/restart.py",
        "    return FailureHistory(record.failures, tuple(t for t in record.failure_times if math.isfinite(t)), record.recorded_at)",
        "    return FailureHistory(record.failures, (), record.recorded_at)",
        (
            "tests/core/fold/test_restart.py",
            "tests/roles/test_reconciler.py::test_a_failure_rate_survives_leaders_and_counts_by_when_it_failed",
        ),
        "a job that always fails is restarted for ever",
    ),
    "A permanent failure is not retried": Mutant(
        "a-permanent-rule-only-labels", "ledger/adapters/runners/subprocess/supervisor/verdicts.py",
        '    return "failed-permanent" if rule.get("permanent") else "failed", f',
        '    return "failed", f',
        ("tests/adapters/runners/test_verdicts.py",),
        "a job that can't succeed uses up its restart budget",
    ),
    "A job without progress is detected, and a healthy job is never mistaken for one": Mutant(
        "a-new-leader-judges-at-once", "ledger/roles/projector/stalls.py",
        "            or (time_s >= stalls_at and now >= may_judge)",
        "            or time_s >= stalls_at",
        ("tests/roles/test_stalls.py",),
        "an outage stops healthy jobs",
    ),
    "A slot is never assigned twice, and a stale job keeps no slot from a live one": Mutant(
        "strays-hold-no-slot", "ledger/core/plan/reconcile.py",
        "                held[pool.name] += len(attempts)",
        "                held[pool.name] += 0",
        ("tests/roles/test_pools.py", "tests/core/plan/test_pools.py"),
        "more attempts run than there are slots",
    ),
    "A region restarts together, once for each failure, and no other job does": Mutant(
        "beside-the-one-that-failed-is-not-before", "ledger/core/plan/regions.py",
        "beside.get(other.job_id, 0) <= other.attempt]",
        "beside.get(other.job_id, 0) < other.attempt]",
        ("tests/core/plan/test_regions.py",),
        "the other members keep running although one went back to an older checkpoint",
    ),
    "The actions of a new leader can be shown in advance, without risk": Mutant(
        "a-plan-starts-what-has-begun-meanwhile", "ledger/operations/planning.py",
        "    actions = [action for action in actions if action.job_id not in begun]\n", "",
        ("tests/operations/test_planning.py",),
        "a plan contains a start that no leader would perform",
    ),
    "Nothing is ignored silently": Mutant(
        "rejects-lose-their-reason", "ledger/reader/rejects.py",
        "        reason=reason[:REASON_CHARS], headers",
        '        reason="", headers',
        ("tests/reader/test_rejects.py",),
        "nothing records why a record was not used",
    ),
    "No input of a producer disturbs others": Mutant(
        "entries-are-written-in-any-partition", "ledger/roles/projector/term.py",
        "        return [(job_id, partition)] if self._is_home(job_id, partition) else []",
        "        return [(job_id, partition)] if is_job_id(job_id) else []",
        ("tests/roles/test_projector.py", "tests/roles/test_bad_input.py"),
        "one misplaced record tombstones a job of another partition",
    ),
    "When a job is over, its checkpoints are deleted or kept as its spec says": Mutant(
        "checkpoints-always-go", "ledger/roles/reconciler/ending.py",
        "    dispose = entry.checkpoint_retention is CheckpointRetention.DELETE",
        "    dispose = True",
        ("tests/roles/test_checkpoint_retention.py",),
        "checkpoints that must be kept are deleted",
    ),
    "Every request to the ledger may be repeated": Mutant(
        "a-cancel-is-wanted-anew-each-time", "ledger/operations/intents.py",
        "    if wins is None or wins.kind != kind or kind is IntentKind.RETRY:",
        "    if wins is None or wins.kind != kind or kind is not IntentKind.RETRY:",
        ("tests/operations/test_intents.py",),
        "each repeated cancel adds a fact",
    ),
    "The ledger never starts or stops an outside job": Mutant(
        "an-outside-job-is-planned-as-ours", "ledger/core/plan/reconcile.py",
        "    return outside.decide(entry) if entry.runner == outside.OUTSIDE else decide(entry, report, known)",
        "    return decide(entry, report, known)",
        ("tests/producer/test_outside_with_roles.py",),
        "the ledger starts outside jobs or records them as lost",
    ),
    "A finished job leaves only its result and its savepoints": Mutant(
        "what-comes-after-the-result-stays", "ledger/core/fold/fold.py",
        "    if job.result is not None:\n"
        "        return [register for register in job.names if not isinstance(register, LASTING)]",
        "    if job.result is not None:\n"
        "        return []",
        ("tests/roles/test_projector.py",),
        "the log grows with each job that was ever run",
    ),
    "Leftovers of a crash are found, and nothing else is deleted": Mutant(
        "graphs-of-specs-are-no-claims", "ledger/core/garbage.py",
        "        graphs |= {spec.graph.uri for spec in held}",
        "        graphs |= {spec.graph.uri for spec in held[1:]}",
        ("tests/core/test_garbage.py",),
        "the graph of a job that is not started yet is deleted",
    ),
    "The archive holds each record of the log once, and any change to it is found": Mutant(
        "one-witness-is-enough-for-a-manifest", "ledger/archive/format/chain.py",
        '    if any(claim not in ("", manifest.sha256) for claim in claims):',
        '    if all(claim not in ("", manifest.sha256) for claim in claims):',
        ("tests/archive/format/test_chain.py",),
        "a change in the archive is not detected",
    ),
    "A note records each removal from the archive, and all other records stay proved": Mutant(
        "retention-counts-from-now", "ledger/archive/removal/expiring.py",
        "int((now_s - seconds) * 1000), mine)",
        "int(now_s * 1000), mine)",
        ("tests/archive/removal/test_expiring.py",),
        "records that must be kept for years are deleted at once",
    ),
    "An archive can be restored, completely or not at all": Mutant(
        "what-was-restored-is-not-compared", "ledger/archive/restore/restoring.py",
        "            if self._read_back(tp, wanted.end, into) != wanted.digest():",
        '            if self._read_back(tp, wanted.end, into) == "":',
        ("tests/archive/restore/test_restoring.py",),
        "a restored ledger has other records than the archive",
    ),
    "An answer about the past is exact, or refused": Mutant(
        "the-past-is-answered-from-what-is-left", "ledger/history/resolve_moment.py",
        "        if (tp in named or not hole) and _has_all(sealed, end, own_s if end < by_time[tp] else time_s):",
        "        if tp in named or not hole:",
        ("tests/history/test_historical_log.py::test_what_compaction_may_have_taken_is_refused_and_not_made_up",),
        "an answer about last week is computed from today's remaining records",
    ),
    "A snapshot reduces the cost of an answer about the past, and does not change it": Mutant(
        "the-oldest-snapshot-is-taken", "ledger/archive/snapshots/snapshots.py",
        "    return found[-1] if found else None",
        "    return found[0] if found else None",
        (
            "tests/history/test_historical_log.py::test_from_a_snapshot_it_is_the_same",
            "tests/archive/snapshots/test_snapshots_on_schedule.py",
        ),
        "each question about the past reads the whole archive",
    ),
    "A projector that starts from snapshots equals one that has read the log": Mutant(
        "a-snapshot-has-no-age", "ledger/roles/projector/cold_start.py",
        "        if old_s > age_max_s:",
        "        if old_s < 0:",
        ("tests/history/test_cold_start.py::test_what_was_over_does_not_come_back_from_a_snapshot_that_is_too_old",),
        "finished jobs come back",
    ),
    "A query gives the same answer as a reader": Mutant(
        "queries-count-stale-records", "ledger/archive/query/views.py",
        "    coalesce(epoch > 0 AND epoch = claimed, false) AS effective,",
        "    coalesce(epoch > 0, false) AS effective,",
        ("tests/archive/query/test_querying.py",),
        "an audit shows records that no reader accepted",
    ),
    "A bundle gives the same answers as the ledger": Mutant(
        "seals-are-not-compared", "ledger/archive/store/sealing.py",
        '    return "" if found == digest else "is missing" if',
        '    return "" if found else "is missing" if',
        ("tests/cli/test_sealed_bundles.py", "tests/cli/test_bundles.py"),
        "altered evidence passes as intact",
    ),
    "Pinned data is kept until the pin is removed": Mutant(
        "pins-hold-nothing", "ledger/core/garbage.py",
        "        elif one.job_id in held:",
        "        elif one.job_id in held and one.alive:",
        ("tests/core/test_garbage.py::test_all_of_a_pinned_job_is_spared_with_the_pin_as_the_reason",),
        "pinned evidence is deleted",
    ),
    "Old records stay readable": Mutant(
        "an-unknown-retention-is-taken-for-a-known-one", "ledger/core/model/policies.py",
        "    if spec.checkpoint_retention is CheckpointRetention.UNKNOWN:",
        "    if spec.checkpoint_retention is None:",
        ("tests/core/fold/test_entry.py::test_a_spec_that_this_version_does_not_know_is_not_started",),
        "an older version guesses the meaning of a newer version's value",
    ),
    "Wrong topic settings are found before they do harm": Mutant(
        "tombstones-may-go-too-soon", "ledger/adapters/kafka/topics.py",
        '    "delete.retention.ms": (_at_least,',
        '    "delete.retention.ms": (_at_most,',
        ("tests/adapters/test_topics.py::test_each_wrong_setting_is_found_and_what_it_says_mends_it",),
        "a reader that was paused misses tombstones, and finished jobs come back",
    ),
}  # fmt: skip
MUTANTS = tuple(GUARANTEES.values())
