"""Content digests of checkpoints: computed in the background, with a bounded read rate, and checked before a start."""

from __future__ import annotations

import json
import os
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess import content, restore
from ledger.adapters.runners.subprocess.content import ContentManifest
from ledger.adapters.runners.subprocess.digests import Checks, Digests, Limits
from ledger.adapters.runners.subprocess.restore import RestoreCheck
from ledger.core.model.facts import CheckpointCompleted, RefusedRestorePoint, RestorePoint
from ledger.core.model.registers import Checkpoint, Ended
from ledger.ports import PrepareTask, Verification
from ledger.tasks import Prepared, prepare
from tests.support.host import Host
from tests.support.waiting import until

pytestmark = pytest.mark.slow

J = "job-1"


def folder_of(root: Path, **files: str) -> Path:
    checkpoint = root / "jobs" / J / "attempts" / "1" / "checkpoints" / "chk-1"
    checkpoint.mkdir(parents=True)
    for name, text in files.items():
        (checkpoint / name).write_text(text)
    return checkpoint


def digest_of(*files: tuple[str, str]) -> str:
    """The digest as PROTOCOL.md defines it, computed without the library."""
    rows = [[path, len(text), sha256(text.encode()).hexdigest()] for path, text in files]
    return "sha256-manifest:" + sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def recorded(host: Host, number: int, n: int = 1) -> CheckpointCompleted:
    def found() -> CheckpointCompleted | None:
        facts = dict(host.logged(J))
        fact = facts.get(Checkpoint(n, number))
        assert fact is None or isinstance(fact, CheckpointCompleted)
        return fact

    return until(found, f"checkpoint {number} is recorded")


def point_of(host: Host, number: int) -> RestorePoint:
    fact = recorded(host, number)
    return RestorePoint(1, number, fact.location, fact.size, fact.digest, fact.kind)


