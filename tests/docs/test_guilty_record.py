"""Somebody makes a finished job reappear. With a bundle, `explain` and `history` name the records and their writer."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ledger.adapters import avro, cloudevents
from ledger.adapters.local.zipped import ZipObjects
from ledger.archive.format.decoding import decoded
from ledger.archive.format.segments import store_segment
from ledger.archive.store.archive import Archive
from ledger.cli import app
from ledger.core.model.registers import Admitted, Result, Spec, key_of, parse_key
from ledger.history.bundle_about import ABOUT, decode
from ledger.history.bundling import TOPIC_ID
from ledger.history.moment import parse, vector
from ledger.ports import MemoryRecord, Record

BUNDLE = Path(__file__).parents[2] / "docs" / "incidents" / "000.zip"
JOB = "old"


def tampered(file: Path) -> list[int]:
    """Adds three records to the bundle and returns their offsets: a tombstone for the result, then the spec and its
    admission again."""
    with closing(ZipObjects(BUNDLE)) as store, closing(ZipObjects(file, new=True)) as made:
        about = decode(store.read(ABOUT))
        cut = {place: last + 1 for place, last in (parse(about.cut, 0.0).last or {}).items()}
        before, after, guilty = Archive(store), Archive(made), list[int]()
        for topic, partition in before.partitions():
            records: list[Record] = list(before.records(topic, partition))
            own = [one for one in records if (found := parse_key(one.key())) and found[0] == JOB]
            if topic == about.events and own:
                spec = next(one for one in own if (found := parse_key(one.key())) and isinstance(found[1], Spec))
                admitted = next(one for one in own if (found := parse_key(one.key())) and isinstance(found[1], Admitted))
                wanted: list[tuple[str, bytes | None]] = [
                    (key_of(JOB, Result("CANCELED")), None),
                    ((spec.key() or b"").decode(), spec.value()), (key_of(JOB, Admitted()), admitted.value()),
                ]  # fmt: skip
                for key, value in wanted:
                    offset = cut["events", partition]
                    headers = cloudevents.headers(
                        "JobSubmitted", event_id=f"guilty-{offset}", source="nowhere", subject=JOB, key=key,
                        time_s=about.made_at_s, sequence=len(guilty) + 1, actor="mallory@elsewhere",
                    )  # fmt: skip
                    at_ms = int(about.made_at_s * 1000)
                    records.append(MemoryRecord(topic, partition, offset, key.encode(), value, headers, at_ms))
                    guilty.append(offset)
                    cut["events", partition] += 1
            segment = store_segment(made, 0, records, lambda record: decoded(record, avro, cloudevents))
            after.seal(after.head(topic, partition), TOPIC_ID, segment)
        plain = json.loads(store.read(ABOUT) or b"")
        made.create(ABOUT, json.dumps({**plain, "cut": vector(cut)}).encode())
    return guilty


@pytest.fixture
def ask(tmp_path: Path) -> Any:
    def run(file: Path, *arguments: str) -> Any:
        told = CliRunner().invoke(app, [*arguments, "--bundle", str(file), "-o", "json"], env={"LEDGER_DIR": str(tmp_path)})
        assert told.exit_code in (0, 4), told.output
        return json.loads(told.stdout) if told.stdout else None

    return run


def test_a_finished_job_that_reappears_is_explained_by_the_records_that_did_it(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "tampered.zip"
    guilty = tampered(file)
    assert ask(BUNDLE, "explain", JOB)["state"] == "CANCELED"
    told = ask(file, "explain", JOB)
    assert (told["state"], told["in_recovery_set"]) == ("CREATED", True), "the finished job would be started again"
    assert told["because"] and {one["actor"] for one in told["because"]} == {"mallory@elsewhere"}
    assert {one["offset"] for one in told["because"]} <= set(guilty), "explain names only the guilty records"
    assert told["published_state"] == "", "no leader has published an entry yet"
    last = [(one["offset"], one["actor"], one["tombstone"]) for one in ask(file, "history", JOB)][-3:]
    assert last == [(offset, "mallory@elsewhere", number == 0) for number, offset in enumerate(guilty)]
    changed = next(one for one in ask(file, "diff", "--from", f"events[0]@{guilty[0] - 1}") if one["job_id"] == JOB)
    assert {record["actor"] for record in changed["records"]} == {"mallory@elsewhere"}
