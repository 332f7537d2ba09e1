"""`audit bundle`, and the reading verbs on a bundle."""

from __future__ import annotations

import json
import re
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docs.check_proof import check
from ledger.adapters.local.zipped import ZipObjects
from ledger.app import archives
from ledger.archive.anchors import anchors
from ledger.archive.format.segments import store_segment
from ledger.archive.store.archive import Archive
from ledger.cli import bundling
from tests.cli.altered import about, altered, both, unsealed
from tests.support.archives.given import read_out
from tests.support.jobs_world import Shell, seal


@pytest.fixture
def bundled(shell: Shell, tmp_path: Path) -> Path:
    """A bundle of two jobs, one of them suspended later, in an otherwise empty folder."""
    paused = shell.submit("paused")
    shell.clock.advance(5.0)
    shell.submit("still")
    shell.clock.advance(5.0)
    shell.good("suspend", paused, "--reason", "a pause")
    file = tmp_path / "incident.zip"
    shell.good("audit", "bundle", "--to", str(file), "--reason", "an incident")
    return file


def away(shell: Shell) -> None:
    def gone(*_: Any) -> Any:
        raise AssertionError("no server must be asked")

    shell.replaced["event_log"] = gone


def test_every_reading_verb_says_the_same_of_it_as_of_the_ledger(
    shell: Shell, bundled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = shell.good("list", "-o", "name").split()
    paused = next(row["job_id"] for row in shell.json("list") if row["state"] == "SUSPENDED")
    asked = [("list",), *((verb, job) for verb in ("show", "history", "explain") for job in jobs), ("replay",)]
    before = {words: shell.json(*words) for words in asked}
    past = {words: shell.json(*words, "--as-of", "7s") for words in (("list",), ("explain", paused))}
    changed = shell.json("diff", "--from", "7s")
    away(shell)
    for words, answer in before.items():
        assert shell.json(*words, "--bundle", str(bundled)) == answer, words
    for words, answer in past.items():
        assert shell.json(*words, "--as-of", "7s", "--bundle", str(bundled)) == answer != before[words]
    assert shell.json("diff", "--from", "7s", "--bundle", str(bundled)) == changed != []


def test_it_says_what_it_is(shell: Shell, bundled: Path) -> None:
    told = shell.run("list", "--bundle", str(bundled))
    assert "a bundle of all jobs" in told.stderr and "an incident" in told.stderr
    with zipfile.ZipFile(bundled) as file:
        about = json.loads(file.read("bundle.json"))
    assert about["reason"] == "an incident" and about["versions"]["jobledger"]
    assert about["config"]["kafka"]["bootstrap.servers"] == "memory:1"


def test_it_holds_the_jobs_that_are_named_and_no_others(shell: Shell, tmp_path: Path) -> None:
    wanted, other = shell.submit("wanted"), shell.submit("other")
    file = str(tmp_path / "one.zip")
    made = shell.json("audit", "bundle", "--to", file, "--reason", "r", "--job", "wanted")
    assert made["records"] > 0 and made["file"] == file
    assert shell.good("list", "-o", "name", "--bundle", file).split() == [wanted]
    assert shell.json("show", wanted, "--bundle", file) == shell.json("show", wanted)
    assert shell.run("replay", "--bundle", file).exit_code == 0
    for words in (("history", other), ("show", other), ("explain", "other")):
        told = shell.run(*words, "--bundle", file)
        assert told.exit_code == 1 and f"This bundle holds only {wanted}; the ledger" in told.stderr
    with zipfile.ZipFile(file) as zipped:
        assert zipped.read(f"timelines/job-{wanted}.html").startswith(b"<!DOCTYPE html>")
        assert other.encode() not in b"".join(map(zipped.read, zipped.namelist()))


def test_of_a_few_jobs_it_holds_pictures_of_many_only_of_those_that_are_named(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [shell.submit("one", "--id", ".one"), shell.submit("two")]

    def pictures(*words: str) -> list[str]:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.zip"
        shell.good("audit", "bundle", "--to", str(file), "--reason", "r", *words)
        with zipfile.ZipFile(file) as zipped:
            return sorted(name for name in zipped.namelist() if name.startswith("timelines/"))

    assert pictures() == sorted(f"timelines/job-{job}.html" for job in jobs)
    monkeypatch.setattr(bundling, "PICTURES", 1)
    assert pictures() == [] and pictures("--job", "two") == [f"timelines/job-{jobs[1]}.html"]


def test_of_a_moment_it_holds_nothing_that_came_later(shell: Shell, tmp_path: Path) -> None:
    job = shell.submit("first")
    shell.clock.advance(5.0)
    vector = shell.run("list", "--as-of", "0s").stderr.partition("as of ")[2].split()[0]
    shell.clock.advance(5.0)
    shell.good("suspend", job, "--reason", "later")
    file = str(tmp_path / "then.zip")
    made = shell.json("audit", "bundle", "--to", file, "--reason", "r", "--as-of", "5s")
    assert made["as_of"] == vector
    assert shell.json("show", job, "--bundle", file)["state"] == "CREATED"


def test_what_may_have_been_compacted_is_refused_of_a_bundle_too(shell: Shell, bundled: Path) -> None:
    refused = shell.run("list", "--as-of", "2d", "--bundle", str(bundled))
    assert refused.exit_code == 1
    assert "This bundle is surely complete for ledger.events[0] only from 2025-" in refused.stderr
    assert "hint: Use a later moment." in refused.stderr


def test_it_is_an_archive_of_its_own_and_what_was_altered_in_it_is_named(
    shell: Shell, bundled: Path, tmp_path: Path
) -> None:
    verified = shell.json("audit", "verify", "--bundle", str(bundled))
    assert sum(one["records"] for one in verified) > 0 and all(one["first_bad"] is None for one in verified)
    event = shell.json("history", "still")[0]["event_id"]
    assert json.loads(shell.good("audit", "prove", event, "--bundle", str(bundled)))["topic"]
    spoiled = tmp_path / "spoiled.zip"
    with zipfile.ZipFile(bundled) as good, zipfile.ZipFile(spoiled, "w") as bad:
        for name in good.namelist():
            data = bytearray(good.read(name))
            if name.startswith("records/ledger.events/"):
                data[len(data) // 2] ^= 1
            bad.writestr(name, bytes(data))
    assert shell.run("audit", "verify", "--bundle", str(spoiled)).exit_code == 1
    assert "audit verify" in shell.run("history", "still", "--bundle", str(spoiled)).stderr


def without(file: Path, to: Path, *beginnings: str) -> Path:
    """A copy of the bundle without the objects whose names begin so."""
    with zipfile.ZipFile(file) as whole, zipfile.ZipFile(to, "w") as rest:
        for name in whole.namelist():
            if not name.startswith(beginnings):
                rest.writestr(name, whole.read(name))
    return to


def test_a_partition_that_was_taken_out_is_missed(shell: Shell, bundled: Path, tmp_path: Path) -> None:
    partition = shell.json("history", "still")[0]["partition"]
    kinds = ("records", "leaves", "manifests")
    less = without(bundled, tmp_path / "less.zip", *(f"{kind}/ledger.events/{partition}/" for kind in kinds))
    told = shell.run("audit", "verify", "--bundle", str(less))
    assert told.exit_code == 1
    assert f"ledger.events[{partition}], offset 0, manifest 0: nothing of it is in the bundle" in told.stderr


# -- with an archive: proofs -------------------------------------------------------------------------------------------


@pytest.fixture
def proved(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle of one job whose last change is not archived. Anchors were kept before that change."""
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    shell.submit("wanted")
    shell.submit("other")
    seal(shell)
    shell.good("audit", "anchor", "--to", str(tmp_path / "anchors"))
    shell.good("suspend", "wanted", "--reason", "a pause")
    file = tmp_path / "proved.zip"
    shell.good("audit", "bundle", "--to", str(file), "--reason", "an incident", "--job", "wanted")
    return file


def test_its_records_are_proved_by_the_anchors_of_the_ledger(
    shell: Shell, proved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = shell.json("history", "wanted")
    away(shell)
    monkeypatch.delenv("LEDGER_ARCHIVE__ADAPTER")
    told = shell.run("audit", "verify", "--bundle", str(proved), "--anchors", str(tmp_path / "anchors"), "-o", "json")
    assert told.exit_code == 0
    kept = [one.anchor.head for one in anchors.read(tmp_path / "anchors")]
    heads = {(head.topic, head.partition): head for head in kept}
    rows = {(row["topic"], row["partition"]): row for row in json.loads(told.stdout)}
    archived, last = history[0], history[-1]
    place = "ledger.events", archived["partition"]
    assert rows[place]["proved"] == rows[place]["anchored"] == heads[place].next > archived["offset"]
    assert last["offset"] >= heads[place].next and "were not archived at that time" in told.stderr
    printed = shell.run("audit", "prove", archived["event_id"], "--bundle", str(proved))
    proof = json.loads(printed.stdout)
    assert check(proof, heads[place].sha256)
    told = re.search(r"check_proof.py PROOF.json SHA256 .* of (\S+) with a sequence from (\d+) to (\d+)", printed.stderr)
    assert told is not None and told[1] == f"ledger.events[{place[1]}]"
    assert int(told[2]) <= heads[place].sequence <= int(told[3])
    at = f"events[{archived['partition']}]@{archived['offset']}"
    assert json.loads(shell.good("audit", "prove", at, "--bundle", str(proved))) == proof
    nowhere = shell.run("audit", "prove", "events[0]@999", "--bundle", str(proved))
    assert nowhere.exit_code == 1 and "No record ledger.events[0]@999 is in the bundle" in nowhere.stderr
    refused = shell.run("audit", "prove", last["event_id"], "--bundle", str(proved))
    assert refused.exit_code == 1 and "was not archived yet" in refused.stderr
    without = shell.run("audit", "verify", "--bundle", str(proved))
    assert without.exit_code == 0 and "no anchor was given, so nothing is proved" in without.stderr


def test_a_bundle_of_an_earlier_moment_is_proved_up_to_that_moment(shell: Shell, proved: Path, tmp_path: Path) -> None:
    """The anchor covers later offsets too, and proves nothing about those."""
    first = shell.json("history", "wanted")[0]
    early = tmp_path / "early.zip"
    shell.good("audit", "bundle", "--to", str(early), "--reason", "how it began", "--as-of", first["event_id"])
    told = shell.run("audit", "verify", "--bundle", str(early), "--anchors", str(tmp_path / "anchors"), "-o", "json")
    assert told.exit_code == 0
    (row,) = (
        row for row in json.loads(told.stdout) if (row["topic"], row["partition"]) == ("ledger.events", first["partition"])
    )
    assert row["proved"] == row["anchored"] == row["sealed"] == first["offset"] + 1


def test_what_was_taken_out_is_named_by_the_proofs_that_were_left(shell: Shell, proved: Path, tmp_path: Path) -> None:
    partition = shell.json("history", "wanted")[0]["partition"]
    kinds = ("records", "leaves", "manifests")
    less = without(proved, tmp_path / "less.zip", *(f"{kind}/ledger.events/{partition}/" for kind in kinds))
    told = shell.run("audit", "verify", "--bundle", str(less), "--anchors", str(tmp_path / "anchors"))
    assert told.exit_code == 1 and "a record was removed from the bundle" in told.stderr


def test_one_who_made_all_of_the_bundle_anew_around_another_record_is_found(
    shell: Shell, proved: Path, tmp_path: Path
) -> None:
    """Chain and leaves of the file match the forgery, but not the records that the ledger sealed."""
    given = archives.bundle(proved)
    forged = tmp_path / "forged.zip"
    wanted = shell.json("history", "wanted")[0]
    place = "ledger.events", wanted["partition"]
    with closing(ZipObjects(forged, new=True)) as store:
        archive = Archive(store)
        for topic, partition in given.archive.partitions():
            of = list(given.archive.records(topic, partition))
            if (topic, partition) == place:
                of = [replace(r, _timestamp_ms=r.timestamp()[1] - 1) if r.offset() == wanted["offset"] else r for r in of]
            head = archive.head(topic, partition)
            archive.seal(head, "bundle", store_segment(store, head.next, of, read_out))
        with zipfile.ZipFile(proved) as good:
            for name in good.namelist():
                if name.startswith("proofs/") or name == "bundle.json":
                    store.create(name, good.read(name))
    assert shell.run("list", "--bundle", str(forged)).exit_code == 0
    told = shell.run("audit", "verify", "--bundle", str(forged), "--anchors", str(tmp_path / "anchors"))
    assert told.exit_code == 1 and f"offset {wanted['offset']}," in told.stderr
    assert "is not the one that the ledger's archive holds" in told.stderr
    assert shell.run("audit", "verify", "--bundle", str(forged)).exit_code == 1, "the same without an anchor"


def test_what_is_not_whole_by_its_own_chain_is_not_called_proved(shell: Shell, proved: Path, tmp_path: Path) -> None:
    place = "ledger.events", shell.json("history", "wanted")[0]["partition"]
    spoiled = tmp_path / "spoiled.zip"
    with zipfile.ZipFile(proved) as good, zipfile.ZipFile(spoiled, "w") as bad:
        for name in good.namelist():
            spoil = name.startswith(f"leaves/{place[0]}/{place[1]}/")
            bad.writestr(name, good.read(name)[:-1] if spoil else good.read(name))
    told = shell.run(
        "audit", "verify", "--bundle", str(spoiled), "--anchors", str(tmp_path / "anchors"), "-o", "json"
    )  # fmt: skip
    assert told.exit_code == 1
    (row,) = [row for row in json.loads(told.stdout) if (row["topic"], row["partition"]) == place]
    assert row["first_bad"] == row["proved"] == 0 < row["anchored"]


def test_a_bundle_without_proofs_says_so_and_is_verified_as_ever(shell: Shell, bundled: Path) -> None:
    told = shell.run("audit", "verify", "--bundle", str(bundled))
    assert told.exit_code == 0 and "the bundle carries no proofs" in told.stderr
    event = shell.json("history", "still")[0]["event_id"]
    assert "which no anchor knows" in shell.run("audit", "prove", event, "--bundle", str(bundled)).stderr


def test_it_holds_what_jobs_were_given_and_the_digests_of_their_graphs(shell: Shell, proved: Path) -> None:
    graph = shell.json("show", "wanted")["graph"]
    assert len(graph["sha256"]) == 64 and shell.json("show", "wanted", "--bundle", str(proved))["graph"] == graph
    rows = shell.json("history", "wanted", "--bundle", str(proved))
    (spec,) = [row for row in rows if row["register"].startswith("spec/")]
    assert graph["sha256"] in json.dumps(spec)


def test_it_takes_along_what_jobs_printed(shell: Shell, tmp_path: Path) -> None:
    job, silent = shell.submit("loud"), shell.submit("silent")
    for where, text in (("agent/jobs/{}/attempts/2/logs", "live"), ("agent/past-logs/{}/1", "past")):
        logs = shell.folder / where.format(job)
        logs.mkdir(parents=True)
        (logs / "stdout.log.1").write_text("older ")
        (logs / "stdout.log").write_text(text)
    (shell.folder / f"agent/jobs/{silent}/attempts/1/logs").mkdir(parents=True)  # the agent is about to delete them
    file = tmp_path / "logs.zip"
    asked = ["audit", "bundle", "--to", str(file), "--reason", "r", "--logs"]
    assert shell.run(*asked).exit_code == 2
    told = shell.run(*asked, "--job", "loud", "--job", "silent")
    assert told.exit_code == 0 and f"no logs of {silent}" in told.stderr and job not in told.stderr
    with zipfile.ZipFile(file) as zipped:
        found = {name: zipped.read(name) for name in zipped.namelist() if name.startswith("logs/")}
    assert found == {f"logs/job-{job}/1/stdout.log": b"older past", f"logs/job-{job}/2/stdout.log": b"older live"}
    assert shell.run("audit", "verify", "--bundle", str(file)).exit_code == 0


def test_a_plan_of_a_bundle_goes_by_the_pools_that_it_was_made_with(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.submit("one")
    shell.submit("two")
    file = str(tmp_path / "pools.zip")
    monkeypatch.setenv("LEDGER_POOLS__SMALL__SLOTS", "1")
    shell.good("audit", "bundle", "--to", file, "--reason", "r")
    monkeypatch.setenv("LEDGER_POOLS__SMALL__SLOTS", "7")
    monkeypatch.setenv("LEDGER_POOLS__NOW__SLOTS", "7")
    monkeypatch.setenv("LEDGER_POOLS__NOW__NAMESPACES", "x")
    found = shell.json("plan", "--bundle", file)
    (pool,) = found["pools"]
    assert [pool[name] for name in ("name", "slots", "starting", "waiting")] == ["small", 1, 1, 1]
    then = shell.json("plan", "--bundle", file, "--as-of", "1s")
    assert [pool["name"] for pool in then["pools"]] == ["small"]
    monkeypatch.setenv("LEDGER_POOLS__SMALL__SLOTS", "0")  # invalid settings: they are not used
    assert shell.json("plan", "--bundle", file) == found


@pytest.mark.parametrize(("config", "words", "code"), [
    ({}, "does not tell of its pools", 0),
    ({"pools": {"p": 7}, "reconciler": {"starts_max": 1}}, "pools in this bundle", 2),
])  # fmt: skip
def test_a_bundle_that_tells_of_no_pools(
    shell: Shell, bundled: Path, tmp_path: Path, config: dict[str, Any], words: str, code: int
) -> None:
    other = altered(bundled, tmp_path / "other.zip", both(unsealed, about(lambda said: {**said, "config": config})))
    told = shell.run("plan", "--bundle", str(other))
    assert told.exit_code == code and words in told.stderr


def test_a_file_that_is_there_is_left_as_it_is(shell: Shell, bundled: Path) -> None:
    before = bundled.read_bytes()
    assert shell.run("audit", "bundle", "--to", str(bundled), "--reason", "r").exit_code == 2
    assert bundled.read_bytes() == before
    assert [path.name for path in bundled.parent.glob("*.part")] == []


@pytest.mark.parametrize("arguments", [
    ("list", "--watch"), ("history", "still", "--follow"), ("list", "--bundle", "/nowhere.zip"),
])  # fmt: skip
def test_what_does_not_go_with_a_bundle(shell: Shell, bundled: Path, arguments: tuple[str, ...]) -> None:
    given = arguments if "--bundle" in arguments else (*arguments, "--bundle", str(bundled))
    assert shell.run(*given).exit_code == 2


@pytest.mark.parametrize(("about", "words"), [
    (None, "no bundle.json"), (b"{", "can't be read"), (b"[]", "can't be read"), (b'{"format": 2}', "format 2"),
    (b'{"format": 1, "jobs": []}', "can't be read"),
])  # fmt: skip
def test_what_is_no_bundle_of_ours(shell: Shell, tmp_path: Path, about: bytes | None, words: str) -> None:
    file = tmp_path / "some.zip"
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("x", b"x")
        if about is not None:
            zipped.writestr("bundle.json", about)
    told = shell.run("list", "--bundle", str(file))
    assert told.exit_code == 2 and words in told.stderr


def test_what_is_no_zip_at_all(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "some.zip").write_bytes(b"PK\x03\x04 nothing of the kind")
    assert shell.run("list", "--bundle", str(tmp_path / "some.zip")).exit_code == 2
