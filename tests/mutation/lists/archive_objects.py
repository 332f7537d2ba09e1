"""Mistakes in the archive: sealing, chains, joining, rewriting, expiring, verifying, snapshots, anchors, restoring."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

ARCHIVER, CHAINS, ARCHIVE, JOINING, VERIFYING = (
    f"ledger/archive/store/{name}.py" for name in ("archiving", "chains", "archive", "compaction", "verifying")
)
EXPIRING, REWRITING = "ledger/archive/removal/expiring.py", "ledger/archive/removal/rewriting.py"
SEGMENTS, RESTORING = "ledger/archive/format/segments.py", "ledger/archive/restore/restoring.py"
SNAPSHOTS, ANCHORING = "ledger/archive/snapshots/snapshots.py", "ledger/archive/anchors/anchoring.py"

MUTANTS = (
    Mutant(
        "a-gap-is-sealed", ARCHIVER,
        "            if segment.first != self.heads[tp].next:", "            if segment.first < self.heads[tp].next:",
        ("tests/archive/store/test_archiving.py::test_what_comes_behind_a_gap_is_not_sealed",), "skipped records are missing, and the chain does not record it",
    ),
    Mutant(
        "a-topic-made-anew-is-archived-on", ARCHIVER,
        "    if head.topic_id and head.topic_id != shape.topic_id:", "    if False:",
        ("tests/archive/store/test_archiving.py::test_another_topic_is_never_archived_upon_the_old_one",), "one chain holds the records of two topics",
    ),
    Mutant(
        "a-topic-that-was-cut-off-is-archived-on", ARCHIVER,
        "    if shape.end < head.next:", "    if shape.end < 0:",
        ("tests/archive/store/test_archiving.py::test_another_topic_is_never_archived_upon_the_old_one",), "a loss of acknowledged records on the brokers is not reported",
    ),
    Mutant(
        "an-archiver-never-gives-up", ARCHIVER,
        "                    if failures >= FAILURES_MAX:\n                        raise\n", "",
        ("tests/archive/store/test_archiving.py::test_what_never_goes_right_ends_it",), "an archiver that can't work looks healthy for ever",
    ),
    Mutant(
        "who-was-overtaken-goes-on-from-where-it-was", ARCHIVER,
        "                    self.heads = {}\n                    self._clock", "                    self._clock",
        ("tests/archive/store/test_archiving.py::test_who_is_overtaken_where_nobody_goes_on_waits_and_ends",), "two archivers supersede each other for ever",
    ),
    Mutant(
        "a-chore-that-fails-ends-the-archiver", ARCHIVER,
        "            except LedgerError as error:\n                times = ", "            except ZeroDivisionError as error:\n                times = ",
        ("tests/archive/store/test_archiving.py::test_a_chore_that_keeps_failing_is_an_error_and_the_archive_goes_on",), "nothing is archived because a snapshot fails",
    ),
    Mutant(
        "what-was-read-from-the-beginning-is-stored-again", ARCHIVER,
        "            if record.offset() >= self._next.get(tp, 0):", "            if True:",
        ("tests/archive/store/test_archiving.py::test_whatever_dies_when_the_archive_is_the_full_copy_once",), "each start of an archiver stores the whole log again",
    ),
    Mutant(
        "another-topics-records-are-sealed", ARCHIVE,
        "        if head.topic_id and head.topic_id != topic_id:", "        if False:",
        ("tests/archive/store/test_archive.py::test_a_topic_made_anew_is_not_sealed_upon_the_old_one",), "one chain holds the records of two topics",
    ),
    Mutant(
        "whoever-sealed-it-it-is-ours", ARCHIVE,
        "            if {**asdict(found), **asdict(segment)} == asdict(found) and found.previous == manifest.previous:",
        "            if found.previous == manifest.previous:",
        ("tests/archive/store/test_archive.py::test_of_two_archivers_one_seals_and_the_other_begins_again",), "different records of two archivers are mistaken for each other",
    ),
    Mutant(
        "a-lost-answer-is-another-archiver", ARCHIVE,
        "                return head_of(found)  # our own", "                pass  # our own",
        ("tests/archive/store/test_archive.py::test_sealing_again_changes_nothing",), "an archiver stops because the answer to its own seal was lost",
    ),
    Mutant(
        "a-note-of-somebody-else-is-ours", ARCHIVE,
        "        if found is not None and (not found.is_note or found.records_sha256 != digest or found.previous != head.sha256):",
        "        if found is not None and not found.is_note:",
        ("tests/archive/store/test_archive.py::test_a_note_of_somebody_else_is_not_ours",), "joined objects are deleted although no note names their replacement",
    ),
    Mutant(
        "what-was-sealed-is-read-uncompared", CHAINS,
        '    if sha256(data).hexdigest() != named.sha256:\n        raise LedgerError(f"{named.name} is not what was sealed.", hint=VERIFY)\n', "",
        ("tests/archive/removal/test_rewriting_altered.py::test_a_stub_that_was_altered_is_found",), "altered records are returned, restored and joined",
    ),
    Mutant(
        "a-listing-that-nobody-names-counts", CHAINS,
        "        and len(inside[one.manifests]) == one.last_sequence - one.first_sequence + 1\n", "",
        ("tests/archive/store/test_listings.py::test_a_note_names_a_listing_that_holds_what_it_says",), "a note that names too few manifests shifts all later ones",
    ),
    Mutant(
        "any-listing-fits-its-note", CHAINS,
        "if one.manifests in listings and sha256(listings[one.manifests]).hexdigest() == one.manifests_sha256\n",
        "if one.manifests in listings\n",
        ("tests/archive/store/test_listings.py::test_a_note_names_a_listing_that_holds_what_it_says",), "forged manifests replace the joined ones",
    ),
    Mutant(
        "a-note-of-nobody-takes-records-out", CHAINS,
        "if one is not None and one.sequence == number)\n    taken_out", "if one is not None)\n    taken_out",
        ("tests/archive/store/test_listings.py::test_a_note_that_is_no_link_of_the_chain_takes_nothing_out",), "a forged note marks records as expired",
    ),
    Mutant(
        "a-listing-of-any-size-is-unpacked", CHAINS,
        "while len(found) * _PACKED_MIN < len(data) and (line", "while (line",
        ("tests/archive/store/test_listings.py::test_one_that_is_packed_small_is_not_unpacked_into_all_memory",), "one forged object makes a reader use up all memory",
    ),
    Mutant(
        "a-number-far-away-is-the-end", CHAINS,
        "        if number - end > GAP_MAX:\n            return end + 1\n", "",
        ("tests/archive/store/test_verifying.py::test_an_object_of_a_number_far_beyond_is_told_and_costs_no_memory",), "one forged object makes a reader use up all memory",
    ),
    Mutant(
        "the-day-that-runs-is-joined", JOINING,
        "    if last >= 0 and _day(run) < _date(over_ms):", "    if last >= 0:",
        ("tests/archive/store/test_compaction.py::test_a_day_that_is_not_over_waits",), "a day is joined in pieces, and each run makes different objects",
    ),
    Mutant(
        "what-is-joined-is-not-compared-with-its-root", JOINING,
        "            if merkle.root([leaf.hash for leaf in own]).hex() != manifest.root:", "            if not own:",
        ("tests/archive/store/test_compaction.py::test_what_a_manifest_seals_and_its_object_does_not_hold_is_not_joined",), "altered records are joined, and the sound copy is deleted",
    ),
    Mutant(
        "what-was-joined-is-not-read-back", JOINING,
        "            if store.read(made[suffix][0]) != data:", "            if False:",
        ("tests/archive/store/test_compaction.py::test_a_store_that_does_not_keep_what_it_takes_is_not_believed",), "a store that loses an accepted object loses a day of records",
    ),
    Mutant(
        "what-was-joined-is-dropped-unseen", JOINING,
        "            if gone:\n                self._must_be_sound(one, chain, run)\n", "",
        ("tests/archive/store/test_compaction.py::test_what_was_damaged_between_joining_and_clearing_keeps_what_it_was_made_of",), "a forged note causes the deletion of sound objects",
    ),
    Mutant(
        "what-is-joined-twice-counts-twice", JOINING,
        "        if any(chain.joined_of(manifest.sequence) is not None for manifest in run):\n            return None\n", "",
        ("tests/archive/store/test_compaction.py::test_two_at_once_and_an_archiver_beside_them",), "two concurrent joins write two notes",
    ),
    Mutant(
        "what-moved-while-it-was-joined-is-joined", JOINING,
        "            if self._moved(run, chain, self._chain()):  # the joined objects were made from objects since replaced\n                return None\n", "",
        ("tests/archive/removal/test_rewriting_beside_others.py::test_who_joins_and_who_rewrites_see_each_other",), "records that have just expired come back",
    ),
    Mutant(
        "a-record-too-many-is-in-order", VERIFYING,
        "    return inside and len(offsets) == manifest.count and", "    return inside and",
        ("tests/archive/store/test_forged.py::test_a_manifest_that_counts_otherwise_is_found_without_an_anchor",), "a manifest with a forged count is accepted",
    ),
    Mutant(
        "repeated-records-are-in-order", VERIFYING,
        " and all(a < b for a, b in pairwise(offsets))", "",
        ("tests/archive/store/test_forged.py::test_a_record_that_was_sealed_twice_is_found",), "a duplicated record is accepted",
    ),
    Mutant(
        "what-no-note-says-is-redacted", VERIFYING,
        "        if redacted and not said.redacted(offset):", "        if False:",
        ("tests/archive/removal/test_rewriting_altered.py::test_what_is_missing_without_a_note_is_broken",), "anybody with write access can remove a value unnoticed",
    ),
    Mutant(
        "what-a-note-says-is-gone-may-be-there", VERIFYING,
        "        if said and (said.expired(offset) or (said.redacted(offset) and not redacted)):", "        if False:",
        ("tests/archive/removal/test_rewriting_altered.py::test_what_a_note_says_is_gone_must_not_be_there",), "a redacted value is still in the archive",
    ),
    Mutant(
        "times-of-a-manifest-are-believed", VERIFYING,
        "    if beyond is not None:\n", "    if False:\n",
        ("tests/archive/store/test_forged.py::test_also_where_a_record_has_expired_none_lies_outside_the_times",), "a forged manifest hides records from queries about the past",
    ),
    Mutant(
        "the-outermost-times-are-believed", VERIFYING,
        "    if len(records) == manifest.count > 0 and (min(times), max(times)) != (least, greatest):", "    if False:",
        ("tests/archive/store/test_forged.py::test_a_manifest_that_lies_about_times_is_found_without_an_anchor",), "a forged manifest hides records from queries about the past",
    ),
    Mutant(
        "leaves-are-believed", VERIFYING,
        "    elif wrong is None and _root(sealed) != manifest.root:", "    elif False:",
        ("tests/archive/store/test_verifying.py::test_leaves_are_looked_into_also_where_their_digest_fits",), "a wrong list of leaves is accepted",
    ),
    Mutant(
        "an-altered-object-with-the-same-records-passes", VERIFYING,
        '    elif altered:\n        yield Broken(manifest.sequence, manifest.first, f"{name} was altered, but not its records")\n', "",
        ("tests/archive/store/test_verifying.py::test_every_mutation_is_found_and_named",), "the columns for queries differ from the records",
    ),
    Mutant(
        "a-chain-that-was-cut-off-is-whole", VERIFYING,
        "    return replace(chain, manifests=[*chain.manifests, None]) if cut_off else chain", "    return chain",
        ("tests/archive/store/test_verifying.py::test_every_mutation_is_found_and_named",), "the newest records are deleted unnoticed",
    ),
    Mutant(
        "strays-are-none-of-our-business", VERIFYING,
        "        tuple(name for name in present if name not in named),", "        (),",
        ("tests/archive/store/test_verifying.py::test_what_a_killed_archiver_has_left_is_a_stray_and_no_harm",), "foreign objects in the archive are not reported",
    ),
    Mutant(
        "what-is-rewritten-is-not-read-back", REWRITING,
        "    if archive.store.read(name) != new:", "    if False:",
        ("tests/archive/removal/test_rewriting_altered.py::test_what_does_not_come_back_as_it_was_stored_takes_the_place_of_nothing",), "a store that loses an accepted object loses the remaining records",
    ),
    Mutant(
        "what-is-rewritten-is-not-compared", REWRITING,
        "    _must_hold(one, sealed, tp, new, chain, gone)\n    return Rewritten", "    return Rewritten",
        ("tests/archive/removal/test_rewriting_altered.py::test_a_rewriting_that_takes_out_more_is_not_noted",), "a wrong rewrite removes records that must stay",
    ),
    Mutant(
        "the-old-object-goes-though-the-new-one-is-damaged", REWRITING,
        "            _must_hold(one, _sealed(archive, one), (topic, partition), chains.read_as(archive.store, one.now), chain, ())\n", "",
        ("tests/archive/removal/test_rewriting_altered.py::test_what_was_damaged_between_rewriting_and_clearing_keeps_what_it_was_made_of",), "the only sound copy is deleted",
    ),
    Mutant(
        "what-holds-what-is-gone-stays", REWRITING,
        "        elif _holds_removed_records(archive, name, chain, topic, partition):\n            yield name\n", "",
        ("tests/archive/removal/test_rewriting.py::test_what_a_killed_joiner_has_left_is_cleared_away_after_a_redaction_too",), "a redacted value is still in a snapshot",
    ),
    Mutant(
        "one-record-of-a-held-job-goes", EXPIRING,
        "            if goes and not any(held(job_id, one.time_ms) for one in goes):", "            if goes:",
        ("tests/archive/removal/test_expiring.py::test_a_job_that_is_held_is_left_alone",), "evidence under a pin expires",
    ),
    Mutant(
        "the-only-word-on-a-namespace-expires", EXPIRING,
        "        return [one for one in goes if not one.is_spec]", "        return list(goes)",
        ("tests/archive/removal/test_expiring.py::test_what_tells_whose_a_job_is_goes_last",), "the rest of the job never expires",
    ),
    Mutant(
        "the-shortest-retention-counts", EXPIRING,
        "                yield job_id, max(terms, key", "                yield job_id, min(terms, key",
        ("tests/archive/removal/test_expiring.py::test_of_two_namespaces_the_longer_one_counts",), "records that another namespace wants to keep expire",
    ),
    Mutant(
        "a-job-with-an-unread-spec-expires", EXPIRING,
        "            if len(terms) == len(kept) and job_id not in self._unread:", "            if len(terms) == len(kept):",
        ("tests/archive/removal/test_expiring.py::test_of_a_job_whose_spec_nobody_can_read_nothing_goes",), "records of a newer version expire by a wrong namespace's retention",
    ),
    Mutant(
        "a-namespace-that-keeps-for-ever-does-not", EXPIRING,
        "            if len(terms) == len(kept) and job_id not", "            if terms and job_id not",
        ("tests/archive/removal/test_expiring.py::test_of_two_namespaces_one_that_keeps_for_ever_counts",), "records that must be kept for ever expire",
    ),
    Mutant(
        "an-object-that-is-there-is-the-same", SEGMENTS,
        "        if (found := store.read(name)) is not None and same(found, data):", "        if (found := store.read(name)) is not None:",
        ("tests/archive/store/test_archive.py::test_an_object_that_a_disk_has_damaged_is_left_and_passed_by",), "data that a disk damaged is sealed as the original",
    ),
    Mutant(
        "what-lies-there-already-is-taken-for-ours", RESTORING,
        "    if tp in there and there[tp] != one.digest():", "    if False:",
        ("tests/archive/restore/test_restoring.py::test_what_another_has_begun_is_not_gone_on_with",), "a restore continues after records of another ledger",
    ),
    Mutant(
        "a-restore-that-differs-is-finished", RESTORING,
        "        if not differences:\n", "        if True:\n",
        ("tests/archive/restore/test_restoring.py::test_what_folds_otherwise_than_its_archive_is_told_and_never_finished",), "roles start on a restored ledger that folds differently",
    ),
    Mutant(
        "the-wrong-number-of-partitions-is-restored", RESTORING,
        "        if len(elsewhere) > len(table):", "        if False:",
        ("tests/archive/restore/test_restoring.py::test_who_says_a_wrong_number_of_partitions_is_told",), "jobs are in partitions where no reader looks for them",
    ),
    Mutant(
        "a-snapshot-that-folds-otherwise-is-stored", SNAPSHOTS,
        "    if not same(kept, records()):", "    if False:",
        ("tests/archive/snapshots/test_snapshots_on_schedule.py::test_one_is_made_of_the_one_before_it_and_what_was_sealed_since",), "a cold start has another state than the log",
    ),
    Mutant(
        "a-snapshot-of-another-chain-is-read", SNAPSHOTS,
        "    ours = sorted((one for one in found if one[:2] in heads)", "    ours = sorted((one for one in found)",
        ("tests/archive/snapshots/test_snapshots_on_schedule.py::test_one_that_was_altered_after_the_next_was_made_of_it_goes_alone",), "a cold start uses the state of another ledger",
    ),
    Mutant(
        "the-last-tombstone-hides-how-far-it-was-read", SNAPSHOTS,
        "        kept.setdefault(of_job[job].offset(), of_job[job])\n", "        pass\n",
        ("tests/archive/snapshots/test_snapshots.py::test_of_a_job_that_is_known_the_last_record_is_kept_even_if_it_is_a_tombstone",), "an entry's as-of offset is too high",
    ),
    Mutant(
        "what-a-stale-leader-wrote-is-all-that-stays", SNAPSHOTS,
        "            effective[key] = record\n            if", "            if",
        ("tests/archive/snapshots/test_snapshots.py::test_a_stale_leader_s_record_does_not_take_the_place_of_what_counts",), "in a snapshot, a stale entry hides the effective one",
    ),
    Mutant(
        "the-last-copy-of-a-claim-counts", SNAPSHOTS,
        "            claims.setdefault(key, record)\n", "            claims[key] = record\n",
        ("tests/archive/snapshots/test_snapshots.py::test_a_claim_that_was_written_twice_or_tombstoned_stands_where_it_stood_first",), "a copy of a claim makes the records of its epoch stale",
    ),
    Mutant(
        "unfit-snapshots-stay", SNAPSHOTS,
        "        archive.store.delete(one.name)\n", "",
        ("tests/archive/snapshots/test_snapshots_on_schedule.py::test_one_that_does_not_follow_from_the_archive_is_found_out_and_dropped",), "a cold start has another state than the archive",
    ),
    Mutant(
        "a-fork-is-anchored", ANCHORING,
        "            if known.fork:\n                return known.newest.head, known.fork\n", "",
        ("tests/archive/anchors/test_anchoring.py::test_a_fork_is_told_and_nothing_more_is_anchored_of_that_chain",), "two conflicting anchors are overwritten",
    ),
    Mutant(
        "what-is-not-above-is-anchored", ANCHORING,
        "            why = why_not_above(known.newest.head, grown)", '            why = ""',
        ("tests/archive/anchors/test_anchoring.py::test_an_archive_that_was_cut_off_at_an_older_anchor_is_found_out_though_that_was_written_last",), "a replaced chain is anchored as if it had only grown",
    ),
    Mutant(
        "an-anchor-that-does-not-count-stays", ANCHORING,
        "                log.error(\"anchor_does_not_count\", why=f\"{one.where}, of {one.chain}: {why}\")\n"
        "                if known is not None:\n                    known.last = None\n",
        "                log.error(\"anchor_does_not_count\", why=f\"{one.where}, of {one.chain}: {why}\")\n",
        ("tests/archive/anchors/test_anchoring_uncounted.py::test_it_is_written_over_though_nothing_has_grown",), "anybody with write access to the topic can remove the anchors of a chain",
    ),
)  # fmt: skip
