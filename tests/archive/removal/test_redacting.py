"""Redaction: a value is removed for a recorded reason. No reader takes the record for a tombstone, or for absent."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.check_proof import check
from ledger import load_config
from ledger.adapters import avro, cloudevents
from ledger.adapters.clock import SystemClock
from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.objects import MemoryObjects
from ledger.adapters.memory.restore_target import MemoryTarget
from ledger.app.ledger import Ledger
from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.proof.proving import prove
from ledger.archive.query.querying import opened
from ledger.archive.removal import pins
from ledger.archive.removal.expiring import expire
from ledger.archive.removal.redacting import RecordPosition, Redacting, parse_position
from ledger.archive.restore.layout import TopicPair
from ledger.archive.restore.restoring import Restoring
from ledger.archive.snapshots import snapshots
from ledger.archive.store.archive import Archive
from ledger.archive.store.verifying import verify
from ledger.cli import app
from ledger.core.explain import explain
from ledger.core.model.redaction import is_redacted
from ledger.core.model.table import RegisterTable
from ledger.errors import NotFound, Refused, UsageError
from ledger.history import bundling
from ledger.operations import archive_upkeep
from ledger.ports import MemoryRecord, Record
from ledger.reader.reading import all_registers, jobs_in, published, registers_of
from tests.support.archives.given import read_out
from tests.support.archives.lives import AT, BY, EVENTS, NOW_S, RECOVERY, TOPICS, Life, run
from tests.support.archives.lives import then as at_moment

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.slow]


def id_of(record: Record) -> str:
    return cloudevents.parse(list(record.headers() or [])).id


def redacting(archive: Archive, **given) -> Redacting:
    def thin(topic: str) -> snapshots.Thin:
        return snapshots.thin_events if topic == EVENTS else partial(snapshots.thin_recovery, decode=avro.decode)

    return Redacting(archive, EVENTS, thin, id_of, **given)


def redact(archive: Archive, *named: RecordPosition | str, force: bool = False, **given) -> list:
    return redacting(archive, **given).run(named, "a password in it", BY, AT, force=force)


def with_ids(life: Life) -> Life:
    def named(record: MemoryRecord) -> MemoryRecord:
        headers = cloudevents.headers("X", event_id=f"{record.topic()}-{record.offset()}", source="t", subject="s", key="k",
                                      time_s=1.0, sequence=1)  # fmt: skip
        return replace(record, _headers=(*record._headers, *headers))

    life.events, life.recovery = [[named(one) for one in records] for records in (life.events, life.recovery)]
    return life


@pytest.fixture
def life() -> Life:
    return with_ids(Life(3))


def superseded(life: Life) -> list[MemoryRecord]:
    """Records of jobs in ledger.events that have a value and are superseded by a later record."""
    kept = {one.offset() for one in snapshots.thin_events(life.events)}
    return [one for one in life.events
            if one.offset() not in kept and one.value() is not None and (one.key() or b"").startswith(b"job-")]  # fmt: skip


def place_of(record: Record) -> RecordPosition:
    return RecordPosition(record.topic(), record.partition(), record.offset())


def test_an_empty_id_names_nothing_though_records_bear_none() -> None:
    """An unset shell variable gives an empty id. It would redact every record without an event id."""
    archive = Life(3).archive()
    assert "" in {id_of(record) for record in archive.records(EVENTS, 0) if record.value() is not None}
    with pytest.raises(UsageError, match="event id is empty"):
        redact(archive, "", force=True)
    with pytest.raises(UsageError, match="event id is empty"):
        prove(archive, "", id_of)
    assert not archive.chain(EVENTS, 0).rewritten


def test_by_place_or_by_the_id_of_the_event_and_again_is_no_harm(life: Life) -> None:
    archive = life.archive()
    one, other = superseded(life)[:2]
    done = redact(archive, place_of(one), id_of(other))
    assert [(r.offset, r.before) for r in done] == [(one.offset(), False), (other.offset(), False)]
    again = redact(archive, place_of(one), id_of(other))
    assert [(r.offset, r.before, r.value_sha256) for r in again] == [(r.offset, True, r.value_sha256) for r in done]
    assert len(archive.chain(EVENTS, 0).rewritten) == len({r.records for r in archive.chain(EVENTS, 0).rewritten})
    found = {record.offset(): record for record in archive.records(EVENTS, 0)}
    for record in (one, other):
        kept = found[record.offset()]
        assert isinstance(kept, RedactedRecord) and is_redacted(kept.value())
        assert (kept.key(), kept.headers(), kept.timestamp()) == (record.key(), record.headers(), record.timestamp())
    assert verify(archive, [archive.head(EVENTS, 0)])[0].redacted == 2


def test_a_resend_bears_the_same_id_and_goes_too(life: Life) -> None:
    one, other = superseded(life)[:2]
    at = life.events.index(other)
    life.events[at] = replace(other, _headers=one._headers)
    assert {r.offset for r in redact(life.archive(), id_of(one))} == {one.offset(), other.offset()}


def test_others_that_hold_the_very_same_value_are_told(life: Life) -> None:
    archive = life.archive()
    one = superseded(life)[0]
    done = redact(archive, place_of(one))
    alike = redacting(archive).alike(done)
    assert alike == [place_of(r) for r in life.events if r.value() == one.value() and r.offset() != one.offset()]


def test_what_a_fold_still_reads_is_refused_unless_it_must_be(life: Life) -> None:
    archive = life.archive()
    events, recovery = snapshots.thin_events(life.events), snapshots.thin_recovery(life.recovery, avro.decode)
    needed = [next(one for one in found if (one.key() or b"").startswith(b"job-")) for found in (events, recovery)]
    before = dict(archive.store.stored)  # type: ignore[attr-defined]
    for record in needed:
        with pytest.raises(Refused, match="could not be restored"):
            redact(archive, place_of(superseded(life)[0]), place_of(record))
    assert archive.store.stored == before  # type: ignore[attr-defined]
    assert len(redact(archive, *map(place_of, needed), force=True)) == 2


def test_what_has_no_value_is_not_there_is_the_ledgers_own_or_is_held(life: Life) -> None:
    archive = life.archive()
    tombstone = next(one for one in life.events if one.value() is None and (one.key() or b"").startswith(b"job-"))
    for place, error, told in (
        (place_of(tombstone), UsageError, "it is a tombstone"),
        (RecordPosition(RECOVERY, 0, 0), UsageError, "a record of the ledger itself"),
        (RecordPosition(EVENTS, 0, 1), NotFound, "There is no record at"),
        (RecordPosition(EVENTS, 7, 0), NotFound, "There is no record at"),
        ("nobody", NotFound, "holds no record of the event 'nobody'"),
    ):
        with pytest.raises(error, match=told):
            redact(archive, place)
    with pytest.raises(Refused, match="which is pinned"):
        redact(archive, place_of(superseded(life)[0]), force=True, held=lambda job, at_ms: bool(job and at_ms))
    garbage = next(one for one in reversed(life.events) if one.key() == b"garbage")
    assert redact(archive, place_of(garbage))


def test_what_expired_is_told_as_that(life: Life) -> None:
    archive = life.archive()
    run(archive)
    there = {record.offset() for record in archive.records(EVENTS, 0)}
    gone = next(one for one in life.events if one.offset() not in there)
    with pytest.raises(NotFound, match=rf"{gone.offset()} was removed at {AT}: it had expired .* of the namespace"):
        prove(archive, place_of(gone), id_of)
    with pytest.raises(NotFound) as raised:
        prove(archive, id_of(gone), id_of)
    assert "among the" in raised.value.hint and "have expired" in raised.value.hint
    with pytest.raises(NotFound, match="it had expired"):
        redact(archive, place_of(gone))
    kept = next(one for one in life.events if one.offset() in there)
    assert check(json.loads(json.dumps(prove(archive, place_of(kept), id_of))), archive.head(EVENTS, 0).sha256)


def test_a_place_is_named_by_the_short_name_of_its_topic_or_by_the_long_one() -> None:
    topics = {"events": "x.ledger.events"}
    assert parse_position("events[3]@12", topics) == RecordPosition("x.ledger.events", 3, 12)
    assert parse_position("y.ledger.events[0]@1", topics) == RecordPosition("y.ledger.events", 0, 1)
    assert [parse_position(text, topics) for text in ("event-1", "events[x]@1", "events[1]@-1", "a[1]@")] == [None] * 4


# -- reading -----------------------------------------------------------------------------------------------------------


def forced(life: Life) -> tuple[Archive, MemoryRecord]:
    """An archive in which the effective `running` register of an attempt is redacted."""
    archive = life.archive()
    kept = snapshots.thin_events(life.events)
    record = next(one for one in kept if b"/running/" in (one.key() or b""))
    redact(archive, place_of(record), force=True)
    return archive, record


def test_the_fold_takes_it_for_what_can_not_be_read_and_says_redacted(life: Life) -> None:
    archive, record = forced(life)
    source = at_moment(archive, "0s")
    job_id = (record.key() or b"").partition(b"/")[0].decode()
    job = next(job for job, _ in jobs_in(source, all_registers(source)) if job.job_id == job_id)
    explained = explain(job)
    told = [remark.text for remark in explained.remarks if remark.register.startswith("running/")]
    assert any("its value is redacted" in text for text in told)
    assert job.unreadable
    history = registers_of(source, job_id).history()
    rows = [(one.offset, one.tombstone, one.readable) for one in history if one.redacted]
    assert rows == [(record.offset(), False, False)]


def test_an_entry_that_is_redacted_is_a_job_that_is_there_and_nobody_can_read(life: Life) -> None:
    archive = life.archive()
    before = published(at_moment(archive, "0s"))
    job = next(iter(before.entries))
    record = next(one for one in reversed(life.recovery)
                  if one.key() == job.encode() and one.value() is not None and one.offset() in
                  {kept.offset() for kept in snapshots.thin_recovery(life.recovery, avro.decode)})  # fmt: skip
    redact(archive, place_of(record), force=True)
    after = published(at_moment(archive, "0s"))
    assert job not in after.entries and job in after.unreadable
    with opened(archive, TOPICS, lambda _: 0.0) as queries:
        rows = list(queries.ask(f'SELECT tombstone, unreadable FROM recovery WHERE "offset" = {record.offset()}').rows)
        assert rows == [{"tombstone": False, "unreadable": True}]
        hashed = list(queries.ask("SELECT count(*) n FROM recovery_records WHERE value_sha256 IS NOT NULL").rows)
        assert hashed == [{"n": 1}]


def test_a_bundle_made_afterwards_holds_no_value_and_is_whole(life: Life) -> None:
    archive = life.archive()
    victims = superseded(life)[:5]
    redact(archive, *map(place_of, victims))
    source = at_moment(archive, "0s")
    store = MemoryObjects()
    why = bundling.Why("2023-11-20T00:00:00Z", BY, "test")
    cut = {("events", 0): life.events[-1].offset() + 1, ("recovery", 0): life.recovery[-1].offset() + 1}
    bundling.write(store, source, cut, [], why, read_out, {}, {EVENTS: 1e12, RECOVERY: 1e12}, float(NOW_S))
    bundled = Archive(store)
    assert list(bundled.records(EVENTS, 0)) == list(archive.records(EVENTS, 0))
    verdicts = verify(bundled)
    assert [(one.broken, one.redacted) for one in verdicts] == [((), 5), ((), 0)]
    only = [one.value() for one in victims if sum(r.value() == one.value() for r in life.events) == 1]
    assert not any(value in data for value in only for data in store.stored.values() if value)
    proof = prove(bundled, place_of(victims[0]), id_of)
    assert check(json.loads(json.dumps(proof)), bundled.head(EVENTS, 0).sha256)


def test_a_redacted_spec_can_expire_by_what_the_entries_say(life: Life) -> None:
    archive = life.archive()
    drawn = random.Random(1)
    victims = drawn.sample(superseded(life), 10)
    redact(archive, *map(place_of, victims))
    run(archive)
    assert [one.broken for one in verify(archive, [archive.head(*place) for place in archive.partitions()])] == [(), ()]
    assert expire(archive, [], BY, AT) == 0


# -- the verbs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kept = FolderObjects(tmp_path / "archive")
    for name, data in life.archive().store.stored.items():  # type: ignore[attr-defined]
        kept.create(name, data)
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    return tmp_path


def ask(folder: Path, *words: str, code: int = 0):
    told = CliRunner().invoke(app, [*words, "--dir", str(folder)])
    assert told.exit_code == code, told.output
    return told


def test_expire_tells_what_would_go_takes_it_and_verify_tells_who_did_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = CliRunner().invoke(app, ["archive", "expire", "--dir", str(folder)])
    assert told.exit_code == 2 and "No retention is set" in told.stderr
    monkeypatch.setenv("LEDGER_ARCHIVE__RETENTION", "prod=5d,*=forever")
    lying = sorted(FolderObjects(folder / "archive").names(""))
    due = json.loads(ask(folder, "archive", "expire", "--dry-run", "-o", "json").stdout)
    assert {one["namespace"] for one in due} == {"prod"} and {one["topic"] for one in due} == {EVENTS, RECOVERY}
    assert sorted(FolderObjects(folder / "archive").names("")) == lying
    done = json.loads(ask(folder, "archive", "expire", "-o", "json").stdout)
    assert [one["records"] for one in done] == [one["records"] for one in due]
    assert json.loads(ask(folder, "archive", "expire", "-o", "json").stdout) == []
    told = ask(folder, "audit", "verify", "-o", "json")
    rows = json.loads(told.stdout)
    assert [one["expired"] for one in rows] == [one["records"] for one in done]
    assert "expired of prod" in told.stderr


def test_redact_takes_it_out_and_says_what_it_does_not_reach(folder: Path, life: Life) -> None:
    victim = superseded(life)[0]
    named = f"events[0]@{victim.offset()}"
    told = ask(folder, "archive", "redact", named, "--reason", "a password in it", "-o", "json")
    assert [one["offset"] for one in json.loads(told.stdout)] == [victim.offset()]
    assert "are not reached" in told.stderr
    assert "redacted: a password in it" in ask(folder, "audit", "verify").stderr
    proof = json.loads(ask(folder, "audit", "prove", named).stdout)
    assert check(proof, json.loads(proof["manifests"][-1])["previous"])
    assert "--reason says why" in ask(folder, "archive", "redact", named, "--reason", " ", code=2).stderr


@pytest.mark.parametrize("name", ["rewrite.stored", "rewrite.noted", "rewrite.deleted"])
def test_killed_at_each_failpoint_it_goes_on_when_it_is_run_again(folder: Path, life: Life, name: str) -> None:
    named = [f"events[0]@{one.offset()}" for one in superseded(life)[:9:4]]
    command = [sys.executable, "-m", "ledger", "archive", "redact", *named, "--reason", "x", "--dir", str(folder)]
    killed = {**os.environ, "LEDGER_FAILPOINT": f"{name}:kill"}
    assert subprocess.run(command, check=False, capture_output=True, env=killed, timeout=120).returncode == -signal.SIGKILL
    store = FolderObjects(folder / "archive")
    heads = [Archive(store).head(*place) for place in Archive(store).partitions()]
    assert [one.broken for one in verify(Archive(store), heads)] == [(), ()]
    ask(folder, "archive", "redact", *named, "--reason", "x")
    verdict = verify(Archive(store), [Archive(store).head(EVENTS, 0)])[0]
    assert (verdict.broken, verdict.orphans, verdict.redacted) == ((), (), len(named))


def test_restored_it_is_still_what_nobody_can_read_and_what_expired_is_filled(life: Life) -> None:
    """No older record of the key takes effect in its place."""
    archive, record = forced(life)
    expired = run(archive)
    clock, names = ManualClock(), TopicPair(EVENTS, RECOVERY)
    clock.jump(NOW_S - clock.time())
    log = MemoryLog({TOPICS.rejects: 1}, clock)
    told = Restoring(archive, MemoryTarget(log, names, 1, set()), log, avro, clock).run(names, names, 1)
    assert (told.redacted, told.differences, told.exact) == (1, (), True)
    assert sum(one.records for one in told.partitions) == len(life.events) + len(life.recovery) - expired
    there = {one.offset(): one for one in log.records(EVENTS, 0)}
    assert is_redacted(there[record.offset()].value()) and there[record.offset()].key() == record.key()
    kept = {one.offset() for one in archive.records(EVENTS, 0)}
    assert {one.key() for offset, one in there.items() if offset not in kept} == {b"~noop"}
    table, wanted = RegisterTable(1), RegisterTable(1)
    table.apply(list(there.values()))
    wanted.apply([MemoryRecord(*place_of(one), one.key(), one.value()) for one in archive.records(EVENTS, 0)])
    assert table.jobs == wanted.jobs


def test_an_archiver_that_is_told_to_takes_out_what_has_expired(folder: Path) -> None:
    settings = {"retention": {"prod": "5d", "*": "forever"}, "adapter": "file"}
    config = load_config(folder, archive={**settings, "expire_interval_s": 60.0})
    assert config.archive.retention == {"prod": 432_000.0, "*": None}
    assert config.environment()["LEDGER_ARCHIVE__RETENTION"] == "prod=432000.0,*=forever"
    archive = Ledger.open(config).archive
    (chore,) = [chore for chore in archive_upkeep.chores(config, archive, SystemClock()) if chore.name == "expire"]
    assert chore.every_s == 60.0
    chore.do()
    assert sum(one.expired for one in verify(archive)) > 0
    assert verify(archive)[0].gone[0].by.startswith("archiver-")
    without = load_config(folder, archive=settings)
    assert "expire" not in {chore.name for chore in archive_upkeep.chores(without, archive, SystemClock())}


def test_what_is_pinned_neither_expires_nor_is_redacted(folder: Path, life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_ARCHIVE__RETENTION", "prod=5d")
    archive = Archive(FolderObjects(folder / "archive"), "test", lambda: AT)
    own = [one for one in superseded(life) if (one.key() or b"").startswith(b"job-0/")]
    pinned = pins.Pin("pin-1", ("job-0",), None, None, "an incident", BY, AT)
    pins.pin(archive, pinned, EVENTS, lambda _: 0)
    ask(folder, "archive", "expire")
    left = [one.offset() for one in archive.records(EVENTS, 0) if (one.key() or b"").startswith(b"job-0/")]
    assert left == [one.offset() for one in life.events if (one.key() or b"").startswith(b"job-0/")]
    named = f"events[0]@{own[0].offset()}"
    assert "which is pinned" in ask(folder, "archive", "redact", named, "--reason", "x", "--force", code=5).stderr
    assert len(list(archive.records(EVENTS, 0))) < len(life.events)