def spoil(path: Path) -> None:
    """Changes the content, but neither size nor time, as a faulty disk does."""
    status = path.stat()
    path.write_bytes(b"x" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# -- the digest --------------------------------------------------------------------------------------------------------


def test_the_digest_is_what_the_protocol_says(tmp_path: Path) -> None:
    checkpoint = folder_of(tmp_path, b="two", a="one")
    assert content.read(checkpoint).digest == digest_of(("a", "one"), ("b", "two"))
    assert content.read(checkpoint / "a").digest == digest_of(("", "one"))


def test_a_link_counts_by_where_it_points_and_is_not_followed(tmp_path: Path) -> None:
    checkpoint = folder_of(tmp_path)
    for name in ("file", "folder"):
        (checkpoint / name).symlink_to(f"/nowhere/{name}")
    before = content.read(checkpoint)
    (checkpoint / "file").unlink()
    (checkpoint / "file").symlink_to("/nowhere/else")
    assert content.difference(before, content.read(checkpoint)) == "the content of file is not what was recorded"
    assert [file.path for file in before.files] == ["file", "folder"]


def test_a_file_that_changes_while_it_is_read_has_no_digest(tmp_path: Path) -> None:
    checkpoint = folder_of(tmp_path, a="x" * 100)
    reading = content.reading(checkpoint, block=10)
    next(reading)
    (checkpoint / "a").write_text("y" * 99)
    with pytest.raises(content.Unsteady, match="changed while it was read"):
        list(reading)


def test_a_pipe_has_no_digest_and_nobody_waits_for_it(tmp_path: Path) -> None:
    checkpoint = folder_of(tmp_path)
    os.mkfifo(checkpoint / "pipe")
    with pytest.raises(content.Unsteady, match="not a regular file"):
        content.read(checkpoint)


def test_files_that_did_not_change_are_read_once(tmp_path: Path) -> None:
    checkpoint, known = folder_of(tmp_path, a="one", b="two"), {}
    assert sum(content.reading(checkpoint, known)) == 6
    os.link(checkpoint / "a", checkpoint / "hard link")
    assert sum(content.reading(checkpoint, known)) == 0
    (checkpoint / "b").write_text("owt")
    os.utime(checkpoint / "b", ns=(1, 1))
    assert sum(content.reading(checkpoint, known)) == 3
    assert sum(content.reading(checkpoint)) == 9, "a check reads every byte"


@pytest.mark.parametrize("data", ["", "{}", "[]", '{"files": [[1, 2, 3, null]]}', '{"files": [["a", 1]]}', "\0" * 100])
def test_a_manifest_that_cant_be_read_is_none(tmp_path: Path, data: str) -> None:
    checkpoint = folder_of(tmp_path, a="one")
    assert content.save(checkpoint, content.read(checkpoint)) and content.load(checkpoint) is not None
    content.manifest_path(checkpoint).write_text(data)
    assert content.load(checkpoint) is None


# -- computing digests -------------------------------------------------------------------------------------------------


class Pacer:
    """A clock that advances only by waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def taken(digests: Digests, checkpoints: list[Path], pacer: Pacer) -> None:
    digests.begin()
    assert all(digests.take(checkpoint) for checkpoint in checkpoints)
    stop = threading.Event()
    thread = threading.Thread(target=digests.run, args=(stop, pacer.wait))
    thread.start()
    until(lambda: not any(digests.under_way(checkpoint) for checkpoint in checkpoints), "all digests are computed")
    stop.set()
    thread.join()


def test_no_more_is_read_in_a_second_than_is_allowed(tmp_path: Path) -> None:
    checkpoint, pacer = folder_of(tmp_path, a="x" * 50_000, b="y" * 50_000), Pacer()
    taken(Digests(Limits(bytes_per_s=10_000), pacer), [checkpoint], pacer)
    assert pacer.now == pytest.approx(10, abs=0.1)
    assert content.load(checkpoint) == content.read(checkpoint)


def test_a_small_checkpoint_does_not_wait_for_a_large_one(tmp_path: Path) -> None:
    large, small = folder_of(tmp_path / "1", a="x" * 1_000_000), folder_of(tmp_path / "2", a="x")
    pacer = Pacer()
    stored_at: dict[Path, float] = {}

    class Noting(Digests):
        def _store(self, path: Path, manifest: ContentManifest) -> None:
            stored_at[path] = pacer.now
            super()._store(path, manifest)

    taken(Noting(Limits(bytes_per_s=100_000), pacer), [large, small], pacer)
    assert stored_at[small] < 1 < 9 < stored_at[large]


def test_another_agent_knows_from_the_manifests_what_was_read(tmp_path: Path) -> None:
    first, pacer = folder_of(tmp_path, a="x" * 50_000), Pacer()
    taken(Digests(Limits(bytes_per_s=10_000), pacer), [first], pacer)
    second = first.with_name("chk-2")
    second.mkdir()
    os.link(first / "a", second / "a")
    (second / "b").write_text("y" * 10_000)
    again = Pacer()
    taken(Digests(Limits(bytes_per_s=10_000), again), [second], again)
    assert again.now == pytest.approx(1, abs=0.1)


def test_nothing_is_taken_where_nothing_may_be_read(tmp_path: Path) -> None:
    digests = Digests(Limits(bytes_per_s=0))
    digests.begin()
    assert not digests.take(folder_of(tmp_path, a="one"))
    digests.run(threading.Event())  # returns at once


# -- digests in records ------------------------------------------------------------------------------------------------


def test_the_record_of_a_checkpoint_has_the_digest_of_its_content(host: Host) -> None:
    host.start_agent()
    host.start(J)
    host.tell(J, "checkpoint 3")
    assert recorded(host, 3).digest == digest_of(("", "state of chk-3"))


def test_a_record_does_not_wait_for_a_digest_longer_than_it_may_and_the_agent_keeps_that(host: Host) -> None:
    host.limits = Limits(bytes_per_s=1, wait_s=0.0)
    host.start_agent()
    host.start(J)
    host.tell(J, "checkpoint 3")
    assert recorded(host, 3).digest == ""
    host.limits = Limits()
    host.restart_agent()
    path = content.manifest_path(Path(recorded(host, 3).location))
    until(path.exists, "the next agent computes the digest")
    point = point_of(host, 3)
    assert host.runner.verify(point) is Verification.VALID
    spoil(Path(point.location))
    assert host.runner.verify(point) is Verification.INVALID
    assert "the content of the file is not what was recorded" in host.runner.why_refused(point)


def test_an_end_does_not_wait_for_a_digest(host: Host) -> None:
    host.limits = Limits(bytes_per_s=1, wait_s=3600.0)
    host.start_agent()
    host.start(J)
    host.tell(J, "checkpoint 3")
    host.tell(J, "exit 1")
    register, end = host.end(J)
    assert isinstance(register, Ended) and end.checkpoint == 3 and recorded(host, 3).digest == ""


def test_a_fence_does_not_wait_for_a_digest(host: Host) -> None:
    host.limits = Limits(bytes_per_s=1, wait_s=3600.0)
    host.start_agent()
    host.start(J)
    host.tell(J, "checkpoint 3")
    until(lambda: list((host.run_folder(J) / "facts").glob("*2.json")), "the supervisor has seen the checkpoint")
    assert f"{J}/checkpoint/1/3".encode() in [event.key for event in host.runner.fence(J, 1)]


def test_a_manifest_goes_with_its_checkpoint(host: Host) -> None:
    host.start_agent()
    host.start(J)
    for number in range(1, 6):
        host.tell(J, f"checkpoint {number}")
        recorded(host, number)
    kept = {"chk-3.json", "chk-4.json", "chk-5.json"}
    until(lambda: {path.name for path in (host.run_folder(J) / "digests").iterdir()} == kept, "the oldest two are gone")
    host.runner.dispose(J, [point_of(host, 5)])
    assert {path.name for path in (host.run_folder(J) / "digests").iterdir()} == kept - {"chk-5.json"}


# -- checks before a start ---------------------------------------------------------------------------------------------


def test_content_that_changed_without_its_size_is_refused_and_the_next_older_is_taken(host: Host) -> None:
    host.start_agent()
    host.start(J)
    for number in (3, 7):
        host.tell(J, f"checkpoint {number}")
        recorded(host, number)
    older, newest = point_of(host, 3), point_of(host, 7)
    task = PrepareTask(runner="subprocess", job_id=J, n=2, restore_points=(newest, older), graph=host.graph(J))
    assert prepare(task, host.runner, host.blobs) == Prepared(newest, ())
    spoil(Path(newest.location))
    prepared = prepare(task, host.runner, host.blobs)
    (refused,) = prepared.refused
    assert (prepared.base, refused.restore_point) == (older, newest)
    assert refused.reason == (
        f"damaged: the content of the file is not what was recorded ({newest.location}, SHA-256 over its files)"
    )
    assert isinstance(refused, RefusedRestorePoint)


def test_a_file_of_any_name_can_be_named(host: Host) -> None:
    """File names may hold bytes that are no UTF-8, or terminal escapes. Neither gets into a record."""
    host.start_agent()
    host.start(J)
    hidden = host.run_folder(J) / "checkpoints" / ".part"
    hidden.mkdir()
    odd = hidden / os.fsdecode(b"\xff\x1b[2J")
    odd.write_text("one")
    hidden.rename(hidden.with_name("chk-3"))
    point = point_of(host, 3)
    assert host.runner.verify(point) is Verification.VALID
    spoil(hidden.with_name("chk-3") / odd.name)
    assert host.runner.verify(point) is Verification.INVALID
    assert "the content of ??[2J is not what was recorded" in host.runner.why_refused(point)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: spoil(path / "b"), "damaged: the content of b is not what was recorded"),
        (lambda path: os.truncate(path / "b", 1), "4 bytes, 6 were recorded; b has 1 bytes, 3 were recorded"),
        (lambda path: (path / "b").rename(path / "c"), "damaged: b is missing"),
        (lambda path: os.mkfifo(path / "pipe"), "damaged: "),
        (lambda path: path.rename(path.with_name("away")), "missing: there is nothing at "),
    ],
    ids=["content", "size", "name", "pipe", "gone"],
)
@pytest.mark.parametrize("in_the_record", [True, False])
def test_what_is_damaged_is_named(tmp_path: Path, damage: object, reason: str, in_the_record: bool) -> None:
    assert callable(damage)
    checkpoint = folder_of(tmp_path, a="one", b="two")
    content.save(checkpoint, manifest := content.read(checkpoint))
    point = RestorePoint(1, 1, str(checkpoint), 6, manifest.digest if in_the_record else "")
    assert restore.verify(point, tmp_path / "jobs") == RestoreCheck(Verification.VALID)
    damage(checkpoint)
    judged = restore.verify(point, tmp_path / "jobs")
    assert judged.verification is Verification.INVALID and reason in judged.reason


def test_without_its_manifest_a_recorded_digest_counts_all_the_same(tmp_path: Path) -> None:
    checkpoint = folder_of(tmp_path, a="one")
    point = RestorePoint(1, 1, str(checkpoint), 3, content.read(checkpoint).digest)
    assert restore.verify(point, tmp_path / "jobs") == RestoreCheck(Verification.VALID)
    spoil(checkpoint / "a")
    judged = restore.verify(point, tmp_path / "jobs")
    assert judged.verification is Verification.INVALID and "some file of it is not what was recorded" in judged.reason


def test_a_manifest_that_is_not_the_recorded_one_decides_nothing(tmp_path: Path) -> None:
    checkpoint = folder_of(tmp_path, a="one")
    digest = content.read(checkpoint).digest
    (checkpoint / "a").write_text("two")
    content.save(checkpoint, content.read(checkpoint))
    judged = restore.verify(RestorePoint(1, 1, str(checkpoint), 3, digest), tmp_path / "jobs")
    assert judged.verification is Verification.INVALID and "some file of it" in judged.reason


def test_a_digest_of_a_kind_that_is_not_known_makes_the_start_wait(tmp_path: Path) -> None:
    checkpoint = folder_of(tmp_path, a="one")
    judged = restore.verify(RestorePoint(1, 1, str(checkpoint), 3, "blake3:00"), tmp_path / "jobs")
    assert judged.verification is Verification.UNKNOWN and "of the kind 'blake3'" in judged.reason


def test_a_record_without_a_digest_and_without_a_manifest_is_judged_by_its_size(tmp_path: Path) -> None:
    checkpoint = folder_of(tmp_path, a="one")
    spoil(checkpoint / "a")
    point = RestorePoint(1, 1, str(checkpoint), 3)
    assert restore.verify(point, tmp_path / "jobs") == RestoreCheck(Verification.VALID)


def test_a_check_that_takes_long_is_unknown_until_it_is_done_and_is_made_once() -> None:
    goes_on, made = threading.Event(), []
    point = RestorePoint(1, 1, "/x")

    def judge(asked: RestorePoint) -> RestoreCheck:
        made.append(asked)
        goes_on.wait()
        return RestoreCheck(Verification.INVALID, "damaged: a")

    checks = Checks(judge, answer_s=0.0)
    assert checks.verify(point) is Verification.UNKNOWN and checks.why_refused(point) == "its content is being read"
    goes_on.set()
    until(lambda: checks.verify(point) is Verification.INVALID, "the check is done")
    assert (made, checks.why_refused(point)) == ([point], "damaged: a")
    until(lambda: checks.verify(point) is Verification.INVALID, "the next start repeats the check")
    assert made == [point, point]
