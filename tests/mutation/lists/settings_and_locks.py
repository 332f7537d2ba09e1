"""Mistakes in who may be the only one: locks on files, files that are made once, objects that are never changed; and in the
settings of Kafka's clients and topics that carry a promise.
"""

from __future__ import annotations

from tests.mutation.mutant import Mutant

LOCK, OBJECTS, ZIPPED = (f"ledger/adapters/local/{name}.py" for name in ("leadership", "objects", "zipped"))
MEMORY, KEYS = "ledger/adapters/memory/objects.py", "ledger/adapters/ed25519.py"
UNPACKING = "ledger/adapters/runners/subprocess/unpacking.py"
KAFKA = "ledger/adapters/kafka"
WRITER, SENDER, RESTORING, TOPICS, LOG = (
    f"{KAFKA}/{name}.py" for name in ("writer", "sender", "restoring", "topics", "log")
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
        (f"{LOCKED}test_a_stopped_holder_keeps_the_lock",), "two lead at a time",
    ),
    Mutant(
        "a-lock-on-a-file-that-is-gone-counts", LOCK,
        "            return os.path.samestat(os.fstat(self._handle), self._path.stat())", "            return True",
        (f"{LOCKED}test_a_lock_on_a_file_that_was_replaced_is_none",), "two lead at a time once somebody has tidied up",
    ),
    Mutant(
        "the-file-was-replaced-before-the-lock", LOCK,
        "        if not self.valid():  # the file was replaced between open and lock\n", "        if handle < 0:\n",
        (f"{LOCKED}test_a_file_that_is_replaced_between_open_and_lock_makes_nobody_lead",), "two lead at a time",
    ),
    Mutant(
        "an-old-lock-file-stays-open-to-others", LOCK,
        "            os.fchmod(handle, 0o600)  # an earlier version created it readable by other users\n", "",
        (f"{LOCKED}test_a_lock_file_that_an_earlier_version_made_is_closed_to_others",),
        "any user of the host keeps the ledger without a leader",
    ),
    Mutant(
        "a-pid-of-another-container-is-gone", LOCK, ' or signed.get("pid_namespace") != pid_namespace()', "",
        (f"{LOCKED}test_a_lock_of_another_pid_namespace_is_believed",), "people are sent after a process that leads in order",
    ),
    Mutant(
        "a-scribbled-lock-stops-who-looks", LOCK, "except (ValueError, KeyError, TypeError):", "except (KeyError, TypeError):",
        (f"{LOCKED}test_a_scribbled_file_still_has_a_holder",), "a candidate ends where it should wait",
    ),
    # -- what is made once
    Mutant(
        "an-object-in-a-folder-is-replaced", OBJECTS, "                os.link(temporary, path)\n",
        "                os.replace(temporary, path)\n", (NEVER,), "of two archivers the second takes the first one's place",
    ),
    Mutant(
        "an-object-that-is-there-was-created", OBJECTS, "            except FileExistsError:\n                return False",
        "            except FileExistsError:\n                return True",
        (NEVER,), "two archivers go on from heads of which one is not in the chain",
    ),
    Mutant(
        "an-object-in-memory-is-replaced", MEMORY, "            if name in self.stored:\n                return False\n", "",
        (NEVER,), "tests of an archive show what no store does",
    ),
    Mutant(
        "a-member-of-a-zip-is-written-twice", ZIPPED,
        "            if name in self._names:\n                return False\n", "",
        (NEVER,), "a bundle holds two objects of one name, and who reads it takes either",
    ),
    Mutant(
        "a-zip-that-is-there-is-written-over", ZIPPED, "os.O_CREAT | os.O_EXCL | os.O_CLOEXEC", "os.O_CREAT | os.O_CLOEXEC",
        ("tests/adapters/test_zipped.py::test_a_zip_that_is_there_is_not_written_over",), "evidence is lost by a wrong name",
    ),
    Mutant(
        "a-key-that-is-there-is-written-over", KEYS, "os.O_CREAT | os.O_EXCL, mode", "os.O_CREAT | os.O_TRUNC, mode",
        ("tests/archive/anchors/test_anchoring.py::test_a_key_is_made_whole_or_not_at_all",), "nothing is signed by the key that all know",
    ),
    Mutant(
        "a-member-of-a-graph-takes-anothers-place", UNPACKING, "os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW", "os.O_CREAT | os.O_NOFOLLOW",
        ("tests/adapters/runners/test_graphs.py::test_a_hostile_graph_is_refused_and_writes_nothing_outside",),
        "a graph runs another program than whoever looks into it sees",
    ),
    # -- producers
    Mutant(
        "a-user-makes-the-writer-unsafe", WRITER, "{**SENDING, **self._client, **_SAFETY,", "{**SENDING, **_SAFETY, **self._client,",
        (WRITES,), "records count that one broker alone had",
    ),
    Mutant(
        "a-writer-does-not-wait-for-all-replicas", WRITER, '    "acks": "all",\n', "", (WRITES,),
        "records count that one broker alone had",
    ),
    Mutant(
        "a-writer-is-not-idempotent", WRITER, '    "enable.idempotence": "true",\n', "", (WRITES,),
        "a resend is a second record",
    ),
    Mutant(
        "a-transaction-may-stay-open", WRITER, '    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,\n', "", (WRITES,),
        "a leader that stopped in a transaction blocks every reader for a minute",
    ),
    Mutant(
        "a-user-makes-the-sender-unsafe", SENDER, '            **client,\n            "enable.idempotence": "true",\n            "acks": "all",\n',
        '            "enable.idempotence": "true",\n            "acks": "all",\n            **client,\n', (SENDS,),
        "an event counts as sent that a broker's death takes away",
    ),
    Mutant(
        "a-sender-gives-up-in-milliseconds", SENDER, "int(timeout_s * 1000)", "int(timeout_s)", (SENDS,),
        "every event of a producer has an unknown outcome",
    ),
    Mutant(
        "a-restore-is-as-safe-as-a-user-says", RESTORING, '**self._client, "enable.idempotence": "true", "acks": "all",',
        '"enable.idempotence": "true", "acks": "all", **self._client,', (RESTORES,),
        "a restored ledger lacks records, and offsets are not those of the archive",
    ),
    Mutant(
        "idempotence-is-the-users", LOG, '    "enable.idempotence": "a resend must not become a second record",\n', "",
        ("tests/config/test_config.py::test_the_kafka_adapter_refuses_the_same",),
        "a setting that does nothing seems to be taken",
    ),
    # -- topics
    Mutant(
        "facts-are-deleted-by-age", TOPICS, '        "cleanup.policy": "compact",\n', '        "cleanup.policy": "compact,delete",\n',
        (SET,), "a job that runs for a week is gone",
    ),
    Mutant(
        "records-bear-the-time-of-their-sender", TOPICS, '"message.timestamp.type": "LogAppendTime"',
        '"message.timestamp.type": "LogAppendTime".replace("LogAppend", "Create")', (SET,), "a wrong clock makes the past another",
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
        (SET,), "recovery holds a day's entries, and a cold start reads them all",
    ),
    Mutant(
        "tombstones-go-at-once", TOPICS, '        "delete.retention.ms": _ms(settings.delete_retention_s),\n', "", (SET,),
        "a reader that was away for two days has jobs that are over",
    ),
    Mutant(
        "durations-in-seconds", TOPICS, "round(seconds * 1000)", "round(seconds)", (SET,),
        "what must stay for a day stays for a minute and a half",
    ),
    Mutant(
        "anchors-lie-in-an-open-segment", TOPICS, ', "segment.ms": _ms(_ANCHORS_SEGMENT_S)}', "}", (SET,),
        "each reading of the anchors takes longer than the one before",
    ),
    Mutant(
        "more-than-asked-for-is-wrong", TOPICS, "int(found) >= int(wanted))", "int(found) == int(wanted))", (JUDGED,),
        "roles do not start on topics that keep more",
    ),
    Mutant(
        "without-limit-is-too-little", TOPICS, 'found == "-1" or (', "(", (JUDGED,),
        "roles do not start on topics that keep everything",
    ),
    Mutant(
        "the-order-of-policies-counts", TOPICS, '{word.strip() for word in found.split(",")} == {word.strip() for word in wanted.split(",")}',
        "found == wanted", (JUDGED,), "roles do not start beside a broker that lists them otherwise",
    ),
    Mutant(
        "more-replicas-are-waited-for-than-there-are", "ledger/config/topics.py", "if self.min_insync_replicas > self.replication_factor:",
        "if self.min_insync_replicas > self.replication_factor + 1:",
        ("tests/adapters/test_topics.py::test_settings_that_can_not_be_are_refused",), "nothing can ever be written",
    ),
)
