"""Mistakes in exclusive access: locks on files, files that are created once, objects that are never changed. And mistakes in
the settings of Kafka's clients and topics that guarantees depend on.
"""

from __future__ import annotations

from tests.mutation.mutant import Mutant

LOCK, OBJECTS, ZIPPED = (f"ledger/adapters/local/{name}.py" for name in ("leadership", "objects", "zipped"))
MEMORY, KEYS = "ledger/adapters/memory/objects.py", "ledger/adapters/ed25519.py"
UNPACKING = "ledger/adapters/runners/subprocess/unpacking.py"
KAFKA = "ledger/adapters/kafka"
WRITER, SENDER, RESTORING, TOPICS, LOG = (
    f"{KAFKA}/{name}.py" for name in ("writer", "sender", "restore_target", "topics", "log")
)
LOCKED, STORED = "tests/adapters/test_file_lock.py::", "tests/contract/test_objects.py::"
SAFE, JUDGED = "tests/adapters/test_safety_settings.py::", "tests/adapters/test_topics.py::test_rules"
WRITES = f"{SAFE}test_a_writer_is_idempotent_waits_for_all_replicas_and_ends_its_transactions_in_time"
SENDS = f"{SAFE}test_a_sender_is_idempotent_and_waits_for_all_replicas_for_as_long_as_it_was_told"
RESTORES, SET = f"{SAFE}test_a_restore_is_idempotent_and_waits_for_all_replicas", f"{SAFE}test_every_setting_of_every_topic"
NEVER = f"{STORED}test_what_is_there_is_never_changed"

