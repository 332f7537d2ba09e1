"""No verb answers for an unknown moment: one in the future, or one after the end of a bundle."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.core.model.facts import AttemptEnded, JobResult
from ledger.core.model.registers import Ended, Result
from tests.cli.altered import about, altered, both, unsealed
from tests.support.jobs_world import Shell


@pytest.fixture
def early(shell: Shell, tmp_path: Path) -> Path:
    """A bundle as of a moment before the job was suspended, made afterwards."""
    job = shell.submit("etl")
    shell.clock.advance(20.0)
    shell.good("suspend", job, "--reason", "a pause")
    shell.clock.advance(20.0)
    file = tmp_path / "early.zip"
    shell.good("audit", "bundle", "--to", str(file), "--reason", "how it began", "--as-of", "30s")
    return file


VERBS = [
    ("list", "--as-of"), ("show", "etl", "--as-of"), ("explain", "etl", "--as-of"), ("plan", "--as-of"),
    ("history", "etl", "--as-of"), ("diff", "--from"), ("replay", "--from"),
]  # fmt: skip


@pytest.mark.parametrize("verb", [*VERBS, ("audit", "bundle", "--to", "x.zip", "--reason", "r", "--as-of")], ids=" ".join)
def test_a_moment_that_is_still_to_come_is_refused(shell: Shell, verb: tuple[str, ...]) -> None:
    """A mistyped year must not be answered with the present state."""
    shell.submit("etl")
    told = shell.run(*verb, "2030-01-01")
    assert told.exit_code == 2 and "2030-01-01: that moment is still to come" in told.stderr


def test_a_clock_that_is_a_little_behind_the_brokers_is_no_hindrance(shell: Shell) -> None:
    shell.submit("etl")
    ahead = shell.clock.time() + 30.0
    assert len(shell.json("list", "--as-of", time_of(ahead))) == 1


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_bundle_of_a_moment_knows_nothing_of_what_came_later(shell: Shell, early: Path, verb: tuple[str, ...]) -> None:
    later = time_of(shell.clock.time() - 10.0)
    told = shell.run(*verb, later, "--bundle", str(early))
    assert told.exit_code == 2 and told.stdout == ""
    assert "this bundle holds the ledger up to 2025-" in told.stderr and "Ask for an earlier moment" in told.stderr
    assert shell.run(*verb, "0s", "--bundle", str(early)).exit_code == 0


def test_a_bundle_of_a_moment_tells_the_time_that_it_was_then(shell: Shell, early: Path) -> None:
    told = shell.run("list", "--bundle", str(early))
    with zipfile.ZipFile(early) as file:
        about = json.loads(file.read("bundle.json"))
    made = shell.clock.time()
    assert about["as_of_s"] == pytest.approx(made - 30.0)
    assert f"a bundle of all jobs as of {time_of(made - 30.0)}, made {about['made_at']} by " in told.stderr
    assert told.stdout == shell.good("list", "--as-of", "30s")  # including the AGE
    (then,) = shell.json("list", "--as-of", "1s", "--bundle", str(early))
    assert then["state"] == "CREATED"


@pytest.mark.parametrize(("by", "code"), [(-1, 1), (1, 0)], ids=["holds more", "an offset without a record"])
def test_a_bundle_that_goes_further_than_it_says_is_named(shell: Shell, tmp_path: Path, by: int, code: int) -> None:
    """It is no error if the offset in the bundle's cut has no record, such as the end of a transaction."""
    shell.submit("etl")
    file, other = tmp_path / "all.zip", tmp_path / "other.zip"
    shell.good("audit", "bundle", "--to", str(file), "--reason", "r")
    assert shell.run("audit", "verify", "--bundle", str(file)).exit_code == 0

    def moved(about: dict[str, Any]) -> dict[str, Any]:
        head, _, last = about["cut"].rpartition("@")
        return {**about, "cut": f"{head}@{int(last) + by}"}

    altered(file, other, both(unsealed, about(moved)))
    told = shell.run("audit", "verify", "--bundle", str(other))
    assert told.exit_code == code and ("and the bundle says up to offset" in told.stderr) == bool(code)


