"""`audit anchor|verify|key`, and their answers about invalid, forged and contradicting anchors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters.local.objects import FolderObjects
from ledger.archive.format import anchor as anchors
from ledger.archive.format.anchor import Anchor
from ledger.archive.format.chain import Head
from ledger.archive.store.archive import Archive
from ledger.ports import Event
from tests.support.archives.given import TOPIC, an_archive, records, sealed
from tests.support.jobs_world import Shell, seal


class Audited:
    """An archive of ten manifests in each of two partitions, and the command on it."""

    def __init__(self, shell: Shell) -> None:
        self._shell, (_, self.store, self.heads) = shell, an_archive()
        shell.log.create("ledger.anchors", 1)
        shell.replaced["objects"] = lambda: self.store

    def run(self, *arguments: str, **environment: str) -> Any:
        return self._shell.run("audit", *arguments, LEDGER_ARCHIVE__ADAPTER="file", **environment)

    def post(self, anchor: Anchor | bytes, key: bytes = b"ledger.events[0]") -> None:
        value = anchor if isinstance(anchor, bytes) else anchors.encode(anchor)
        self._shell.log.append([Event("ledger.anchors", 0, key, value)])

    def proved(self, *arguments: str, code: int = 0, **environment: str) -> tuple[list[int], str]:
        told = self.run("verify", *arguments, "-o", "json", **environment)
        assert told.exit_code == code, told.output
        return [row["proved"] for row in json.loads(told.stdout)], told.stderr


@pytest.fixture
def audited(shell: Shell) -> Audited:
    return Audited(shell)


def test_what_the_topic_holds_is_proved_against_by_default(audited: Audited) -> None:
    ends = [head.next for head in audited.heads]
    found, told = audited.proved()
    assert found == [0, 0] and "without an anchor nothing is proved" in told
    written = audited.run("anchor", "-o", "json")
    assert [row["sha256"] for row in json.loads(written.stdout)] == [head.sha256 for head in audited.heads]
    assert "every chain is anchored as it is" in audited.run("anchor").stderr
    assert audited.proved() == (ends, "")
    assert audited.proved("--no-topic")[0] == [0, 0]


def test_files_count_beside_the_topic_and_without_it(audited: Audited, tmp_path: Path) -> None:
    files = [tmp_path / "first", tmp_path / "second"]
    for file, head in zip(files, audited.heads, strict=True):
        file.write_bytes(anchors.encode(Anchor(head)) + b"\n")
    both = [word for file in files for word in ("--anchors", str(file))]
    assert audited.proved("--no-topic", *both)[0] == [head.next for head in audited.heads]
    assert audited.proved("--no-topic", *both[:2])[0] == [audited.heads[0].next, 0]
    audited.post(Anchor(audited.heads[1]), b"ledger.events[1]")
    assert audited.proved(*both[:2])[0] == [head.next for head in audited.heads]


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_a_file_that_was_emptied_proves_nothing(audited: Audited, tmp_path: Path, content: bytes) -> None:
    """A file without anchors is an error, even if the topic or another file holds anchors."""
    audited.run("anchor")
    (tmp_path / "emptied").write_bytes(content)
    told = audited.run("verify", "--anchors", str(tmp_path / "emptied"))
    assert told.exit_code == 2 and f"{tmp_path / 'emptied'} holds no anchor" in told.stderr


def test_to_a_file_asks_no_kafka(audited: Audited, tmp_path: Path) -> None:
    def nobody(*_: Any) -> Any:
        raise AssertionError("no server must be asked")

    audited._shell.replaced |= {"event_log": nobody, "sender": nobody}
    told = audited.run("anchor", "--to", str(tmp_path / "anchors"))
    assert told.exit_code == 0, told.output
    assert audited.proved("--no-topic", "--anchors", str(tmp_path / "anchors"))[0][0] == audited.heads[0].next


def test_a_file_gets_what_has_grown_out_of_its_last_anchor_and_nothing_else(audited: Audited, tmp_path: Path) -> None:
    """A cron job that keeps anchors in a file must notice a truncated archive."""
    file, whole = tmp_path / "anchors", dict(audited.store.stored)
    to = ("anchor", "--to", str(file))
    assert audited.run(*to).exit_code == 0
    kept = file.read_bytes()
    assert "every chain is anchored as it is" in audited.run(*to).stderr
    for name in whole:
        if f"manifests/{TOPIC}/1/000000000005" <= name < f"manifests/{TOPIC}/1/1":
            del audited.store.stored[name]
    told = audited.run(*to)
    assert told.exit_code == 1 and "it was cut off" in told.stderr
    assert file.read_bytes() == kept
    file.write_bytes(kept + b"nothing\n")
    assert audited.run(*to).exit_code == 2


def test_a_folder_that_is_not_there_is_not_made_for_anchors(audited: Audited, tmp_path: Path) -> None:
    """The folder may be the mount point of a disk that is not mounted."""
    assert audited.run("anchor", "--to", str(tmp_path / "gone" / "anchors")).exit_code == 2
    assert not (tmp_path / "gone").exists()


def test_an_archive_that_is_empty_is_the_wrong_one_most_likely(audited: Audited, tmp_path: Path) -> None:
    audited.store.stored.clear()
    for arguments in (("verify", "--no-topic"), ("anchor", "--to", str(tmp_path / "anchors")), ("anchor",)):
        told = audited.run(*arguments)
        assert told.exit_code == 1 and "It lies in" in told.stderr, arguments
    assert not (tmp_path / "anchors").exists()


def test_who_gives_up_anchors_says_why(audited: Audited) -> None:
    audited.run("anchor")
    assert audited.run("anchor", "--anew", " ").exit_code == 2
    assert audited.proved()[0] == [head.next for head in audited.heads]


def test_of_the_command_itself_answers_alone_are_on_stdout(tmp_path: Path) -> None:
    an_archive_in(tmp_path / "archive")
    command = [sys.executable, "-m", "ledger", "audit", "anchor", "--to", str(tmp_path / "anchors"), "-o", "json"]
    environment = {**os.environ, "LEDGER_DIR": str(tmp_path), "LEDGER_ARCHIVE__ADAPTER": "file"}
    told = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=True)
    assert len(json.loads(told.stdout)) == 1
    command = [*command[:-2], "--debug"]
    sealed(Archive(FolderObjects(tmp_path / "archive")), records(10, begin=1000))
    told = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=True)
    assert "anchored" in told.stderr


def an_archive_in(folder: Path) -> None:
    sealed(Archive(FolderObjects(folder), "test", lambda: "2026-01-01T00:00:00Z"), records(20))


def test_without_a_kafka_it_is_said_that_the_topic_is_not_asked(audited: Audited, tmp_path: Path) -> None:
    audited._shell.log.up = False
    audited.run("anchor", "--to", str(tmp_path / "anchors"))
    found, told = audited.proved("--anchors", str(tmp_path / "anchors"))
    assert found == [head.next for head in audited.heads]
    assert "WARNING: the anchors in ledger.anchors are not asked" in told


@pytest.mark.parametrize(("post", "says"), [
    (lambda heads: b"garbage", "no anchor: ledger.anchors[0]@0, of ledger.events[0]"),
    (lambda heads: Anchor(heads[0]._replace(sha256="0" * 64)), "a fork: ledger.events[0], manifest 9"),
    (lambda heads: Anchor(heads[0]._replace(sequence=10**12)), "the manifest is missing"),
])  # fmt: skip
def test_what_is_wrong_with_an_anchor_is_named_and_exit_1(
    audited: Audited, post: Callable[[list[Head]], Any], says: str
) -> None:
    audited.post(post(audited.heads))
    audited.post(Anchor(audited.heads[0]))
    _, told = audited.proved(code=1)
    assert says in told


def test_an_anchor_is_believed_its_hash_and_not_its_reach(audited: Audited) -> None:
    audited.post(Anchor(audited.heads[0]._replace(sequence=9, next=10**9)))
    assert audited.proved()[0][0] == audited.heads[0].next


def test_an_older_anchor_does_not_hide_a_newer_one(audited: Audited) -> None:
    (shorter, _, (early, _)) = an_archive(50)
    assert shorter.head(TOPIC, 0) == early
    audited.post(Anchor(audited.heads[0]))
    audited.post(Anchor(early))
    found, told = audited.proved()
    assert found[0] == audited.heads[0].next
    back = "ledger.anchors[0]@1 names manifest 4 of ledger.events[0], and ledger.anchors[0]@0 named 9 before"
    assert f"an anchor that goes back: the newer one counts as long as the topic has it: {back}" in told


def test_a_chain_that_was_forged_is_told_with_the_range_in_which_the_first_bad_record_lies(audited: Audited) -> None:
    audited.post(Anchor(audited.heads[0]))
    _, other, (head, _) = an_archive(99)
    audited.store.stored.clear()
    audited.store.stored.update(other.stored)
    told = audited.run("verify")
    assert told.exit_code == 1
    last = head.next - 1
    assert f"  0 to {last}" in told.stdout and f"lies somewhere from offset 0 to {last}" in told.stderr
    row = json.loads(audited.run("verify", "-o", "json").stdout)[0]
    assert (row["bad"], row["proved_manifest"]) == ({"from": 0, "to": last}, -1) and row["first_bad"] > 0


def test_what_lies_above_the_last_anchor_is_told_by_its_number(audited: Audited) -> None:
    audited.run("anchor")
    archive = Archive(audited.store, "mallory", lambda: "2026-01-01T00:00:00Z")
    head = archive.note(audited.heads[0], "unpinned", {})
    _, told = audited.proved()
    assert f'manifest {head.sequence} is a note "unpinned", by mallory at 2026-01-01T00:00:00Z; no anchor stands' in told
    assert f"the last 1 manifest, which seal none (above manifest {head.sequence - 1})" in told


def test_what_was_given_up_is_told(audited: Audited) -> None:
    other = an_archive(60)[1]
    audited.run("anchor")
    audited.store.stored.clear()
    audited.store.stored.update(other.stored)
    assert "not anchored" in audited.run("anchor").stderr.lower()
    audited.proved(code=1)
    assert audited.run("anchor", "--anew", "another number of partitions").exit_code == 0
    found, told = audited.proved()
    assert 0 not in found and told.count("another number of partitions") == 2
    assert audited.run("anchor", "--anew", "x", "--to", "f").exit_code == 2


# -- signed anchors ----------------------------------------------------------------------------------------------------


def test_only_anchors_of_the_key_count(audited: Audited, tmp_path: Path) -> None:
    made = audited.run("key", "--new", str(tmp_path / "key"), "-o", "json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["public"] == str(tmp_path / "key.pub")
    assert os.stat(tmp_path / "key").st_mode & 0o777 == 0o600
    assert audited.run("key", "--new", str(tmp_path / "key")).exit_code == 2
    signs, checks = {"LEDGER_ARCHIVE__ANCHOR_KEY_FILE": str(tmp_path / "key")}, ("--public-key", str(tmp_path / "key.pub"))
    told = audited.run("anchor", **signs)
    assert told.exit_code == 0 and "WARNING" not in told.stderr
    assert audited.proved(*checks)[0] == audited.proved()[0] == [head.next for head in audited.heads]

    audited.post(Anchor(audited.heads[0]))
    found, told = audited.proved(*checks, code=1)
    assert found == [head.next for head in audited.heads]
    assert "an anchor that does not count: ledger.anchors[0]@2, of ledger.events[0] manifest 9: it is not signed" in told
    by_settings = audited.proved(code=1, LEDGER_ARCHIVE__ANCHOR_PUBLIC_KEY_FILE=str(tmp_path / "key.pub"))
    assert by_settings == (found, told)


@pytest.mark.parametrize("change", [
    {"next": 1}, {"topic_id": "x"}, {"sha256": "0" * 64}, {"sequence": 3}, {"partition": 1}, {"topic": "ledger.recovery"},
])  # fmt: skip
def test_whatever_is_changed_in_a_signed_anchor_is_seen(audited: Audited, tmp_path: Path, change: dict[str, Any]) -> None:
    audited.run("key", "--new", str(tmp_path / "key"))
    audited.run("anchor", "--to", str(tmp_path / "anchors"), LEDGER_ARCHIVE__ANCHOR_KEY_FILE=str(tmp_path / "key"))
    line, _ = (tmp_path / "anchors").read_text().splitlines()
    (tmp_path / "anchors").write_text(json.dumps({**json.loads(line), **change}))
    files = ("--anchors", str(tmp_path / "anchors"), "--no-topic", "--public-key", str(tmp_path / "key.pub"))
    found, told = audited.proved(*files, code=1)
    assert found == [0, 0] and "its signature is invalid" in told


def test_an_anchor_of_another_key_does_not_count(audited: Audited, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        audited.run("key", "--new", str(tmp_path / name))
    audited.run("anchor", LEDGER_ARCHIVE__ANCHOR_KEY_FILE=str(tmp_path / "theirs"))
    found, told = audited.proved("--public-key", str(tmp_path / "ours.pub"), code=1)
    assert found == [0, 0] and "signed with another key" in told


def test_keys_that_can_not_be_are_told_and_never_shown(audited: Audited, tmp_path: Path) -> None:
    audited.run("key", "--new", str(tmp_path / "key"))
    secret = (tmp_path / "key").read_text().splitlines()[1]
    (tmp_path / "broken").write_text((tmp_path / "key").read_text().replace("PRIVATE", "PRIVAT"))
    for name in ("nowhere", "broken", "key.pub"):
        told = audited.run("anchor", LEDGER_ARCHIVE__ANCHOR_KEY_FILE=str(tmp_path / name))
        assert told.exit_code == 2 and secret not in told.output
        told = audited._shell.run("config", "check", LEDGER_ARCHIVE__ANCHOR_KEY_FILE=str(tmp_path / name))
        assert told.exit_code == 2 and secret not in told.output
    for name in ("nowhere", "broken", "key"):
        told = audited.run("verify", "--public-key", str(tmp_path / name))
        assert told.exit_code == 2 and secret not in told.output
    (tmp_path / "key").chmod(0o640)
    told = audited.run("anchor", LEDGER_ARCHIVE__ANCHOR_KEY_FILE=str(tmp_path / "key"))
    assert told.exit_code == 0 and f"chmod 600 {tmp_path / 'key'}" in told.stderr and secret not in told.output


def test_status_shows_what_was_anchored_last(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.archive.store.status import ArchiveProgress

    monkeypatch.setattr("ledger.app.archives.archive_progress", lambda _: [
        ArchiveProgress(TOPIC, partition, 10, 5, 5, None, None, 60.0) for partition in (0, 1)
    ])  # fmt: skip
    audited.post(Anchor(audited.heads[0]))
    told = audited._shell.run("archive", "status", "-o", "json", LEDGER_ARCHIVE__ADAPTER="file")
    assert [row["anchored"] for row in json.loads(told.stdout)] == [9, None]


def test_what_an_archiver_may_be_about_to_name_is_not_told(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    shell.submit("one")
    seal(shell)
    folder = shell.folder / "archive" / "records" / "ledger.events" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stored.parquet").write_bytes(b"")
    assert "no manifest names" not in shell.run("audit", "verify", "--no-topic").stderr
    hour_ago = time.time() - 3600
    os.utime(folder / "stored.parquet", (hour_ago, hour_ago))
    assert "1 objects that no manifest names, such as" in shell.run("audit", "verify", "--no-topic").stderr
    longer = shell.run("audit", "verify", "--no-topic", LEDGER_ARCHIVE__INTERVAL_S="1900")
    assert "no manifest names" not in longer.stderr
