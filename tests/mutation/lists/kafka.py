"""Mistakes in the use of Kafka: ends and positions, transactions, fences, errors, elections by a consumer group."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

READER, WRITER, SENDER, CLUSTER, ERRORS, TOPICS, STRATEGY, HEARTBEATS, MEMBER = (
    f"ledger/adapters/kafka/{name}.py"
    for name in ("reader", "writer", "sender", "cluster", "errors", "topics", "group_strategy", "heartbeats", "membership")
)
READS = "tests/adapters/test_kafka_reader.py"
JUDGED, ELECTED = "tests/adapters/test_kafka_errors.py", "tests/adapters/test_kafka_leadership.py"
FAULTS, STANDS = "tests/adapters/test_kafka_faults.py", "tests/adapters/test_kafka_by_stand_ins.py"
SAFE = "tests/adapters/test_safety_settings.py"

MUTANTS = (
    Mutant(
        "what-is-not-committed-is-read", READER,
        '"isolation.level": "read_committed"', '"isolation.level": "read_uncommitted"',
        (f"{SAFE}::test_a_reader_sees_what_is_committed_alone_and_never_jumps",), "facts of an aborted transaction are used",
    ),
    Mutant(
        "ends-of-partitions-are-not-passed", READER,
        "            self._position[tp] = max(self._position[tp], message.offset())\n        elif",
        "            pass\n        elif",
        (f"{STANDS}::test_an_end_that_is_told_moves_the_position_past_control_records",), "a reader never comes to the end of a log that ends with a control record",
    ),
    Mutant(
        "every-reader-begins-at-nought", READER,
        "max(at, begin.get(tp, 0))", "at",
        (f"{STANDS}::test_a_reader_begins_where_it_is_told_to",), "a cold start from a snapshot reads the whole log again",
    ),
    Mutant(
        "a-log-without-its-beginning-is-read", READER,
        '            if offset > 0 and "delete" not in', '            if offset > 1_000_000 and "delete" not in',
        (f"{READS}::test_a_topic_whose_beginning_was_deleted_is_no_ledger",), "a recovery set is made from a log without its beginning",
    ),
    Mutant(
        "a-topic-made-anew-is-read-on", READER,
        "            if shape is None or shape.id != self._ids[topic]:", "            if shape is None:",
        (f"{STANDS}::test_a_topic_made_anew_or_cut_off_breaks_the_reader_for_good",), "a leader continues with the records of a deleted topic",
    ),
    Mutant(
        "a-truncated-partition-is-read-on", READER,
        "            if end < self._position[tp]:", "            if end + 1_000_000 < self._position[tp]:",
        (f"{READS}::test_an_end_before_the_position_breaks_the_reader",), "a leader continues with facts that the log has lost",
    ),
    Mutant(
        "a-lost-place-is-read-on-from", READER,
        "        elif error.code() in POSITION_LOST:\n            self._break(",
        "        elif error.code() in POSITION_LOST:\n            log.info(",
        (f"{STANDS}::test_a_place_that_is_lost_breaks_the_reader_for_good",), "records that were deleted before they were read are missing without an error",
    ),
    Mutant(
        "a-broken-reader-forgets-that-it-is", READER,
        "        if self._broken is not None:\n            raise self._broken", "        if (broken := self._broken) is not None:\n"
        "            self._broken = None\n            raise broken",
        (f"{STANDS}::test_a_place_that_is_lost_breaks_the_reader_for_good",), "a role that retries continues with half a log",
    ),
    Mutant(
        "a-poll-has-no-bound", READER,
        "        most = max(1, min(records_max, POLL_MAX))", "        most = POLL_MAX",
        (f"{STANDS}::test_a_poll_hands_out_no_more_than_was_asked_for",), "a caller gets more records than it asked for",
    ),
    Mutant(
        "a-closed-writer-writes", WRITER,
        '        self._dead = self._dead or "it was closed"\n', "",
        (f"{STANDS}::test_a_closed_writer_says_so_and_writes_nothing",), "a leader that stepped down gets an unexpected error from its closed writer",
    ),
    Mutant(
        "a-fenced-writer-lives-on", WRITER,
        '        self._dead = why\n        self._drop()\n        raise self._fenced()',
        '        self._drop()\n        raise Fenced(why)',
        (f"{STANDS}::test_a_fenced_writer_is_not_brought_back",), "a stale leader gets a new epoch without proof that it leads",
    ),
    Mutant(
        "what-was-not-delivered-is-committed", WRITER,
        "        if self._failed:\n            self._give_up(events)\n\n    def _serve", "\n    def _serve",
        (f"{STANDS}::test_what_was_not_delivered_is_not_committed",), "half a transaction is in the log",
    ),
    Mutant(
        "a-record-too-large-is-not-named", WRITER,
        "        if large:\n", "        if large and False:\n",
        (f"{STANDS}::test_what_was_not_delivered_is_not_committed",), "one job with a too large entry stops the projector for all",
    ),
    Mutant(
        "the-end-of-a-transaction-may-be-repeated", WRITER,
        '        if parts and parts[0] in ("FAIL", "REQTMOUT"):', '        if parts and parts[0] == "REQTMOUT":',
        (f"{FAULTS}::test_a_writer_whose_commit_was_shaken_writes_no_more",), "a late end request splits the writer's next transaction",
    ),
    Mutant(
        "a-shaken-writer-goes-on", WRITER,
        "        if self._lines.shaken:\n", "        if self._lines.shaken and False:\n",
        (f"{FAULTS}::test_a_writer_whose_commit_was_shaken_writes_no_more",), "a late end request splits the writer's next transaction",
    ),
    Mutant(
        "a-shaken-line-of-long-ago-counts", WRITER,
        "            self._lines.shaken = False\n            transaction", "            transaction",
        (JUDGED,), "an idle connection that is closed ends a leader",
    ),
    Mutant(
        "an-unknown-outcome-is-tried-again", ERRORS,
        "    return FailureAction.RETRY if error.retriable() else FailureAction.FENCED", "    return FailureAction.RETRY",
        (f"{JUDGED}::test_classify",), "a superseded writer retries until its timeout",
    ),
    Mutant(
        "what-is-fatal-is-aborted", ERRORS,
        "    if error.fatal():\n        return FailureAction.FENCED\n    if error.txn_requires_abort():\n        return FailureAction.ABORT\n",
        "    if error.txn_requires_abort():\n        return FailureAction.ABORT\n    if error.fatal():\n        return FailureAction.FENCED\n",
        (f"{JUDGED}::test_classify",), "a fenced writer believes that it may continue",
    ),
    Mutant(
        "callbacks-hide-what-was-fatal", WRITER,
        "BROKEN = (KafkaException, SystemError, AttributeError)", "BROKEN = (KafkaException, AttributeError)",
        (f"{JUDGED}::test_a_fatal_error_that_the_callbacks_hid_still_tells_that_the_writer_is_fenced",), "a leader ends with an error of Python's instead of stepping down",
    ),
    Mutant(
        "who-leads-a-partition-is-asked-of-the-same-client", CLUSTER,
        '                self.__dict__.pop("admin", None)  # the next query uses a new client without old metadata\n', "",
        (JUDGED,), "after a failover of the brokers a role asks the wrong broker for ever",
    ),
    Mutant(
        "an-outage-is-a-refusal", CLUSTER,
        "            if error.retriable() or error.code() < 0 or error.code() in PASSING:", "            if error.retriable():",
        (f"{JUDGED}::test_it_is_asked_again_only_while_that_can_help",), "a role ends with a settings error when a broker is down",
    ),
    Mutant(
        "a-topic-that-is-missing-is-unreachable", CLUSTER,
        "            if error_of(exception).code() in _MISSING:\n                return None\n", "",
        (f"{STANDS}::test_a_topic_that_is_missing_is_told_by_its_name",), "if topics are missing, the error is that Kafka does not answer",
    ),
    Mutant(
        "a-refused-record-has-an-unknown-outcome", SENDER,
        "        elif report.error.code() in _REFUSALS:", "        elif report.error.code() in TOO_LARGE:",
        (JUDGED,), "an agent resends for ever a record that Kafka will never accept",
    ),
    Mutant(
        "a-broken-producer-is-kept", SENDER,
        "            self._replace(producer)\n", "            pass\n",
        (JUDGED,), "an agent never sends again after one fatal error",
    ),
    Mutant(
        "what-nobody-answered-is-refused", SENDER,
        "            raise OutcomeUnknown(f\"No acknowledgement of", "            raise Refused(f\"No acknowledgement of",
        (JUDGED,), "a fact that may be stored is abandoned",
    ),
    Mutant(
        "the-lease-of-a-group-counts-from-the-answer", STRATEGY,
        "Lease(request.term, sent_at + self._session_timeout_s * 2 / 3, since)",
        "Lease(request.term, self._clock.monotonic() + self._session_timeout_s * 2 / 3, since)",
        (f"{ELECTED}::test_the_lease_counts_from_the_sending_of_what_was_answered",), "a leader believes that it leads although the group has another leader",
    ),
    Mutant(
        "the-lease-of-a-group-lasts-a-whole-session", STRATEGY,
        "Lease(request.term, sent_at + self._session_timeout_s * 2 / 3, since)", "Lease(request.term, sent_at + self._session_timeout_s * 2, since)",
        (f"{ELECTED}::test_the_lease_counts_from_the_sending_of_what_was_answered",), "a leader believes that it leads although the group has another leader",
    ),
    Mutant(
        "whoever-wants-to-lead-enters-at-once", STRATEGY,
        "        if heartbeat is None or heartbeat.left or seen.unchanged_s >= 0.9 * self._session_timeout_s:", "        if True:",
        (f"{ELECTED}::test_nobody_enters_while_another_gives_signs",), "each new candidate costs the leader a rebalance",
    ),
    Mutant(
        "silence-of-the-broker-is-silence-of-the-leader", HEARTBEATS,
        "            gap_s = min(now - before.asked_at, 2 * self._every_s)", "            gap_s = now - before.asked_at",
        (f"{ELECTED}::test_time_without_answers_is_not_the_leaders_silence",), "after an outage every standby believes that the lead is free",
    ),
    Mutant(
        "an-empty-answer-is-a-free-group", HEARTBEATS,
        "(value != self._value and value[0] >= 0)", "value != self._value",
        (f"{ELECTED}::test_an_empty_answer_after_signs_is_no_sign_that_nobody_leads",), "a coordinator that is loading costs the leader its group",
    ),
    Mutant(
        "partitions-of-a-topic-are-not-counted", TOPICS,
        "        if shape.partitions != spec.partitions:\n", "        if shape.partitions < spec.partitions:\n",
        (f"{STANDS}::test_a_topic_of_other_partitions_or_that_is_missing_or_half_restored_is_no_ledger",), "with more partitions than configured, jobs are looked up in the wrong partition",
    ),
    Mutant(
        "what-is-half-restored-is-a-ledger", TOPICS,
        "        if is_restoring(found):", "        if False:",
        (f"{STANDS}::test_a_topic_of_other_partitions_or_that_is_missing_or_half_restored_is_no_ledger",), "roles start on half a ledger",
    ),
)  # fmt: skip
