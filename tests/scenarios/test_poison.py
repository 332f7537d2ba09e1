"""Incident 003: one job graph that could not be recovered killed leader after leader, and every cold start.

Here there are six kinds of poison, at least five of each, among 50 good jobs. No good job is disturbed, no process of the
ledger ends, and no leader changes. Each poison is quarantined or rejected with its reason, or waits with its reason for a
runner plug-in that does not answer. Then everything is killed and starts again with the poison in the log.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.app.ledger import Ledger
from ledger.app.waiting_reasons import read as read_waits
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Attempt, parse_key
from ledger.reader.claims import read_claims
from tests.foreign import install
from tests.scenarios.keeping import keep
from tests.scenarios.poison import FOREIGN, PLUGINS, POISONS, Hand
from tests.support.folder import Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

PATIENCE_S = 240.0
GOOD = tuple(f"good-{number:02}" for number in range(50))
BEFORE, AMONG = GOOD[:40], GOOD[40:]
PROCESSES = ("broker", "agent", "projector-1", "projector-2", "reconciler-1", "up")
QUARANTINED = [poison for poison in POISONS if not poison.rejected and not poison.waits]
WAITING = [poison for poison in POISONS if poison.waits]
REJECTED = [poison for poison in POISONS if poison.rejected]
#: A job that counts, with few checkpoints: fifty of them must not overload the machine.
COUNTER = """
import os, sys, time
count = int(open(os.environ["LEDGER_RESTORE_FROM"]).read()) if "LEDGER_RESTORE_FROM" in os.environ else 0
print("begins at", count, flush=True)
folder = os.environ["LEDGER_CHECKPOINT_DIR"]
while not os.path.exists(sys.argv[1]):
    if count % 20 == 0 or count == 1:
        open(folder + "/.part", "w").write(str(count))
        os.rename(folder + "/.part", folder + "/chk-%d" % count)
    time.sleep(1)
    count += 1
"""


#: A hook for notifications. It writes a line for each.
NOTES = """
import json, sys
with open(sys.argv[1], "a") as told:
    told.write(json.load(sys.stdin)["id"] + "\\n")
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    made = Folder(tmp_path_factory.mktemp("poison") / "ledger")
    made.path.mkdir()
    install(made.path.parent / "site", monkeypatch, **FOREIGN)
    command = [sys.executable, "-I", "-S", "-c", NOTES, str(made.path.parent / "told")]
    (made.path / "ledger.toml").write_text(f"[notify]\ncommand = {json.dumps(command)}\n[plugins]\nmemory_mb = 512\n")
    try:
        made.up("--projectors", "2")
        yield made
    finally:
        made.clear()


def entries(folder: Folder) -> dict[str, RecoveryEntry]:
    return dict(folder.published().entries)


def pids(folder: Folder) -> dict[str, int]:
    return {process: folder.pid(process) for process in PROCESSES}


def epochs(folder: Folder) -> set[tuple[str, int]]:
    return {(claim.role, claim.epoch) for claim in read_claims(Ledger.open(folder.config).source())}


def quarantined(folder: Folder) -> dict[str, RecoveryEntry]:
    found = entries(folder)
    return {one.name: found[one.name] for one in QUARANTINED
            if one.name in found and found[one.name].state is JobState.QUARANTINED}  # fmt: skip


def all_quarantined(folder: Folder) -> dict[str, RecoveryEntry] | None:
    found = quarantined(folder)
    return found if len(found) == len(QUARANTINED) else None


def waits_rightly(folder: Folder) -> bool:
    """Whether the jobs with silent plug-ins are neither lost nor started, and show the reason."""
    found, said = entries(folder), read_waits(folder.config.waits_file)
    return all(
        one.name in found and (found[one.name].state, found[one.name].attempt) == (JobState.CREATED, 0)
        and one.words in said.get(one.name, "") for one in WAITING
    )  # fmt: skip


def not_yet(folder: Folder) -> str:
    found = entries(folder)
    told = {one.name: found.get(one.name) for one in QUARANTINED}
    return "; ".join(f"{name}: {e and (str(e.state), e.attempt, e.reason[:200])}" for name, e in told.items()
                     if e is None or e.state is not JobState.QUARANTINED)  # fmt: skip


def rejects(folder: Folder) -> list[dict[str, str]]:
    return [json.loads(line) for line in folder.run("rejects", "-o", "jsonl").stdout.splitlines()]


def started(folder: Folder) -> set[tuple[str, int]]:
    """Every recorded attempt of a good job."""
    parsed = [parse_key(record.key()) for record in folder.records("ledger.events") if record.value() is not None]
    return {(found[0], found[1].n) for found in parsed if found and found[0] in GOOD and isinstance(found[1], Attempt)}


def reported(folder: Folder) -> set[str]:
    """The ids of all notifications that the hook received."""
    path = folder.path.parent / "told"
    return set(path.read_text().splitlines()) if path.exists() else set()


def count_in_file(folder: Folder, entry: RecoveryEntry) -> int:
    assert entry.base is not None
    return int(Path(entry.base.location).read_text())


