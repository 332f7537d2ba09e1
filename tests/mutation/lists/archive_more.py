"""Mistakes in other parts of the archive: pins, redaction, queries, and the thinning out of snapshots."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

ARCHIVE = "ledger/archive"
PINS, HOLDS, REDACTING = f"{ARCHIVE}/removal/pins.py", f"{ARCHIVE}/removal/holds.py", f"{ARCHIVE}/removal/redacting.py"
QUERYING, THINNING = f"{ARCHIVE}/query/querying.py", f"{ARCHIVE}/snapshots/snapshot_retention.py"
PINNED, REDACTED = "tests/archive/removal/test_pins.py::", "tests/archive/removal/test_redacting.py::"
ASKED, THINNED = "tests/archive/query/test_querying.py::", "tests/archive/snapshots/test_snapshots_on_schedule.py::"
NEEDED = f"{REDACTED}test_what_a_fold_still_reads_is_refused_unless_it_must_be"
REFUSED = f"{REDACTED}test_what_has_no_value_is_not_there_is_the_ledgers_own_or_is_held"
MONTHS = f"{THINNED}test_how_many_stay_follows_the_months_and_not_their_number"

MUTANTS = (
    # -- pins
    Mutant(
        "a-pin-ends-before-its-last-moment", PINS, "time_ms <= self.to_ms", "time_ms < self.to_ms",
        (f"{PINNED}test_it_holds_what_was_appended_up_to_its_end_and_all_before",),
        "the last pinned record expires",
    ),
    Mutant(
        "an-open-pin-holds-nothing", PINS, "(self.to_ms is None or time_ms <= self.to_ms)",
        "self.to_ms is not None and time_ms <= self.to_ms",
        (f"{PINNED}test_it_holds_what_was_appended_up_to_its_end_and_all_before",),
        "a job with a pin without an end expires",
    ),
    Mutant(
        "what-came-before-a-pin-is-not-held", PINS,
        "        return job_id in self.jobs and (",
        "        return job_id in self.jobs and (self.from_ms is None or time_ms >= self.from_ms) and (",
        (f"{PINNED}test_it_holds_what_was_appended_up_to_its_end_and_all_before",),
        "the state at the beginning of a pinned window is lost",
    ),
    Mutant(
        "a-pin-lifted-for-one-is-lifted-for-all", PINS, "if (pin.id, j) not in lifted}",
        "if pin.id not in {one for one, _ in lifted}}",
        (f"{PINNED}test_what_is_half_lifted_is_held_until_that_is_done_again",),
        "an incompletely removed pin protects nothing, and nobody notices",
    ),
    Mutant(
        "a-pin-holds-the-last-of-its-jobs", PINS, "replace(known, jobs=(*known.jobs, *pin.jobs))", "pin",
        (f"{PINNED}test_a_pin_is_a_note_for_each_job_and_as_sure_as_any_record",),
        "all jobs of a pin except one expire",
    ),
    Mutant(
        "a-pin-that-is-being-made-holds-nothing", PINS, "    return {**holds.held_jobs(archive.store), **found}",
        "    return found",
        (f"{PINNED}test_a_pin_that_was_interrupted_holds_what_it_came_to_and_can_be_lifted",),
        "a job is retired between the mark of its pin and the note",
    ),
    Mutant(
        "a-pin-is-marked-where-none-can-stand", PINS,
        "        _topic_id(archive, topic, archive.head(topic, partition_of(job_id)))\n", "        pass\n",
        (f"{PINNED}test_in_an_archive_with_nothing_at_all_nobody_can_pin",),
        "a pin that nobody can remove protects a job for ever",
    ),
    Mutant(
        "a-pin-that-is-overtaken-is-given-up", PINS, "            continue\n        return", "            return\n        return",
        (f"{PINNED}test_it_is_sealed_beside_an_archiver_at_work",),
        "a pin is reported as made although a busy archiver prevented it",
    ),
    Mutant(
        "a-pin-that-was-only-marked-can-not-be-lifted", PINS,
        "    jobs |= {job_id for job_id, one in _marked(archive, holds.PIN) if one == pin_id}\n", "",
        (f"{PINNED}test_a_pin_that_was_interrupted_holds_what_it_came_to_and_can_be_lifted",),
        "after a kill in the middle a job is protected for ever",
    ),
    Mutant(
        "what-an-earlier-run-lifted-stays-marked", PINS, "    for job_id in sorted(jobs):  #",
        "    for job_id in sorted(found.jobs if found else jobs):  #",
        (f"{PINNED}test_what_is_half_lifted_is_held_until_that_is_done_again",),
        "a job is protected for ever although its pin is removed",
    ),
    Mutant(
        "a-lifted-pin-is-listed-as-held", HOLDS, "if name_of(job_id, pin_id, LIFTED) not in there:", "if pin_id:",
        (f"{PINNED}test_a_pin_that_is_lifted_holds_nothing_and_its_history_stays",),
        "agents keep the data of jobs whose pin is removed",
    ),
    Mutant(
        "the-job-is-read-with-its-prefix", HOLDS, 'job_id = job.removeprefix(_JOB)', "job_id = job.lstrip(_JOB)",
        (f"{PINNED}test_a_pin_is_a_note_for_each_job_and_as_sure_as_any_record",),
        "a job whose id begins with letters of the prefix is not protected",
    ),
    # -- redaction
    Mutant(
        "what-is-pinned-is-redacted", REDACTING, "if job_id is not None and self.held(job_id,",
        "if job_id is None and self.held('',", (REFUSED,), "records that must stay are removed",
    ),
    Mutant(
        "the-ledgers-own-is-redacted", REDACTING, '.startswith(b"~")', '.startswith(b"~~")', (REFUSED,),
        "in an archive without claims, a stale leader counts as the leader",
    ),
    Mutant(
        "what-a-fold-needs-is-redacted", REDACTING, "        if not force:\n", "        if force:\n", (NEEDED,),
        "a job can't be restored from the archive",
    ),
    Mutant(
        "one-needed-record-is-told-when-the-rest-is-gone", REDACTING,
        "        if not force:\n            self._must_be_needless(records)\n",
        "        for one in records if not force else ():\n"
        "            self._must_be_needless([one])\n"
        "            rewrite(self.archive, one.topic(), one.partition(),\n"
        "                    [Wanted(REDACTED, frozenset([one.offset()]), reason=reason)], by, at)\n",
        (NEEDED,), "a refused redaction has removed values all the same",
    ),
    Mutant(
        "an-empty-id-is-an-id", REDACTING, "    if not event_id:\n", "    if event_id is None:\n",
        (f"{REDACTED}test_an_empty_id_names_nothing_though_records_bear_none",),
        "an unset shell variable redacts every record without an id",
    ),
    Mutant(
        "only-the-first-of-an-id-goes", REDACTING,
        "if (event_id := self.id_of(record)) in ids:", "if (event_id := self.id_of(record)) in ids - seen:",
        (f"{REDACTED}test_a_resend_bears_the_same_id_and_goes_too",),
        "a redacted value is still in the archive in another record",
    ),
    Mutant(
        "alike-by-hash-of-the-hash", REDACTING, "hashes = {bytes.fromhex(one.value_sha256)",
        "hashes = {one.value_sha256.encode()", (f"{REDACTED}test_others_that_hold_the_very_same_value_are_told",),
        "other records with the same value are not reported",
    ),
    Mutant(
        "an-earlier-redaction-is-told-as-new", REDACTING, "before = isinstance(record, RedactedRecord)", "before = False",
        (f"{REDACTED}test_by_place_or_by_the_id_of_the_event_and_again_is_no_harm",),
        "a repeated redaction is reported as a new one",
    ),
    Mutant(
        "a-place-of-any-offset", REDACTING, "offset.isdecimal()) or len(rest)", "offset) or len(rest)",
        (f"{REDACTED}test_a_place_is_named_by_the_short_name_of_its_topic_or_by_the_long_one",),
        "a typing mistake is a crash",
    ),
    # -- queries
    Mutant(
        "a-query-reads-any-file", QUERYING, "SET enable_external_access = false", "SET enable_external_access = true",
        (f"{ASKED}test_a_query_reads_and_writes_nothing_else",),
        "a query can read the private keys on the host",
    ),
    Mutant(
        "a-query-opens-the-door-again", QUERYING, ', "SET lock_configuration = true")', ",)",
        (f"{ASKED}test_a_query_reads_and_writes_nothing_else",),
        "a query takes all memory and threads",
    ),
    Mutant(
        "another-partitions-chain-is-asked", QUERYING, "    return \"\" if found <= {own} else found.pop()",
        "    return \"\"",
        (f"{ASKED}test_a_folder_that_holds_the_chain_of_another_partition_does_not_count_and_is_told",),
        "records count twice",
    ),
    Mutant(
        "manifests-of-several-partitions-are-asked", QUERYING, "    if len(found) > 1:", "    if len(found) > 2:",
        (f"{ASKED}test_a_folder_that_holds_manifests_of_several_partitions_is_refused",),
        "records of another partition are taken for this one's",
    ),
    Mutant(
        "two-columns-of-one-name-are-one", QUERYING, "            number += 1\n", "            break\n",
        (f"{ASKED}test_every_kind_of_value_has_a_plain_one",),
        "a column of a result is missing, and another one has its name",
    ),
    Mutant(
        "a-query-reads-beside-another", QUERYING, "self._database.cursor().sql(sql)", "self._database.sql(sql)",
        (f"{ASKED}test_an_answer_may_be_left_half_read",),
        "if two results are read at a time, one of them is cut off",
    ),
    Mutant(
        "what-is-not-finite-is-no-json", QUERYING, "f if math.isfinite(f) else str(f)", "f",
        (f"{ASKED}test_every_kind_of_value_has_a_plain_one",),
        "a program that reads the result as JSON fails",
    ),
    # -- thinning out snapshots
    Mutant(
        "the-oldest-of-a-day-stays", THINNING, "max(newest.get(kept_by, rank), rank)", "min(newest.get(kept_by, rank), rank)",
        (MONTHS,), "a moment in the evening is read from the snapshot of the previous night",
    ),
    Mutant(
        "a-day-lasts-a-month", THINNING, "if age_s <= DAY_S:", "if age_s <= MONTH_S:", (MONTHS,),
        "snapshots take more space than the records",
    ),
    Mutant(
        "one-a-day-stays-for-ever", THINNING, "return day if age_s <= MONTH_S else (day.year, day.month)", "return day",
        (MONTHS,), "the number of snapshots grows with the age of a ledger",
    ),
    Mutant(
        "months-of-all-years-are-one", THINNING, "(day.year, day.month)", "day.month", (MONTHS,),
        "no snapshot is left of a month long ago",
    ),
    Mutant(
        "the-one-that-was-compared-with-less-stays", THINNING, "one.next, -one.steps, one)", "one.next, one.steps, one)",
        (f"{THINNED}test_of_two_up_to_the_same_offset_the_one_stays_that_was_compared_with_more",),
        "a snapshot that was compared with more of the archive is deleted instead of one compared with less",
    ),
    Mutant(
        "another-chains-snapshots-go", THINNING, "if one not in kept]\n", "if one not in kept]\n"
        "    gone += [one for one in listed(archive, topic, partition) if one not in ours]\n",
        (f"{THINNED}test_what_is_thinned_out_is_gone_and_another_chain_s_is_left",),
        "if this chain is damaged, the snapshots of the good chain are deleted",
    ),
)
