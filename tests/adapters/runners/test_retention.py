"""Deletion and retention of checkpoint files, old attempts and forgotten jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.adapters.runners.subprocess.cleanup import PastAttempts
from ledger.adapters.runners.subprocess.folders import ANSWERED, ANSWERED_MAX, MarkedAttempt
from ledger.adapters.runners.subprocess.retention import AttemptCheckpoints, CheckpointKey, subsumed
from ledger.core.fold.fold import HISTORY
from ledger.core.model.facts import CheckpointKind, RestorePoint
from ledger.core.model.registers import NUMBER_MAX, Checkpoint
from ledger.ports import Verification
from tests.support.host import Host
from tests.support.waiting import until

pytestmark = pytest.mark.slow

J = "job-1"
CHK, SAV = CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT


def chain(*ids: int, base: CheckpointKey | None = None, over: bool = True, sav: tuple[int, ...] = ()) -> AttemptCheckpoints:
    return AttemptCheckpoints(base, {i: SAV if i in sav else CHK for i in ids}, over)


@pytest.mark.parametrize(
    ("attempts", "gone"),
    [
        pytest.param({}, [], id="no attempts"),
        pytest.param({1: chain()}, [], id="no checkpoints"),
        pytest.param({1: chain(1, 2, 3)}, [], id="no more than are kept"),
        pytest.param({1: chain(1, 2, 3, 4, 5)}, [(1, 1), (1, 2)], id="the newest three stay"),
        pytest.param({1: chain(1, 2, 3, 4, 5, sav=(1,))}, [(1, 2)], id="savepoints stay"),
        pytest.param(
            {1: chain(1, 2, 3), 2: chain(4, base=(1, 3))}, [(1, 1)], id="earlier attempts go along the chain"
        ),
        pytest.param(
            {1: chain(1, 2, 3), 2: chain(4, 5, 6, 7, base=(1, 3), over=False)},
            [(1, 1), (1, 2), (2, 4)], id="the base of a living attempt stays",
        ),
        pytest.param(
            {1: chain(1, 2, 3), 2: chain(4, 5, 6, 7, base=(1, 3))},
            [(1, 1), (1, 2), (2, 4)], id="the base of the top attempt stays",
        ),
        pytest.param(
            {1: chain(1, 2, 3), 2: chain(4, 5, 6, 7, base=(1, 3)), 3: chain(8, base=(2, 7))},
            [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)], id="the base of an attempt that is over goes",
        ),
        pytest.param(
            {1: chain(1, 2, 3), 2: chain(4, 5, 6, 7, base=(1, 3), over=False), 3: chain(8, 9, 10, base=(2, 7))},
            [(1, 1), (1, 2), (2, 4), (2, 5), (2, 6)], id="the base of a living attempt below the top stays",
        ),
        pytest.param(
            {1: chain(1, 2, 3, 4, 5), 2: chain(6, 7, 8), 3: chain(base=(1, 5))},
            [(1, 1), (1, 2)], id="what a top without checkpoints leads to stays beside the newest",
        ),
        pytest.param(
            {1: chain(3, 4, 5), 2: chain(base=(1, 3))}, [], id="an older base keeps the newer ones until it is replaced"
        ),
        pytest.param(
            {1: chain(3, 4, 5), 2: chain(4, 5, 6, base=(1, 3))},
            [(1, 4), (1, 5)], id="what is off the chain goes once there is enough on it",
        ),
        pytest.param(
            {1: chain(2, 3, 4, 5), 2: chain(6, 7, base=(1, 3))},
            [(1, 2), (1, 4), (1, 5)], id="the chain goes on from the base, not from what is newer than it",
        ),
        pytest.param({1: chain(1, 2, 3, 4), 2: chain()}, [(1, 1)], id="from scratch with nothing yet: the newest stay"),
        pytest.param(
            {1: chain(1, 2, 3), 2: chain(1, 2)}, [], id="from scratch with fewer than are kept: the old stay"
        ),
        pytest.param(
            {1: chain(1, 2), 2: chain(1, 2, 3)}, [(1, 1), (1, 2)], id="from scratch with enough: the old goes"
        ),
    ],
)  # fmt: skip
def test_which_checkpoints_are_subsumed(attempts: dict[int, AttemptCheckpoints], gone: list[CheckpointKey]) -> None:
    assert subsumed(attempts, keep=3) == gone


@st.composite
def histories(draw: st.DrawFn) -> dict[int, AttemptCheckpoints]:
    attempts: dict[int, AttemptCheckpoints] = {}
    for n in range(1, draw(st.integers(1, 5)) + 1):
        places = [(m, i) for m, a in attempts.items() for i in a.checkpoints]
        ids = draw(st.sets(st.integers(0, 9), max_size=6))
        savepoints = draw(st.sets(st.sampled_from(sorted(ids)))) if ids else set()
        base = draw(st.none() | st.sampled_from(places)) if places else None
        attempts[n] = AttemptCheckpoints(base, {i: SAV if i in savepoints else CHK for i in ids}, draw(st.booleans()))
    return attempts


@given(histories())
def test_deleting_twice_deletes_no_more_and_the_newest_of_the_top_always_stays(
    attempts: dict[int, AttemptCheckpoints],
) -> None:
    gone = set(subsumed(attempts))
    left = {
        n: a._replace(checkpoints={i: k for i, k in a.checkpoints.items() if (n, i) not in gone})
        for n, a in attempts.items()
    }
    assert subsumed(left) == []
    top = max(attempts)
    assert {(top, i) for i in sorted(attempts[top].checkpoints)[-3:]} & gone == set()
    assert all(attempts[n].checkpoints[i] is CHK for n, i in gone)
    assert {a.base for n, a in attempts.items() if n == top or not a.over} & gone == set()


def test_asks_that_were_answered_long_ago_are_forgotten(tmp_path: Path) -> None:
    """A job may receive savepoint requests for years. Only answered requests that might still be repeated are
    remembered."""
    attempt = MarkedAttempt(J, 1, tmp_path)
    asks = tmp_path / "asks"
    asks.mkdir()
    for i in range(3 * ANSWERED_MAX):
        attempt.ask(f"ask-{i}")
        attempt.ask(f"ask-{i}")
        (only,) = asks.glob("*.ask")
        only.rename(f"{only}{ANSWERED}")
        attempt.ask(f"ask-{i}")
        assert not list(asks.glob("*.ask")), "the request was answered"
    assert len(list(asks.iterdir())) <= ANSWERED_MAX + 1
    for ask in ("new-1", "new-2"):
        attempt.ask(ask)
    assert [path.name.partition("-")[2] for path in sorted(asks.glob("*.ask"))] == ["new-1.ask", "new-2.ask"], (
        "the requests keep their order"
    )


def test_files_are_deleted_only_after_newer_ones_are_acknowledged(host: Host) -> None:
    host.log.up = False
    host.start_agent()
    host.start(J)
    folder = host.run_folder(J) / "checkpoints"
    for number in range(1, 7):
        host.tell(J, f"{'savepoint' if number == 2 else 'checkpoint'} {number}{'@noon' if number in (3, 5) else ''}")
    until(lambda: len(host.runner.fence(J, 0)) == 7, "all checkpoints are reported")
    host.runner.acknowledge(J, [f"{J}/checkpoint/1/{i}".encode() for i in (1, 2, 3)])
    until(lambda: len(list((host.folder / "jobs" / J / "events").iterdir())) == 4, "three events are settled")
    first = ["chk-1", "chk-3@noon", "chk-4", "chk-5@noon", "chk-6", "sav-2"]
    assert sorted(path.name for path in folder.iterdir()) == first
    host.log.up = True
    until(
        lambda: sorted(path.name for path in folder.iterdir()) == ["chk-4", "chk-5@noon", "chk-6", "sav-2"],
        "the other subsumed files are deleted",
    )


def test_the_base_of_a_running_attempt_stays_and_later_goes(host: Host) -> None:
    host.start_agent()
    host.start(J)
    for number in (1, 2):
        host.tell(J, f"checkpoint {number}")
    fact = until(lambda: dict(host.logged(J)).get(Checkpoint(1, 2)), "a checkpoint")
    host.tell(J, "exit 1")
    host.end(J)
    host.start(J, 2, RestorePoint(1, 2, fact.location, fact.size))
    for number in range(3, 8):
        host.tell(J, f"checkpoint {number}")
    until(lambda: Checkpoint(2, 7) in dict(host.logged(J)), "the last checkpoint is in the log")
    until(lambda: not (host.run_folder(J, 2) / "checkpoints" / "chk-4").exists(), "subsumed checkpoints are deleted")
    assert [path.name for path in (host.run_folder(J, 1) / "checkpoints").iterdir()] == ["chk-2"]
    base = dict(host.logged(J))[Checkpoint(2, 7)]
    host.restart_agent()
    host.tell(J, "exit 1")
    host.end(J, 2)
    host.start(J, 3, RestorePoint(2, 7, base.location, base.size))
    host.tell(J, "checkpoint 8")
    until(lambda: not list((host.run_folder(J, 1) / "checkpoints").iterdir()), "the old base is deleted")


@pytest.mark.timeout(400)
def test_of_many_attempts_only_the_last_keep_their_logs_and_none_is_started_again(host: Host) -> None:
    host.start_agent()
    graph = host.graph(J, command=["false"])
    last = HISTORY + 5
    for n in range(1, last + 1):
        assert host.runner.start(J, n, graph, None, {}).value == "started"
        until(lambda n=n: host.alive(J) == [], f"attempt {n} is over")
    attempts = host.folder / "jobs" / J / "attempts"
    kept = [str(n) for n in range(last - HISTORY + 1, last + 1)]
    until(lambda: sorted(path.name for path in attempts.iterdir()) == sorted(kept), "old attempts are deleted")
    until(lambda: [p.parent.name for p in attempts.glob("*/graph")] == [str(last)], "their graphs are deleted too")
    assert [a.n for a in host.runner.observe()] == [int(n) for n in kept]
    host.restart_agent()
    for n in (1, 5, last):
        assert host.runner.start(J, n, graph, None, {}).value == "already"
    host.runner.stop(J, 1, "stopped")
    assert not (attempts / "1").exists()


@settings(max_examples=30)
@given(st.lists(st.integers(1, 30)))
def test_the_past_is_a_set_in_few_ranges(tmp_path_factory: pytest.TempPathFactory, numbers: list[int]) -> None:
    path = tmp_path_factory.mktemp("past") / "past.json"
    past = PastAttempts(path)
    for n in numbers:
        past.add(n)
    again = PastAttempts(path)
    again.load()
    for either in (past, again):
        assert [n for n in range(32) if n in either] == sorted(set(numbers))
    assert all(b[0] > a[1] + 1 for a, b in zip(past.ranges, past.ranges[1:], strict=False))


# -- forget ----------------------------------------------------------------------------------------------------------


def ended_job(host: Host) -> RestorePoint:
    host.start_agent()
    host.start(J)
    for number in range(1, 4):
        host.tell(J, f"{'savepoint' if number == 2 else 'checkpoint'} {number}")
    fact = until(lambda: dict(host.logged(J)).get(Checkpoint(1, 3)), "a checkpoint")
    host.tell(J, "exit 0")
    host.end(J)
    until(lambda: not host.runner.fence(J, NUMBER_MAX), "all events are acknowledged")
    return RestorePoint(1, 3, fact.location, fact.size)


def test_kept_checkpoints_outlive_their_job(host: Host) -> None:
    point = ended_job(host)
    host.runner.forget(J)
    assert host.runner.observe() == []
    assert host.runner.verify(point) is Verification.VALID
    assert [path.name for path in (host.folder / "jobs" / J).iterdir()] == ["attempts"]
    host.restart_agent()
    assert host.runner.observe() == []
    assert host.runner.verify(point) is Verification.VALID


def test_disposed_checkpoints_go_with_their_job_and_savepoints_stay(host: Host) -> None:
    point = ended_job(host)
    host.runner.dispose(J, [point])
    host.restart_agent()
    host.runner.forget(J)
    folder = host.folder / "jobs" / J
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert [path.name for path in left] == ["sav-2"]


def test_nothing_is_left_of_a_job_without_savepoints(host: Host) -> None:
    host.start_agent()
    host.runner.start(J, 1, host.graph(J, command=["true"]), None, {})
    host.end(J)
    host.runner.fence(J, NUMBER_MAX)
    host.runner.forget(J)
    assert not (host.folder / "jobs" / J).exists()


@pytest.mark.parametrize("location", ["/", "/etc", "relative", "", "../x", "s3://bucket/x", "/tmp\0x"])
def test_nothing_outside_of_a_jobs_own_checkpoints_is_disposed_of(host: Host, location: str) -> None:
    host.start_agent()
    host.runner.dispose(J, [RestorePoint(1, 1, location), RestorePoint(0, 0, str(host.root / "blobs"))])
    assert (host.root / "blobs").is_dir()


def test_a_way_out_of_the_checkpoint_folder_is_no_way_to_dispose(host: Host) -> None:
    ended_job(host)
    folder = host.run_folder(J) / "checkpoints"
    for way in (f"{folder}/../started", f"{folder}/..", f"{folder}/.", f"{folder}/../../1/attempt.json"):
        host.runner.dispose(J, [RestorePoint(1, 3, way)])
    assert (host.run_folder(J) / "started").exists()
    assert (host.run_folder(J) / "attempt.json").exists()
    assert (folder / "chk-3").exists()


# -- verify ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (RestorePoint(1, 1, "{}/file", 5), Verification.VALID),
        (RestorePoint(1, 1, "file://{}/file", 5), Verification.VALID),
        (RestorePoint(1, 1, "{}/file"), Verification.VALID),
        (RestorePoint(1, 1, "{}/file", 6), Verification.INVALID),
        (RestorePoint(1, 1, "{}/file", 5, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"),
         Verification.VALID),
        (RestorePoint(1, 1, "{}/file", 5, "3cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"),
         Verification.INVALID),
        (RestorePoint(1, 1, "{}/folder", 5), Verification.VALID),
        (RestorePoint(1, 1, "{}/folder", 5, "00"), Verification.INVALID),
        (RestorePoint(1, 1, "{}/missing", 5), Verification.INVALID),
        (RestorePoint(1, 1, "{}/missing"), Verification.INVALID),
        (RestorePoint(1, 1, "{}/file/below", 5), Verification.INVALID),
        (RestorePoint(1, 1, "{}/loop"), Verification.INVALID),
        (RestorePoint(1, 1, "{}/pipe"), Verification.INVALID),  # opening a pipe would block for ever
        (RestorePoint(1, 1, "{}/with-pipe"), Verification.INVALID),
        (RestorePoint(1, 1, "/dev/zero"), Verification.INVALID),
        (RestorePoint(1, 1, "relative/file"), Verification.INVALID),
        (RestorePoint(1, 1, "s3://bucket/file"), Verification.INVALID),
        (RestorePoint(1, 1, ""), Verification.INVALID),
    ],
)  # fmt: skip
def test_a_restore_point_is_what_was_recorded_or_it_is_not_valid(
    host: Host, point: RestorePoint, expected: Verification
) -> None:
    host.start_agent()
    (host.root / "folder").mkdir()
    for path in (host.root / "file", host.root / "folder" / "file"):
        path.write_text("hello")
    (host.root / "loop").symlink_to(host.root / "loop")
    (host.root / "with-pipe").mkdir()
    for path in (host.root / "pipe", host.root / "with-pipe" / "pipe"):
        os.mkfifo(path)
    placed = RestorePoint(point.attempt, point.id, point.location.replace("{}", str(host.root)), point.size, point.digest)
    assert host.runner.verify(placed) is expected


def test_a_folder_that_cant_be_listed_is_unknown(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.adapters.runners.subprocess import restore

    host.start_agent()
    path = host.root / "file"
    path.touch()

    def broken(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(restore, "_read_a_byte", broken)
    assert host.runner.verify(RestorePoint(1, 1, str(path))) is Verification.UNKNOWN
