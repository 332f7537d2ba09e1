"""Mistakes in the agent and supervisor of subprocesses: liveness, exit codes, retention, and facts that are sent."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

RUNNER = "ledger/adapters/runners/subprocess"
VERDICTS, PROCS = f"{RUNNER}/supervisor/verdicts.py", f"{RUNNER}/supervisor/procs.py"
FILES, LOGS = f"{RUNNER}/supervisor/files.py", f"{RUNNER}/supervisor/logs.py"
RETENTION, HOLDS, PAST = f"{RUNNER}/retention.py", f"{RUNNER}/holds.py", f"{RUNNER}/log_retention.py"
SENDER = f"{RUNNER}/sender.py"
JUDGED, SIGNALLED = "tests/adapters/runners/test_verdicts.py::", "test_a_signal_is_128_and_its_number_as_shells_say"
LIVING, WRITTEN = "tests/adapters/runners/test_processes.py::", "tests/adapters/runners/test_files.py::"
SUBSUMED = "tests/adapters/runners/test_retention.py::test_which_checkpoints_are_subsumed"
SENT, LAST = "tests/adapters/runners/test_sender.py::", "tests/adapters/runners/test_last_lines.py::"
HELD = "tests/adapters/runners/test_holds.py::"

MUTANTS = (
    Mutant(
        "signal-is-counted-from-127", VERDICTS, "exit_code += 128", "exit_code += 127",
        (f"{JUDGED}{SIGNALLED}",),
        "a failure rule for an exit code matches another signal",
    ),
    Mutant(
        "rule-fits-any-exit-code", VERDICTS, ' if rule.get("exit_code") in (None, exit_code)]', "]",
        (f"{JUDGED}test_the_first_rule_that_fits",),
        "a failure that should be retried is permanent",
    ),
    Mutant(
        "last-rule-comes-first", VERDICTS, "rule = candidates[0]\n", "rule = candidates[-1]\n",
        (f"{JUDGED}test_the_first_rule_that_fits",),
        "a failure gets the label of a rule that was meant for the rest",
    ),
    Mutant(
        "permanence-is-forgotten", VERDICTS,
        '"failed-permanent" if rule.get("permanent") else "failed", f"{rule', '"failed", f"{rule',
        (f"{JUDGED}test_the_first_rule_that_fits",),
        "a job that can't succeed is restarted again and again",
    ),
    Mutant(
        "pid-without-start-time", PROCS, ' and found.start_time == who.get("start_time")', "",
        (f"{LIVING}test_a_process_is_alive_by_pid_start_time_and_boot",),
        "a foreign process that reuses the pid is taken for the attempt",
    ),
    Mutant(
        "pid-without-boot", PROCS, ' or who.get("boot_id") != boot_id()', "",
        (f"{LIVING}test_a_process_is_alive_by_pid_start_time_and_boot",),
        "a process from after a reboot is taken for the attempt",
    ),
    Mutant(
        "stat-is-cut-at-the-first-parenthesis", PROCS, 'line.rpartition(")")', 'line.partition(")")',
        (f"{LIVING}test_the_name_of_a_process_may_hold_anything",),
        "an attempt whose program has an odd name is taken for dead",
    ),
    Mutant(
        "dead-by-its-main-thread", PROCS, ' and int(fields[17]) <= 1', "",
        (f"{LIVING}test_a_process_whose_main_thread_has_ended_is_not_dead",),
        "a second attempt starts while threads of the first still run",
    ),
    Mutant(
        "handler-of-the-next-signal", PROCS, ">> (number - 1) & 1", ">> number & 1",
        (f"{LIVING}test_a_signal_is_caught_only_by_whoever_has_a_handler",),
        "the signal for a savepoint kills a job without a handler",
    ),
    Mutant(
        "file-is-created-by-all", FILES,
        "    except FileExistsError:\n        return False", "    except FileExistsError:\n        pass",
        (f"{WRITTEN}test_of_many_that_create_a_file_one_succeeds",),
        "an attempt starts twice",
    ),
    Mutant(
        "file-is-written-in-place", FILES,
        "    _write(temporary, data)\n    os.replace(temporary, path)\n",
        "    temporary = path\n    _write(temporary, data)\n",
        (f"{WRITTEN}test_who_reads_while_a_file_is_replaced_reads_one_or_the_other",),
        "readers see half a file, and after a crash only half of it is left",
    ),
    Mutant(
        "json-of-any-kind", FILES, "if not isinstance(value, dict):", "if value is None:",
        (f"{WRITTEN}test_what_is_no_json_object_is_damaged",),
        "a damaged file stops the agent instead of only its job",
    ),
    Mutant(
        "numbers-in-order-of-their-text", FILES, "return sorted(found)", "return sorted(found, key=lambda one: one[1])",
        (f"{WRITTEN}test_numbered_files_come_in_order_and_others_not_at_all",),
        "the tenth fact of a job is sent before the second",
    ),
    Mutant(
        "savepoints-are-subsumed", RETENTION, "if kind is CheckpointKind.CHECKPOINT and (n", "if (n",
        (SUBSUMED,),
        "savepoints that nobody disposed of are deleted",
    ),
    Mutant(
        "base-of-a-running-attempt-goes", RETENTION, "(n == top or not attempt.over)", "n == top",
        (SUBSUMED,),
        "a checkpoint that an attempt still reads is deleted",
    ),
    Mutant(
        "base-of-the-highest-attempt-goes", RETENTION, "(n == top or not attempt.over)", "not attempt.over",
        (SUBSUMED,),
        "the restore point of the next attempt is deleted",
    ),
    Mutant(
        "base-itself-is-no-restore-point", RETENTION, "number <= below", "number < below",
        (SUBSUMED,),
        "the newest remaining restore point is deleted",
    ),
    Mutant(
        "chain-of-the-highest-attempt-goes", RETENTION,
        "kept = set(islice(_downwards(attempts, top, None), keep))", "kept = set[CheckpointKey]()",
        (SUBSUMED,),
        "the bases of an attempt without checkpoints are deleted",
    ),
    Mutant(
        "deleted-before-there-are-enough", RETENTION, "if len(kept) < keep:", "if not kept:",
        (SUBSUMED,),
        "a checkpoint without a newer replacement is deleted",
    ),
    Mutant(
        "nothing-is-held-before-an-answer", HOLDS,
        "held is None or job_id in held", "held is not None and job_id in held",
        (f"{HELD}test_until_somebody_knows_every_job_is_held",),
        "logs of a pinned job are deleted right after a start",
    ),
    Mutant(
        "held-by-an-old-answer", HOLDS, 'self._held, complaint = None, f"', 'complaint = f"',
        (f"{HELD}test_until_somebody_knows_every_job_is_held",),
        "logs of a job that was just pinned are deleted",
    ),
    Mutant(
        "held-logs-are-deleted", PAST, " and not held(path.name)", "",
        (f"{HELD}test_log_retention_of_a_held_job_neither_go_nor_count",),
        "logs of a pinned job are lost",
    ),
    Mutant(
        "newest-past-logs-go-first", PAST, "path.stat().st_mtime)[", "-path.stat().st_mtime)[",
        ("tests/adapters/runners/test_log_retention.py::test_the_logs_that_are_past_the_longest_go_first",),
        "the logs of a job are deleted as soon as it is forgotten",
    ),
    Mutant(
        "produced-again-while-under-way", SENDER, "if event.key not in self._pending:", "if event.key:",
        (f"{SENT}test_a_message_without_a_report_is_not_produced_again_while_it_is_under_way",),
        "a slow broker gets the same facts over and over",
    ),
    Mutant(
        "failure-leaves-it-under-way", SENDER,
        "            self._pending.discard(event.key)\n            if error is None:\n",
        "            if error is None:\n                self._pending.discard(event.key)\n",
        (f"{SENT}test_a_message_that_failed_is_produced_again",),
        "a fact that was refused once is never sent",
    ),
    Mutant(
        "failure-is-an-acknowledgement", SENDER, "if error is None:", "if error is None or not error.fatal():",
        (f"{SENT}test_a_message_that_failed_is_produced_again",),
        "a fact that no broker has is removed from the outbox",
    ),
    Mutant(
        "fatal-producer-stays", SENDER,
        "            self._producer = None\n\n    def _say", "            pass\n\n    def _say",
        (f"{SENT}test_a_fatal_error_brings_a_new_producer_and_everything_again",),
        "an agent sends nothing more until it is restarted",
    ),
    Mutant(
        "full-queue-is-an-error", SENDER,
        "            producer.poll(0)  # the queue is full", "            raise  # the queue is full",
        (f"{SENT}test_a_full_queue_is_no_error",),
        "an agent with much to say stops sending",
    ),
    Mutant(
        "settings-override-what-safety-needs", SENDER,
        '            **properties,\n            "enable.idempotence": True,\n            "acks": "all",\n',
        '            "enable.idempotence": True,\n            "acks": "all",\n            **properties,\n',
        (f"{SENT}test_what_safety_needs_cant_be_configured_away",),
        "a fact counts as sent although a broker's death can lose it",
    ),
    Mutant(
        "wiped-bar-is-the-last-word", LOGS, 'if part.strip()), "")', 'if part is not None), "")',
        (f"{LAST}test_of_a_line_that_was_rewritten_what_was_written_last",),
        "the recorded cause of a failure is an empty line",
    ),
    Mutant(
        "first-bytes-for-the-last", LOGS, "[-TAIL_BYTES:]", "[:TAIL_BYTES]",
        (f"{LAST}test_of_more_than_is_kept_the_last_is_there",),
        "the recorded cause of a failure is the beginning of the job's output",
    ),
)