@pytest.mark.parametrize("verb", [
    ("list",), ("explain", "etl"), ("plan",), ("history", "etl"), ("archive", "query", "SELECT 1"),
], ids=" ".join)  # fmt: skip
def test_of_a_bundle_that_lacks_what_it_says_it_holds_nothing_is_answered(
    shell: Shell, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    shell.submit("etl")
    partition = shell.json("history", "etl")[0]["partition"]
    file, other = tmp_path / "all.zip", tmp_path / "other.zip"
    shell.good("audit", "bundle", "--to", str(file), "--reason", "r")
    copied(file, other, lambda name, data: None if name.startswith(f"manifests/ledger.events/{partition}/") else data)
    told = shell.run(*verb, "--bundle", str(other))
    assert told.exit_code == 1 and told.stdout == ""
    assert f"names ledger.events[{partition}]" in told.stderr
    assert shell.run("audit", "verify", "--bundle", str(other)).exit_code == 1


def test_by_a_record_that_a_bundle_does_not_hold_nobody_can_tell_when_that_was(shell: Shell, tmp_path: Path) -> None:
    """The other partitions are cut at the append time of the named record."""
    wanted = shell.submit("wanted")
    shell.clock.advance(5.0)
    shell.submit("other")
    file = tmp_path / "some.zip"
    shell.good("audit", "bundle", "--to", str(file), "--reason", "r", "--job", "wanted")
    own, other = shell.json("history", wanted)[-1], shell.json("history", "other")[0]

    def asked(moment: str) -> Any:
        return shell.run("show", wanted, "--as-of", moment, "--bundle", str(file))

    refused = asked(f"events[{other['partition']}]@{other['offset']}")
    assert refused.exit_code == 1 and "its time is unknown" in refused.stderr
    whole = asked("0s").stderr.partition("\nas of ")[2].split()[0]
    assert asked(whole).exit_code == asked(f"events[{own['partition']}]@{own['offset']}").exit_code == 0


def copied(file: Path, to: Path, change: Callable[[str, bytes], bytes | str | None]) -> None:
    """A copy of the zip with changed members; None removes a member."""
    with zipfile.ZipFile(file) as good, zipfile.ZipFile(to, "w") as made:
        for name in good.namelist():
            if (data := change(name, good.read(name))) is not None:
                made.writestr(name, data)


def test_what_is_wrong_with_a_bundle_to_be_made_is_told_before_anything_is_read(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise AssertionError("no server must be asked")

    shell.replaced["event_log"] = gone
    (tmp_path / "there").mkdir()
    for to, reason, words in (("there", "r", "is there already"), ("new.zip", " ", "reason")):
        told = shell.run("audit", "bundle", "--to", str(tmp_path / to), "--reason", reason)
        assert told.exit_code == 2 and words in told.stderr


@pytest.fixture
def retired(shell: Shell) -> str:
    """The id of a job that was retired within the last four seconds."""
    job = shell.submit("etl")
    shell.clock.advance(5.0)
    shell.record(job, Ended(1, "finished", "agent-a"), AttemptEnded())
    shell.record(job, Result("FINISHED"), JobResult("etl", "default", "subprocess", "0" * 64, "", 1.0, 1, {}, None))
    for _ in range(6):
        shell.step()
    return job


def test_what_was_deleted_between_two_moments_is_told_as_deleted(shell: Shell, retired: str) -> None:
    lines = shell.good("diff", "--from", "4s", "--all-records").splitlines()
    written = [line for line in lines if f"{retired}  " in line and " spec/" in line]
    assert [line.split()[-1] for line in written] == ["tombstone"], lines


def test_a_job_that_was_retired_between_two_moments_has_not_vanished(shell: Shell, retired: str) -> None:
    (one,) = shell.json("diff", "--from", "4s")
    assert (one["before"]["state"], one["after"]["state"]) == ("CREATED", "FINISHED")
    assert one["after"]["result"]["name"] == "etl"
    assert "FINISHED (retired)" in shell.good("diff", "--from", "4s")
    assert [step["after"]["state"] for step in shell.json("replay", "--from", "4s", "--job", retired)][-1] == "FINISHED"


def test_a_result_that_had_never_been_written_would_make_a_difference(shell: Shell, retired: str) -> None:
    """The result is the only record that is left of the job."""
    (record,) = (one for one in shell.json("history", retired) if one["register"] == "result/FINISHED")
    drop = f"drop {retired}/result/FINISHED@{record['offset']}"
    (one,) = shell.json("replay", "--what-if", drop)
    assert (one["job_id"], one["before"]["state"], one["after"]) == (retired, "FINISHED", None)
    assert "FINISHED (retired)" in shell.good("replay", "--what-if", drop)


def time_of(time_s: float) -> str:
    from ledger.util.times import rfc3339

    return rfc3339(time_s).replace(".000000Z", "Z").replace("000Z", "Z")
