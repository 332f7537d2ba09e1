"""Mistakes in the archive: its lag, anchors, expiry, the contents of snapshots and of proofs."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

LATENESS, HEADROOM, STATUS = "ledger/archive/format/lateness.py", "ledger/archive/store/compaction_margin.py", "ledger/archive/store/status.py"
ANCHORS, ANCHORING = "ledger/archive/anchors/anchors.py", "ledger/archive/anchors/anchoring.py"
EXPIRING, SNAPSHOTS = "ledger/archive/removal/expiring.py", "ledger/archive/snapshots/snapshots.py"
CARRYING = "ledger/archive/proof/bundle_proofs.py"
BEGUN, ROOM = "tests/archive/snapshots/test_bootstrap.py::", "tests/archive/store/test_compaction_margin.py::"
ANCHORED, EXPIRED = "tests/archive/anchors/test_anchoring.py::", "tests/archive/removal/test_expiring.py::"
THINNED, CARRIED = "tests/archive/snapshots/test_snapshots.py::", "tests/archive/proof/test_bundle_proofs.py::"

MUTANTS = (
    Mutant(
        "hole-of-two-is-the-end-of-a-transaction", LATENESS,
        "offset > manifest.first + 1", "offset > manifest.first + 2",
        (f"{BEGUN}test_a_hole_after_a_long_silence_may_have_been_a_tombstone",),
        "a finished job comes back, because its tombstone was missed",
    ),
    Mutant(
        "silence-makes-no-difference", LATENESS, "at_s - newest_s <= away_max_s or ", "",
        (f"{BEGUN}test_a_hole_without_a_silence_is_nothing",),
        "no snapshot is ever used where log compaction leaves gaps in the offsets",
    ),
    Mutant(
        "age-of-what-is-sealed-is-not-asked", LATENESS,
        "if at_s - manifest.least_timestamp_ms / 1000 > away_max_s:", "if at_s < manifest.least_timestamp_ms / 1000:",
        (f"{BEGUN}test_after_that_a_record_that_was_old_when_it_was_sealed_says_that_it_was_away",),
        "a finished job comes back, because its tombstone was missed",
    ),
    Mutant(
        "headroom-stands-still", HEADROOM, "headroom_s=one.headroom_s - passed_s", "headroom_s=one.headroom_s",
        (f"{ROOM}test_it_goes_on_running_out_while_nobody_answers",),
        "nobody is warned that log compaction removes records before they are archived",
    ),
    Mutant(
        "silence-is-good-news", HEADROOM,
        "FINE if found and passed_s < LOOKS * self._every_s else UNKNOWN", "FINE if found else UNKNOWN",
        (f"{ROOM}test_what_is_not_known_is_no_good_news",),
        "an alarm reports for days that all is well although Kafka does not answer",
    ),
    Mutant(
        "over-only-if-all-are", HEADROOM,
        "        if any(one.over for one in found):", "        if all(one.over for one in found):",
        (f"{ROOM}test_each_change_is_told_once_and_again_at_intervals",),
        "the other partitions hide one that loses records",
    ),
    Mutant(
        "told-only-once", HEADROOM, "(now.state == FINE or at < self._again_at)", "(now.state == FINE or at > 0)",
        (f"{ROOM}test_each_change_is_told_once_and_again_at_intervals",),
        "a missed alarm is never repeated",
    ),
    Mutant(
        "what-is-archived-waits", STATUS, "if shapes[tp].end > head.next}", "if shapes[tp].end >= head.next}",
        (f"{ROOM}test_what_waits_is_what_lies_beyond_the_head",),
        "a complete archive is reported as late",
    ),
    Mutant(
        "last-anchor-is-the-last-written", STATUS,
        "if tp not in newest or one.anchor.head.sequence >= newest[tp].anchor.head.sequence:",
        "if one.anchor.head.sequence >= 0:",
        (f"{ROOM}test_the_last_anchor_is_the_one_that_reaches_furthest",),
        "an old anchor written over a newer one passes for the newest",
    ),
    Mutant(
        "anchor-joins-the-line-before", ANCHORS, 'lines if file.read(1) == b"\\n" else b"\\n" + lines', "lines",
        ("tests/archive/proof/test_proving.py::test_an_anchor_is_never_appended_to_the_line_of_another",),
        "two concatenated anchors are not read as anchors",
    ),
    Mutant(
        "line-that-is-no-anchor-is-passed-over", ANCHORS,
        '                raise UsageError(f"{where} is not an anchor: {error}") from error', "                continue",
        ("tests/archive/proof/test_proving.py::test_a_line_that_is_no_anchor_is_told_and_not_left_out",),
        "damaging an anchor removes it unnoticed",
    ),
    Mutant(
        "fork-is-not-kept", ANCHORING, "            if known.fork:\n", "            if not known:\n",
        (f"{ANCHORED}test_a_fork_is_told_and_nothing_more_is_anchored_of_that_chain",),
        "one of two conflicting histories is anchored as if it were the only one",
    ),
    Mutant(
        "older-anchor-is-the-newest", ANCHORING,
        "    if anchor.head.sequence >= newest.sequence:\n", "    if anchor.head.sequence >= 0:\n",
        (f"{ANCHORED}test_an_archive_that_was_cut_off_at_an_older_anchor_is_found_out_though_that_was_written_last",),
        "a truncated archive gets a new anchor",
    ),
    Mutant(
        "what-was-written-over-stays", ANCHORING,
        "known.last is None or known.last.head != head or", "known.newest.head != head or",
        (f"{ANCHORED}test_an_older_anchor_written_over_a_newer_one_is_written_over_again",),
        "log compaction removes the only anchor that proves a change",
    ),
    Mutant(
        "unsigned-anchor-will-do", ANCHORING, " or bool(key and known.last.key != key)", "",
        (f"{ANCHORED}test_an_archiver_that_signs_leaves_no_unsigned_one_as_the_last",),
        "the newest anchor is unsigned, so anybody may have written it",
    ),
    Mutant(
        "what-grew-is-not-compared", ANCHORING, "why = why_not_above(known.newest.head, grown)", 'why = ""',
        (f"{ANCHORED}test_what_did_not_grow_out_of_the_last_anchor_is_not_anchored",),
        "an honest archiver anchors a forged new archive",
    ),
    Mutant(
        "first-refusal-ends-it", ANCHORING,
        '                    refused.append(f"{tp[0]}[{tp[1]}]: {why}")',
        "                    raise NotAnchored(why)",
        (f"{ANCHORED}test_others_are_anchored_all_the_same",),
        "because of one damaged chain, the chains after it get no anchors",
    ),
    Mutant(
        "shorter-retention-counts", EXPIRING, "max(terms, key=lambda term:", "min(terms, key=lambda term:",
        (f"{EXPIRED}test_of_two_namespaces_the_longer_one_counts",),
        "records that a namespace must keep are deleted",
    ),
    Mutant(
        "unread-spec-expires", EXPIRING,
        " and job_id not in self._unread:\n                yield", ":\n                yield",
        (f"{EXPIRED}test_of_a_job_whose_spec_nobody_can_read_nothing_goes",),
        "records of a job with an unknown namespace are deleted",
    ),
    Mutant(
        "held-record-by-record", EXPIRING, "if goes and not any(held(", "if goes and not all(held(",
        (f"{EXPIRED}test_a_job_is_held_by_one_of_its_records_that_would_go",),
        "part of a pinned job's history is deleted",
    ),
    Mutant(
        "specs-go-first", EXPIRING, "return [one for one in goes if not one.is_spec]", "return list(goes)",
        (f"{EXPIRED}test_what_tells_whose_a_job_is_goes_last",),
        "the rest of a job never expires",
    ),
    Mutant(
        "cut-a-day-late", EXPIRING,
        "if record.timestamp()[1] >= self.until_ms:", "if record.timestamp()[1] > self.until_ms + 86_400_000:",
        (f"{EXPIRED}test_what_goes_is_superseded_old_and_of_its_namespace",),
        "records are deleted a day too early",
    ),
    Mutant(
        "last-record-for-the-effective-one", SNAPSHOTS,
        "            effective[key] = record\n            if", "            if",
        (f"{THINNED}test_a_stale_leader_s_record_does_not_take_the_place_of_what_counts",),
        "a job starts from a record of a superseded leader",
    ),
    Mutant(
        "last-claim-for-the-first", SNAPSHOTS, "claims.setdefault(key, record)", "claims[key] = record",
        (f"{THINNED}test_a_claim_that_was_written_twice_or_tombstoned_stands_where_it_stood_first",),
        "records of the leader count as stale",
    ),
    Mutant(
        "unreadable-entry-is-nothing", SNAPSHOTS, "(unread or view.last_is_effective", "(view.last_is_effective",
        (f"{THINNED}test_what_cannot_be_read_hides_the_entry_before_it_whatever_a_stale_leader_writes_then",),
        "an older entry counts again after a start from a snapshot",
    ),
    Mutant(
        "jobs-end-is-not-kept", SNAPSHOTS, "        kept.setdefault(of_job[job].offset(), of_job[job])", "        pass",
        (f"{THINNED}test_of_a_job_that_is_known_the_last_record_is_kept_even_if_it_is_a_tombstone",),
        "a projector's progress is reported too high",
    ),
    Mutant(
        "root-of-the-proofs-is-not-asked", CARRYING,
        "if manifest is None or levels is None or (levels[-1][0].hex(), tree.size) != (manifest.root, manifest.count):",
        "if manifest is None or levels is None:",
        (f"{CARRIED}test_an_alteration_that_its_proofs_were_made_to_fit_is_found_by_the_root",),
        "an altered bundle passes as genuine",
    ),
    Mutant(
        "sealed-leaves-are-not-checked", CARRYING,
        "if merkle.root([leaf.hash for leaf in found]).hex() != manifest.root:", "if not found:",
        (f"{CARRIED}test_an_archive_whose_manifest_swears_something_else_gives_no_proofs",),
        "proofs are made that no anchor confirms",
    ),
)