MUTANTS = (
    # -- locks
    Mutant(
        "two-hold-the-lock", LOCK, "fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH | fcntl.LOCK_NB",
        (f"{LOCKED}test_a_stopped_holder_keeps_the_lock",), "two candidates lead at the same time",
    ),
    Mutant(
        "a-lock-on-a-file-that-is-gone-counts", LOCK,
        "            return os.path.samestat(os.fstat(self._handle), self._path.stat())", "            return True",
        (f"{LOCKED}test_a_lock_on_a_file_that_was_replaced_is_none",), "two candidates lead at the same time after somebody deleted the lock file",
    ),
    Mutant(
        "the-file-was-replaced-before-the-lock", LOCK,
        "        if not self.valid():  # the file was replaced between open and lock\n", "        if handle < 0:\n",
        (f"{LOCKED}test_a_file_that_is_replaced_between_open_and_lock_makes_nobody_lead",), "two candidates lead at the same time",
    ),
    Mutant(
        "an-old-lock-file-stays-open-to-others", LOCK,
        "            os.fchmod(handle, 0o600)  # an earlier version created it readable by other users\n", "",
        (f"{LOCKED}test_a_lock_file_that_an_earlier_version_made_is_closed_to_others",),
        "any user of the host keeps the ledger without a leader",
    ),
    Mutant(
        "a-pid-of-another-container-is-gone", LOCK, ' or signed.get("pid_namespace") != pid_namespace()', "",
        (f"{LOCKED}test_a_lock_of_another_pid_namespace_is_believed",), "operators are told to look for a process that leads correctly",
    ),
    Mutant(
        "a-scribbled-lock-stops-who-looks", LOCK, "except (ValueError, KeyError, TypeError):", "except (KeyError, TypeError):",
        (f"{LOCKED}test_a_scribbled_file_still_has_a_holder",), "a candidate fails instead of waiting",
    ),
    # -- files and objects created once
    Mutant(
        "an-object-in-a-folder-is-replaced", OBJECTS, "                os.link(temporary, path)\n",
        "                os.replace(temporary, path)\n", (NEVER,), "a second archiver replaces the first one's objects",
    ),
    Mutant(
        "an-object-that-is-there-was-created", OBJECTS, "            except FileExistsError:\n                return False",
        "            except FileExistsError:\n                return True",
        (NEVER,), "two archivers continue from different heads, and one head is not in the chain",
    ),
    Mutant(
        "an-object-in-memory-is-replaced", MEMORY, "            if name in self.stored:\n                return False\n", "",
        (NEVER,), "tests of an archive see behaviour that no real store has",
    ),
    Mutant(
        "a-member-of-a-zip-is-written-twice", ZIPPED,
        "            if name in self._names:\n                return False\n", "",
        (NEVER,), "a bundle holds two objects with one name, and readers may take either",
    ),
    Mutant(
        "a-zip-that-is-there-is-written-over", ZIPPED, "os.O_CREAT | os.O_EXCL | os.O_CLOEXEC", "os.O_CREAT | os.O_CLOEXEC",
        ("tests/adapters/test_zipped.py::test_a_zip_that_is_there_is_not_written_over",), "a wrong file name overwrites existing evidence",
    ),
    Mutant(
        "a-key-that-is-there-is-written-over", KEYS, "os.O_CREAT | os.O_EXCL, mode", "os.O_CREAT | os.O_TRUNC, mode",
        ("tests/archive/anchors/test_anchoring.py::test_a_key_is_made_whole_or_not_at_all",), "an existing key is overwritten, and nothing is signed with the known key any more",
    ),
    Mutant(
        "a-member-of-a-graph-takes-anothers-place", UNPACKING, "os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW", "os.O_CREAT | os.O_NOFOLLOW",
        ("tests/adapters/runners/test_graphs.py::test_a_hostile_graph_is_refused_and_writes_nothing_outside",),
        "a graph runs another program than its listing shows",
    ),
    # -- producers
    Mutant(
        "a-user-makes-the-writer-unsafe", WRITER, "{**SENDING, **self._client, **_SAFETY,", "{**SENDING, **_SAFETY, **self._client,",
        (WRITES,), "records count although only one broker had them",
    ),
    Mutant(
        "a-writer-does-not-wait-for-all-replicas", WRITER, '    "acks": "all",\n', "", (WRITES,),
        "records count although only one broker had them",
    ),
    Mutant(
        "a-writer-is-not-idempotent", WRITER, '    "enable.idempotence": "true",\n', "", (WRITES,),
        "a resend is a second record",
    ),
    Mutant(
        "a-transaction-may-stay-open", WRITER, '    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,\n', "", (WRITES,),
        "a leader that died within a transaction blocks every reader for a minute",
    ),
    Mutant(
        "a-user-makes-the-sender-unsafe", SENDER, '            **client,\n            "enable.idempotence": "true",\n            "acks": "all",\n',
        '            "enable.idempotence": "true",\n            "acks": "all",\n            **client,\n', (SENDS,),
        "an event counts as sent although a broker's death can lose it",
    ),
    Mutant(
        "a-sender-gives-up-in-milliseconds", SENDER, "int(timeout_s * 1000)", "int(timeout_s)", (SENDS,),
        "every event of a producer has an unknown outcome",
    ),
    Mutant(
        "a-restore-is-as-safe-as-a-user-says", RESTORING, '**self._client, "enable.idempotence": "true", "acks": "all",',
        '"enable.idempotence": "true", "acks": "all", **self._client,', (RESTORES,),
        "a restored ledger lacks records, and its offsets differ from the archive's",
    ),
    Mutant(
        "idempotence-is-the-users", LOG, '    "enable.idempotence": "a resend must not become a second record",\n', "",
        ("tests/config/test_config.py::test_the_kafka_adapter_refuses_the_same",),
        "a setting without effect seems to be accepted",
    ),
    # -- topics
    Mutant(
        "facts-are-deleted-by-age", TOPICS, '        "cleanup.policy": "compact",\n', '        "cleanup.policy": "compact,delete",\n',
        (SET,), "a job that runs for a week is lost",
    ),
    Mutant(
        "records-bear-the-time-of-their-sender", TOPICS, '"message.timestamp.type": "LogAppendTime"',
        '"message.timestamp.type": "LogAppendTime".replace("LogAppend", "Create")', (SET,), "a wrong clock changes the order of the past",
    ),
    Mutant(
        "a-broker-without-the-newest-may-lead", TOPICS, '        "unclean.leader.election.enable": "false",\n', "", (SET,),
        "acknowledged facts are lost",
    ),
    Mutant(
        "one-replica-is-enough", TOPICS, "str(settings.min_insync_replicas)", "str(1)", (SET,),
        "an acknowledged fact is lost with one broker",
    ),
    Mutant(
        "recovery-is-cleaned-as-events-are", TOPICS, "_ms(settings.recovery_min_compaction_lag_s)", "_ms(settings.min_compaction_lag_s)",
        (SET,), "ledger.recovery holds a day of entries, and a cold start reads them all",
    ),
    Mutant(
        "tombstones-go-at-once", TOPICS, '        "delete.retention.ms": _ms(settings.delete_retention_s),\n', "", (SET,),
        "a reader that was down for two days has finished jobs",
    ),
    Mutant(
        "durations-in-seconds", TOPICS, "round(seconds * 1000)", "round(seconds)", (SET,),
        "records that must stay for a day stay for a minute and a half",
    ),
    Mutant(
        "anchors-lie-in-an-open-segment", TOPICS, ', "segment.ms": _ms(_ANCHORS_SEGMENT_S)}', "}", (SET,),
        "each read of the anchors takes longer than the one before",
    ),
    Mutant(
        "more-than-asked-for-is-wrong", TOPICS, "int(found) >= int(wanted))", "int(found) == int(wanted))", (JUDGED,),
        "roles do not start on topics with a longer retention",
    ),
    Mutant(
        "without-limit-is-too-little", TOPICS, 'found == "-1" or (', "(", (JUDGED,),
        "roles do not start on topics with unlimited retention",
    ),
    Mutant(
        "the-order-of-policies-counts", TOPICS, '{word.strip() for word in found.split(",")} == {word.strip() for word in wanted.split(",")}',
        "found == wanted", (JUDGED,), "roles do not start with a broker that lists cleanup policies in another order",
    ),
    Mutant(
        "more-replicas-are-waited-for-than-there-are", "ledger/config/topics.py", "if self.min_insync_replicas > self.replication_factor:",
        "if self.min_insync_replicas > self.replication_factor + 1:",
        ("tests/adapters/test_topics.py::test_settings_that_can_not_be_are_refused",), "nothing can ever be written",
    ),
)
