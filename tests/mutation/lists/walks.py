"""Mistakes that show only with bad input or other trouble between leaders. Walks of the simulation detect them."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

SCHEDULES = "tests/simulation/test_caught.py::test_the_ledger_passes_every_schedule"
CLOCKS = "tests/simulation/test_clocks.py::test_"
WALKS = "tests/simulation/test_walk.py::test_walks_end_well"

MUTANTS = (
    Mutant(
        "a-spec-is-refused-once-for-ever", "ledger/roles/projector/admission.py",
        "        if (job.job_id, spec, held[1]) in self._refused:",
        "        if (job.job_id, spec) in {refused[:2] for refused in self._refused}:",
        (f"{SCHEDULES}[a_spec_that_was_refused_is_sent_again]",),
        "a resend of a refused spec never gets an answer",
    ),
    Mutant(
        "rejects-are-lost-with-their-transaction", "ledger/roles/projector/projector.py",
        "            self._malformed = (malformed + self._malformed)[-MALFORMED_MAX:]\n            raise", "            raise",
        (f"{SCHEDULES}[a_leader_hears_no_answer_to_its_rejects_and_leads_again]",),
        "a record that could not be used is dropped in silence",
    ),
    Mutant(
        "what-is-no-reject-hides-one", "ledger/reader/rejects.py",
        "                try:\n                    reject = decode(value)",
        "                seen.add(record.key())\n                try:\n                    reject = decode(value)",
        (f"{SCHEDULES}[something_lies_where_a_reject_will_lie]",),
        "a reject is not listed",
    ),
    Mutant(
        "a-fact-is-rejected-at-every-plan", "ledger/roles/projector/term.py",
        "                self._rejected.add((partition, held[1]))\n", "",
        (WALKS,),
        "the topic of rejects grows with every fact of a job that has one bad value",
    ),
    Mutant(
        "a-register-counts-in-any-partition", "ledger/core/model/table.py",
        '        return "" if wanted == partition else f"{ELSEWHERE} {wanted}"', '        return ""',
        (WALKS,),
        "the records of a job are split over two partitions",
    ),
    Mutant(
        "what-is-damaged-is-begun-from", "ledger/tasks.py",
        "        if verification is Verification.VALID:", "        if verification is not Verification.UNKNOWN:",
        (WALKS,),
        "an attempt starts from a damaged or missing checkpoint",
    ),
    Mutant(
        "from-scratch-where-nothing-is-sound", "ledger/tasks.py",
        "    if refused or task.restore_from_named:", "    if not refused and task.restore_from_named:",
        ("tests/roles/test_reconciler.py::test_no_valid_checkpoint_quarantines_and_never_begins_from_scratch",),
        "a job whose restore points are all damaged silently starts from scratch",
    ),
    Mutant(
        "a-start-takes-one-slot-whatever-its-job-takes", "ledger/core/plan/pools.py",
        "                needs[pool] += entry.slots", "                needs[pool] += 1",
        (WALKS,),
        "a big job is started in a pool without enough free slots",
    ),
    Mutant(
        "checkpoints-go-that-were-to-be-kept", "ledger/roles/reconciler/ending.py",
        "    dispose = entry.checkpoint_retention is CheckpointRetention.DELETE\n", "    dispose = True\n",
        (WALKS,),
        "the checkpoints of a finished job are deleted although its spec keeps them",
    ),
    Mutant(
        "checkpoints-stay-of-a-job-that-is-over", "ledger/roles/reconciler/ending.py",
        "    going = entry.checkpoints if dispose else ()\n", "    going = ()\n",
        (WALKS,),
        "the storage fills up with unused checkpoints",
    ),
    Mutant(
        "progress-is-told-once-a-minute", "ledger/roles/projector/term.py",
        "        self._next_progress = self._clock.monotonic() + self._settings.progress_interval_s\n",
        "        self._next_progress = self._clock.monotonic() + 60 * self._settings.progress_interval_s\n",
        (f"{WALKS}[17]",),
        "a reconciler waits for a minute until it knows that an entry has caught up with the log",
    ),
    Mutant(
        "a-retry-counts-of-a-job-that-is-over", "ledger/core/fold/restore_points.py",
        "    pending = pending_retry(job) if job.terminal_end is None else None",
        "    pending = pending_retry(job)",
        ("tests/roles/test_checkpoint_retention.py::test_a_retry_of_what_is_over_already_passes_over_no_checkpoint",),
        "a retry that comes too late leaves unknown checkpoints, and a result that names an old one",
    ),
    Mutant(
        "a-restart-waits-for-the-wall-clock", "ledger/roles/projector/due.py",
        "            or now >= waiting.first_seen + entry.restart_delay_s\n", "",
        (f"{CLOCKS}a_restart_is_due_whatever_the_wall_clock_says",),
        "a job stays down for the time by which a clock was wrong",
    ),
    Mutant(
        "a-tombstone-counts-by-its-time", "ledger/core/model/table.py",
        "                    registers[name] = (value, record.offset())\n                    continue\n"
        "                malformed.append(MalformedRecord(record, _framing(value)))\n",
        "                    registers[name] = (value, record.offset())\n"
        "                    self.__dict__.setdefault('times', {})[job_id, name] = record.timestamp()[1]\n"
        "                    continue\n"
        "                malformed.append(MalformedRecord(record, _framing(value)))\n"
        "            elif self.__dict__.setdefault('times', {}).get((job_id, name), 0) > record.timestamp()[1]:\n"
        "                continue\n",
        (f"{CLOCKS}entries_are_the_same_whatever_timestamps_their_records_have",),
        "a job comes back if its tombstone was appended while a broker's clock was behind",
    ),
)  # fmt: skip