def test_incident_003_poison_harms_nobody_else(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    assert [len([p for p in POISONS if p.name.startswith(kind)]) for kind in
            ("event-", "spec-", "graph-", "checkpoint-", "runner-")] == [5] * 5 and len(PLUGINS) >= 5  # fmt: skip
    began = time.monotonic()
    hand = Hand(folder)
    counter = (sys.executable, "-I", "-S", "-c", COUNTER, str(folder.enough))
    for name in BEFORE:
        hand.job(name, *counter)
    hand.flush()
    before = folder.until(lambda: (a := folder.running()).keys() >= set(BEFORE) and a, "the good jobs run", PATIENCE_S)
    roles, claimed = pids(folder), epochs(folder)

    # -- the poison is sent, with more good jobs in between
    for number, poison in enumerate(POISONS):
        poison.put(hand, poison.name)
        if number < len(AMONG):
            hand.job(AMONG[number], *counter)
    hand.close()
    spoiled = {poison.name for poison in POISONS if poison.checkpoint}

    def have_checkpoints() -> bool:
        found = entries(folder)
        return all(name in found and found[name].restore_points for name in spoiled)

    folder.until(have_checkpoints, "the checkpoints to corrupt are in the log", PATIENCE_S)
    hand.go.touch()
    try:
        told = folder.until(lambda: all_quarantined(folder), "each poison is quarantined", PATIENCE_S)
    except AssertionError:
        print(not_yet(folder))
        raise
    reasons = {poison.name: told[poison.name].reason[:300] for poison in QUARANTINED}
    assert {one.name: reasons[one.name] for one in QUARANTINED if one.words not in told[one.name].reason} == {}
    folder.until(lambda: waits_rightly(folder), "the jobs with silent plug-ins wait", PATIENCE_S)
    after = folder.until(
        lambda: (a := folder.running()).keys() >= set(GOOD) and a, "the later good jobs run too", PATIENCE_S
    )
    assert {name: after[name] for name in BEFORE} == {name: before[name] for name in BEFORE}, "0 good jobs disturbed"
    assert started(folder) == {(name, 1) for name in GOOD}
    assert pids(folder) == roles, "no process of the ledger ended"
    assert epochs(folder) == claimed, "no leader changed"
    for poison in REJECTED:
        found = [one for one in rejects(folder) if poison.name in str(one["key"])]
        assert found and all(poison.words in one["reason"] for one in found), poison.name
    listed = json.loads(folder.run("list", "--state", "quarantined", "-o", "json").stdout)
    assert {row["job_id"] for row in listed} == {poison.name for poison in QUARANTINED}
    ids = {f"{name}/{entry.attempt}/QUARANTINED" for name, entry in told.items()}
    folder.until(lambda: reported(folder) >= ids, "there is a notification for each poison", PATIENCE_S)
    assert reported(folder) == ids
    shown = folder.run("show", "graph-memory").stdout
    assert "MemoryError" in shown and "jobledger retry graph-memory" in shown
    assert "\x1b" not in folder.run("explain", "runner-control").stdout
    harmed_s = time.monotonic() - began

    # -- a cold start with all the poison in the log
    alive = set(folder.alive())
    assert alive == set(GOOD), "no poisoned job runs"
    refused = {(one["place"], one["reason"]) for one in rejects(folder)}
    folder.kill_everything()
    folder.up("--projectors", "2")

    def back() -> dict[str, RecoveryEntry] | None:
        found = entries(folder)
        good = {name: found[name] for name in GOOD}
        return good if all(e.state is JobState.RUNNING and e.attempt == 2 and e.known for e in good.values()) else None

    good = folder.until(back, "all good jobs are back", PATIENCE_S)
    assert folder.running().keys() == set(GOOD)
    assert all(entry.base is not None and entry.base.attempt == 1 for entry in good.values()), (
        "all good jobs resume from their checkpoints"
    )
    assert all(count_in_file(folder, entry) == entry.base.id for entry in good.values() if entry.base)
    again = quarantined(folder)
    assert {name: (e.attempt, e.reason) for name, e in again.items()} == {
        name: (e.attempt, e.reason) for name, e in told.items()
    }, "the poison is unchanged, and was not started again"
    assert {(one["place"], one["reason"]) for one in rejects(folder)} == refused
    folder.until(lambda: waits_rightly(folder), "the jobs with silent plug-ins wait again", PATIENCE_S)
    folder.run("replay")

    # -- after a repair, one poisoned job runs
    folder.run("retry", "checkpoint-gone", "--from", "scratch", "--reason", "mended")
    folder.until(lambda: (e := folder.entry("checkpoint-gone")) and e.attempt > told["checkpoint-gone"].attempt,
                 "the graph was kept", PATIENCE_S)  # fmt: skip
    keep("003", "one bad job graph ended every leader", folder.config)
    with capsys.disabled():
        print(f"\nincident 003: {len(POISONS)} poisons among {len(GOOD)} jobs: {len(QUARANTINED)} quarantined, "
              f"{len(WAITING)} waiting, {len(REJECTED)} rejected, 0 good jobs disturbed, pids and epochs of the "
              f"roles unchanged ({harmed_s:.0f} s); after a cold start all {len(GOOD)} good jobs back from their "
              f"checkpoints ({time.monotonic() - began:.0f} s in all)")  # fmt: skip
