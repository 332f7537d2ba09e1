"""Mistakes in other parts of the agent: the owner of its folder, the search for checkpoints, the size of logs."""

from __future__ import annotations

from tests.mutation.mutant import Mutant

RUNNER = "ledger/adapters/runners/subprocess"
OWNER, WATCH, LOGS = f"{RUNNER}/owner.py", f"{RUNNER}/supervisor/watch.py", f"{RUNNER}/supervisor/logs.py"
OWNED = "tests/adapters/test_agent_owner.py::"
WATCHED, ROTATED = "tests/adapters/runners/test_checkpoint_watch.py::", "tests/adapters/runners/test_rotation.py::"

MUTANTS = (
    Mutant(
        "any-ledger-may-have-the-folder", OWNER, " and recorded != topic_id and _has_jobs", " and recorded == '' and _has_jobs",
        (f"{OWNED}test_jobs_of_another_ledger_are_refused_with_both_ids_and_what_to_do",),
        "jobs of another ledger are stopped as strays, and their checkpoints deleted",
    ),
    Mutant(
        "an-empty-folder-is-somebodys", OWNER, " and _has_jobs(folder):", ":",
        (f"{OWNED}test_a_folder_without_jobs_is_anybodys",),
        "an agent on a new host does not start",
    ),
    Mutant(
        "a-broker-without-ids-owns-nothing", OWNER, "if topic_id and recorded and", "if recorded and",
        (f"{OWNED}test_a_broker_that_gives_no_ids_is_not_held_against_anybody",),
        "no agent starts if Kafka returns no topic ids",
    ),
    Mutant(
        "no-id-is-noted-over-a-good-one", OWNER, "    if topic_id and _recorded(folder) != topic_id:",
        "    if _recorded(folder) != topic_id:",
        (f"{OWNED}test_a_broker_that_gives_no_ids_is_not_held_against_anybody",),
        "the next ledger takes over a folder with another ledger's jobs",
    ),
    Mutant(
        "the-first-ledger-owns-the-folder-for-ever", OWNER, "    if topic_id and _recorded(folder) != topic_id:",
        "    if topic_id and not _recorded(folder):",
        (f"{OWNED}test_a_folder_without_jobs_is_anybodys",),
        "jobs of the second ledger are stopped by an agent of the first",
    ),
    Mutant(
        "a-damaged-note-stops-the-agent", OWNER, "(OSError, ValueError, KeyError, TypeError)", "(OSError, KeyError)",
        (f"{OWNED}test_a_folder_of_an_older_release_or_with_a_damaged_file_is_taken",),
        "after a damaged file no job of the host runs",
    ),
    Mutant(
        "listed-once-after-a-change", WATCH, "now - self._changed_at <= SETTLING_S", "now == self._changed_at",
        (f"{WATCHED}test_it_is_listed_when_it_changed_and_for_a_while_after",),
        "a checkpoint within one tick of the file system's clock is seen seconds late",
    ),
    Mutant(
        "never-listed-without-a-change", WATCH, " or now - self._listed_at >= LISTING_S", "",
        (f"{WATCHED}test_it_is_listed_now_and_then_even_if_it_seems_unchanged",),
        "a checkpoint is never reported on a file system without modification times of folders",
    ),
    Mutant(
        "listed-at-every-poll", WATCH, "        self._listed_at = now\n", "",
        (f"{WATCHED}test_it_is_listed_now_and_then_even_if_it_seems_unchanged",),
        "two thousand idle jobs cost a core",
    ),
    Mutant(
        "only-a-later-stamp-is-a-change", WATCH, "if mtime != self._mtime:", "if mtime > self._mtime:",
        (f"{WATCHED}test_a_folder_whose_clock_goes_back_has_changed",),
        "after a clock was set back, checkpoints are reported seconds late",
    ),
    Mutant(
        "a-folder-that-is-not-there-is-an-error", WATCH, "except FileNotFoundError:\n            return False",
        "except FileNotFoundError:\n            raise",
        (f"{WATCHED}test_a_folder_that_is_not_there_is_not_listed_and_nothing_is_new",),
        "a job that deletes its folder ends its supervisor",
    ),
    Mutant(
        "newest-by-what-was-read", WATCH, "            yield fact\n", "            self.newest = 1 << 62\n            yield fact\n",
        (f"{WATCHED}test_what_was_not_taken_note_of_is_told_again",),
        "a checkpoint whose fact could not be written is lost",
    ),
    Mutant(
        "what-was-told-is-complained-of", WATCH, "set(old) - self._known", "set(old)",
        (f"{WATCHED}test_what_is_not_above_the_newest_is_ignored_and_said_so_once",),
        "the log of the supervisor fills the disk",
    ),
    Mutant(
        "complaints-have-no-bound", WATCH, "                self._lines += 1\n", "",
        (f"{WATCHED}test_a_job_that_goes_on_so_does_not_fill_the_log",),
        "a job with a wrong counter fills the disk with complaints",
    ),
    Mutant(
        "the-first-bytes-are-copied-aside", LOGS, "max(0, size - self.bytes_max)", "0",
        (f"{ROTATED}test_a_file_that_is_too_large_is_copied_aside_with_its_newest_bytes_and_cut_to_nothing",),
        "a job that prints much between two checks fills the disk",
    ),
    Mutant(
        "the-log-is-not-appended-to", LOGS, "os.O_RDWR | os.O_CREAT | os.O_APPEND", "os.O_RDWR | os.O_CREAT",
        (f"{ROTATED}test_the_job_goes_on_at_the_new_end",),
        "after a rotation the log begins with gigabytes of zero bytes",
    ),
    Mutant(
        "files-move-up-from-the-newest", LOGS, "range(self.files - 1, 1, -1)", "range(2, self.files)",
        (f"{ROTATED}test_older_files_move_up_and_the_oldest_goes",),
        "later output overwrites earlier output",
    ),
    Mutant(
        "one-file-more-than-asked-for", LOGS, "range(self.files - 1, 1, -1)", "range(self.files, 1, -1)",
        (f"{ROTATED}test_older_files_move_up_and_the_oldest_goes",),
        "logs take more space than the settings allow",
    ),
    Mutant(
        "a-log-that-can-not-be-copied-grows", LOGS,
        '            say(f"{self.path}: old lines are lost: {error}")\n', '            say(f"{self.path}: old lines are lost: {error}")\n'
        "            return\n",
        (f"{ROTATED}test_where_nothing_can_be_copied_the_bound_holds_all_the_same",),
        "on a full disk the log grows for ever",
    ),
    Mutant(
        "a-log-for-everybody", LOGS, "os.O_APPEND | os.O_CLOEXEC, 0o600)", "os.O_APPEND | os.O_CLOEXEC, 0o644)",
        (f"{ROTATED}test_what_the_job_printed_is_its_owners_alone",),
        "any user of the host reads the passwords that a job prints",
    ),
    Mutant(
        "a-log-that-is-there-is-cut", LOGS, "os.O_CREAT | os.O_APPEND |", "os.O_CREAT | os.O_TRUNC | os.O_APPEND |",
        (f"{ROTATED}test_a_log_that_is_there_is_gone_on_with",),
        "a second open of the log deletes the job's output",
    ),
)
