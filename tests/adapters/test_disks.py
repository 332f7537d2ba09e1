"""A power cut at any step leaves a file either in its old or in its new state. Acknowledged data survives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.adapters import ed25519
from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.runners.subprocess.events import EventMaker, JobEvents, Sequences
from ledger.adapters.runners.subprocess.folders import MARKER, MarkedAttempt
from ledger.adapters.runners.subprocess.jobs import AgentJob
from ledger.adapters.runners.subprocess.supervisor.files import create_once, write_durably
from ledger.archive.anchors import anchors
from ledger.archive.format.anchor import Anchor
from ledger.archive.format.chain import Head
from ledger.core.model.facts import AttemptRunning
from ledger.core.model.registers import Running
from ledger.ports import Event
from ledger.producer.outbox import REFUSED, SUFFIX
from ledger.producer.outbox import Outbox as RecordersOutbox
from ledger.util.files import make_folder, write_atomic
from tests.support.disk import TORN, Disk
from tests.support.host import SystemClock

EVENT = Event("ledger.events", 0, b"job/running/1", b"value", ())


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Disk]]:
    """Returns a function that starts the simulated disk: files that exist at the call count as synced."""
    made: list[Disk] = []

    def begin() -> Disk:
        made.append(Disk(tmp_path, monkeypatch))
        return made[-1]

    yield begin
    for one in made:
        one.close()


# -- the shim itself ---------------------------------------------------------------------------------------------------


def test_what_was_not_synced_may_be_anything(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, path = disk(), tmp_path / "file"
    path.write_bytes(b"new")
    assert found.after(path) == {None, TORN}
    _sync(tmp_path)
    assert found.after(path) == {TORN}
    _sync(path)
    assert found.after(path) == {b"new"}
    path.unlink()
    assert found.after(path) == {b"new", None}
    _sync(tmp_path)
    assert found.after(path) == {None}


def test_a_folder_is_lost_with_its_name(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, path = disk(), tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_bytes(b"new")
    _sync(path)
    _sync(path.parent)
    assert found.after(path) == {None, b"new"}
    _sync(tmp_path)
    assert found.after(path) == {b"new"}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [write_atomic, lambda path, data: write_durably(str(path), data)])
@pytest.mark.parametrize("old", [None, b"old"])
def test_a_file_is_replaced_whole(
    write: Callable[[Path, bytes], None], old: bytes | None, disk: Callable[[], Disk], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)
    found = disk()
    found.watch(path)
    write(path, b"new")
    assert found.seen == {old, b"new"}
    assert found.after(path) == {b"new"}


def test_a_file_that_is_created_once_is_whole_and_stays(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, path = disk(), tmp_path / "file"
    found.watch(path)
    assert create_once(str(path), b"first")
    assert found.after(path) == {b"first"}
    assert not create_once(str(path), b"second")
    assert found.seen == {None, b"first"}


def test_a_folder_is_made_with_all_that_lead_to_it(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, folder = disk(), tmp_path / "a" / "b" / "c"
    make_folder(folder)
    write_atomic(folder / "file", b"new")
    assert found.after(folder / "file") == {b"new"}


# -- blobs and objects -------------------------------------------------------------------------------------------------


def test_a_graph_that_was_put_is_there(disk: Callable[[], Disk], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"graph")
    found, blobs = disk(), FileBlobs(tmp_path / "blobs")
    ref = blobs.put("job-1", source)
    path = tmp_path / "blobs" / ref.uri
    assert found.after(path) == {b"graph"}
    path.write_bytes(b"damaged")
    _sync(path)
    found.watch(path)
    blobs.put("job-1", source)
    assert found.seen == {b"damaged", b"graph"} and found.after(path) == {b"graph"}


def test_a_graph_that_was_fetched_is_there(disk: Callable[[], Disk], tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"graph")
    blobs = FileBlobs(tmp_path / "blobs")
    ref, found = blobs.put("job-1", source), disk()
    found.watch(target)
    blobs.fetch(ref, target)
    assert found.seen == {None, b"graph"} and found.after(target) == {b"graph"}


def test_an_object_of_an_archive_that_was_created_is_there(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, objects = disk(), FolderObjects(tmp_path / "deep" / "archive")
    path = tmp_path / "deep" / "archive" / "records" / "one"
    found.watch(path)
    assert objects.create("records/one", b"1")
    assert found.seen == {None, b"1"} and found.after(path) == {b"1"}
    objects.delete("records/one")
    assert found.after(path) == {None}


# -- records written before an action ----------------------------------------------------------------------------------


def test_an_event_is_on_the_disk_before_it_is_sent(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, outbox = disk(), RecordersOutbox(tmp_path / "deep" / "outbox")
    outbox.put("one", EVENT)
    (kept,) = found.after(outbox.folder / f"one{SUFFIX}")
    assert kept is not None and kept != TORN


def test_an_event_that_was_refused_is_kept_before_it_is_removed(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, outbox = disk(), RecordersOutbox(tmp_path / "outbox")
    outbox.put("one", EVENT)
    outbox.set_aside("one", EVENT, "too large")
    (kept,) = found.after(outbox.folder / f"one{REFUSED}")
    assert kept is not None and kept != TORN


def maker(folder: Path) -> EventMaker:
    return EventMaker("agent-1", 4, SystemClock(), lambda: "id", Sequences(folder / "sequences.json"))


def test_an_event_of_an_agent_is_on_the_disk_before_it_is_sent(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, outbox = disk(), JobEvents("job-1", tmp_path / "jobs" / "job-1" / "events", maker(tmp_path))
    stored = outbox.add(Running(1), AttemptRunning("17"))
    (kept,) = found.after(stored.path)
    assert kept is not None and kept != TORN


def test_numbers_are_on_the_disk_before_the_files_that_hold_them_go(disk: Callable[[], Disk], tmp_path: Path) -> None:
    made = maker(tmp_path)
    outbox = JobEvents("job-1", tmp_path / "events", made)
    outbox.add(Running(1), AttemptRunning("17"))
    found = disk()
    made.sequences.save()
    assert found.after(tmp_path / "sequences.json").isdisjoint({None, TORN})


def test_a_fence_is_on_the_disk_before_it_is_answered(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, job = disk(), AgentJob("job-1", tmp_path / "jobs" / "job-1", maker(tmp_path))
    job.raise_fence(7)
    assert found.after(tmp_path / "jobs" / "job-1" / "fence") == {b'{"fence":7}'}


def test_a_marker_is_on_the_disk_before_anything_begins(disk: Callable[[], Disk], tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "job-1" / "attempts" / "1"
    make_folder(folder)
    found = disk()
    assert MarkedAttempt("job-1", 1, folder).mark()
    assert found.after(folder / MARKER).isdisjoint({None, TORN})


def test_an_anchor_is_in_its_file(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, path = disk(), tmp_path / "anchors"
    one = Anchor(Head("ledger.events", 0))
    for _ in range(2):
        anchors.append(path, [one])
        assert found.after(path) == {path.read_bytes()}


def test_a_key_is_on_the_disk(disk: Callable[[], Disk], tmp_path: Path) -> None:
    found, path = disk(), tmp_path / "key"
    ed25519.make(path)
    for name in (path, tmp_path / "key.pub"):
        assert found.after(name) == {name.read_bytes()}
