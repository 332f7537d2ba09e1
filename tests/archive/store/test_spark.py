"""The archive as a DataFrame, on a real Spark session."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.memory.objects import MemoryObjects
from ledger.adapters.spark.session import start_session
from ledger.config.config import load_config
from tests.support.archives.queried import an_archive, asked, event_records, recovery_records
from tests.support.pages import ROOT, blocks

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(240),
    # py4j leaves its sockets to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    archive = an_archive(event_records(random.Random(1)), recovery_records(1, random.Random(1)))
    store, there = archive.store, FolderObjects(tmp_path / "archive")
    assert isinstance(store, MemoryObjects)
    for name, data in store.stored.items():
        there.create(name, data)
        if name.endswith(".parquet"):
            there.create(f"{name.removesuffix('.parquet')}-stray.parquet", data)
    yield tmp_path
    gc.collect()


def test_spark_and_duckdb_see_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """The example in the runbook runs too."""
    from ledger.spark import events, recovery

    config = load_config(folder, archive={"adapter": "file"})
    names = "partition, offset, job_id, register, fact, epoch, body"
    moment = "date_format(timestamp, 'yyyy-MM-dd HH:mm:ss.SSS') AS t"
    session = start_session(folder / "spark", slots=2, name="test")
    try:
        session.conf.set("spark.sql.session.timeZone", "UTC")
        columns = [*names.split(", "), moment, "hex(key) AS k", "size(headers) AS h"]
        frames = {"events": events(session, config), "recovery_records": recovery(session, config)}
        found = {
            view: [row.asDict() for row in frame.orderBy("offset").selectExpr(*columns).collect()]
            for view, frame in frames.items()
        }
        monkeypatch.setenv("LEDGER_DIR", str(folder))
        monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
        (shown,) = (b for b in blocks((ROOT / "docs" / "RUNBOOK.md").read_text()) if b.info == "python archive-in-spark")
        exec("\n".join(shown.lines), {"spark": session})
        assert "job-0" in capsys.readouterr().out
    finally:
        session.stop()
    with asked(an_archive(event_records(random.Random(1)), recovery_records(1, random.Random(1)))) as ask:
        for view, rows in found.items():
            quoted = names.replace("offset", '"offset"')
            wanted = ask(f"SELECT {quoted}, strftime(timestamp, '%Y-%m-%d %H:%M:%S.%g') AS t, hex(key) AS k, "
                         f"len(headers) AS h FROM {view} "
                         'ORDER BY "offset"')  # fmt: skip
            told = [row | {"body": row["body"] and json.loads(row["body"])} for row in rows]
            assert told == wanted, view


def test_the_columns_are_those_of_the_files() -> None:
    from ledger.archive.format.parquet import SCHEMA
    from ledger.spark import SHAPE

    names = [part.split()[0] for part in SHAPE.replace("<name: STRING, value: BINARY>", "").split(", ")]
    assert names == ["partition", *SCHEMA.names]
