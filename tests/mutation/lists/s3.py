"""Mistakes in the use of a bucket: conditional puts, multipart uploads, lost answers, pages, refusals."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

BLOBS, UPLOAD, OBJECTS, CLIENT = (f"ledger/adapters/s3/{name}.py" for name in ("blobs", "upload", "objects", "client"))
TESTS = "tests/adapters/test_s3.py"
CONTRACT = "tests/contract/test_objects.py"

MUTANTS = (
    Mutant(
        "a-first-put-has-no-condition", UPLOAD,
        "Body=data, **settings.encryption, **condition)", "Body=data, **settings.encryption)",
        (f"{TESTS}::test_every_put_is_conditional",),
        "the last writer overwrites a graph",
    ),
    Mutant(
        "parts-are-completed-without-a-condition", UPLOAD,
        'MultipartUpload={"Parts": parts}, **condition)', 'MultipartUpload={"Parts": parts})',
        (f"{TESTS}::test_every_put_is_conditional",),
        "the last writer overwrites a large graph",
    ),
    Mutant(
        "parts-of-a-failed-upload-stay", UPLOAD,
        "            client.abort_multipart_upload(**named)\n", "            pass\n",
        (f"{TESTS}::test_a_put_that_meets_another_is_tried_again",),
        "parts of abandoned uploads cost money for ever",
    ),
    Mutant(
        "a-meeting-is-a-failure", UPLOAD,
        "status_of(error) in (409, 412) or", "status_of(error) == 412 or",
        (f"{TESTS}::test_a_put_that_meets_another_is_tried_again",),
        "a submit fails because another upload of the same graph is in progress",
    ),
    Mutant(
        "an-upload-that-was-ended-is-a-failure", UPLOAD,
        " or code_of(error) in _MET or is_not_found(error)", "",
        (f"{TESTS}::test_an_upload_that_is_ended_under_us_begins_anew",),
        "a submit fails although only its answer was lost",
    ),
    Mutant(
        "a-file-that-changes-is-stored-in-parts", UPLOAD,
        "        _must_be(digest.hexdigest(), source, ref)\n", "",
        (f"{TESTS}::test_a_file_that_changes_while_it_is_stored_is_not_stored",),
        "the content of the graph does not match its name, and its job is quarantined",
    ),
    Mutant(
        "a-file-that-changes-is-stored-at-once", UPLOAD,
        "            _must_be(hashlib.sha256(data).hexdigest(), source, ref)\n", "",
        (f"{TESTS}::test_a_file_that_changes_while_it_is_stored_is_not_stored",),
        "the content of the graph does not match its name, and its job is quarantined",
    ),
    Mutant(
        "what-lies-there-is-taken-unread", BLOBS,
        "            if intact(body.iter_chunks(CHUNK_BYTES), ref) and age_s", "            if age_s",
        (f"{TESTS}::test_every_put_is_conditional",),
        "a submit never repairs a damaged graph",
    ),
    Mutant(
        "what-is-old-stays-old", BLOBS,
        ' and age_s(found["LastModified"], found) < AGE_OFF_S:', ":",
        (f"{TESTS}::test_a_put_of_what_is_old_puts_it_again_and_so_makes_it_young",),
        "the collector takes a graph that was submitted a moment ago",
    ),
    Mutant(
        "a-damaged-graph-is-mended-whatever-lies-there", BLOBS,
        '{"IfMatch": found["ETag"]})', "{})",
        (f"{TESTS}::test_every_put_is_conditional",),
        "a repair overwrites a graph that another submitter has just repaired or stored",
    ),
    Mutant(
        "a-wrong-bucket-has-no-graphs", BLOBS,
        "            self._must_be_a_store()\n            raise PermanentError", "            raise PermanentError",
        (f"{TESTS}::test_a_wrong_prefix_is_no_missing_graph",),
        "every job is quarantined because of one wrong setting",
    ),
    Mutant(
        "a-graph-is-judged-by-one-look", BLOBS,
        "                    if wrong is not None:\n                        raise\n                    wrong = error\n",
        "                    raise\n",
        (f"{TESTS}::test_what_the_wire_has_changed_is_read_anew",),
        "one bad packet quarantines a job",
    ),
    Mutant(
        "an-answer-that-breaks-off-is-the-end", BLOBS,
        "    except BROKEN as error:\n        raise _Broken from error\n", "    except BROKEN:\n        return\n",
        (f"{TESTS}::test_answers_that_always_break_off_are_no_damaged_graph",),
        "one failed connection quarantines a job",
    ),
    Mutant(
        "only-the-first-page-is-deleted", BLOBS,
        "for page in pages)\n\n    def listing", "for page in [next(iter(pages))])\n\n    def listing",
        (f"{TESTS}::test_all_pages_are_deleted_a_thousand_at_a_time",),
        "graphs of retired jobs are never deleted",
    ),
    Mutant(
        "a-refusal-inside-of-a-200-is-overlooked", BLOBS,
        "            if not errors:\n                return len(keys)\n", "            return len(keys)\n",
        (f"{TESTS}::test_what_a_deletion_leaves_is_deleted_again",),
        "a graph counts as deleted but still exists",
    ),
    Mutant(
        "what-the-store-refused-for-good-is-asked-again", BLOBS,
        "            if lasting := [error for error in errors if not passing(error)]:\n                raise lasting[0]\n",
        "",
        (f"{TESTS}::test_a_deletion_that_is_refused_in_part_is_none",),
        "a missing permission is reported as a busy store",
    ),
    Mutant(
        "uploads-of-a-retired-job-stay", BLOBS,
        "            self._end_uploads(prefix)\n", "",
        (f"{TESTS}::test_what_a_killed_submitter_has_uploaded_goes_with_the_job",),
        "parts of killed submitters cost money for ever",
    ),
    Mutant(
        "a-blob-that-was-put-again-is-deleted", BLOBS,
        '            if int(found["LastModified"].timestamp()) != int(blob.put_at):'
        "  # only listings have milliseconds\n                return False\n",
        "",
        ("tests/contract/test_blobs.py::test_one_is_deleted_as_it_was_listed_and_no_other",),
        "the collector takes a graph that was put after its listing",
    ),
    Mutant(
        "an-object-is-overwritten", OBJECTS,
        "**self._settings.encryption, **NEW\n", "**self._settings.encryption\n",
        (f"{CONTRACT}::test_what_is_there_is_never_changed",),
        "two archivers overwrite each other's segments",
    ),
    Mutant(
        "an-open-meeting-counts-as-lost", OBJECTS,
        "if status_of(error) != 412:", "if status_of(error) not in (409, 412):",
        (f"{TESTS}::test_an_object_whose_creation_met_another_has_no_creator_yet",),
        "an archiver takes its own segment for another's",
    ),
    Mutant(
        "a-forbidden-object-is-not-there", OBJECTS,
        "                if status_of(error) != 404:\n                    raise\n", "",
        (f"{TESTS}::test_an_object_that_is_forbidden_is_not_taken_for_missing",),
        "an archive without read permission looks empty",
    ),
    Mutant(
        "an-object-is-read-in-one-try", OBJECTS,
        "                    if not left:\n                        raise\n", "                    raise\n",
        (f"{TESTS}::test_an_object_whose_answer_breaks_off_is_read_anew",),
        "one failed connection ends the verification of an archive",
    ),
    Mutant(
        "a-refusal-is-an-outage", CLIENT,
        "    if code in _DENIED or status_of(error) in (401, 403):", "    if code in _DENIED:",
        (f"{TESTS}::test_a_refusal_is_a_matter_of_settings_and_names_the_rights",),
        "for a missing permission, the hint is to check the settings in general",
    ),
    Mutant(
        "an-overloaded-store-is-a-wrong-setting", CLIENT,
        " or status == 429 or (status >= 500 and status != 501)", "",
        (f"{TESTS}::test_a_store_that_stays_busy_is_unreachable",),
        "an outage of the store is reported as an operator's error",
    ),
    Mutant(
        "age-counts-by-our-own-clock", CLIENT,
        "parsedate_to_datetime(date_header).timestamp() if date_header else time.time()", "time.time()",
        (f"{TESTS}::test_age_counts_by_the_clock_of_the_store",),
        "with a wrong clock the collector takes young graphs",
    ),
)  # fmt: skip
