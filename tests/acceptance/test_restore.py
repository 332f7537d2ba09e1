"""Lost topics of an embedded ledger: a broker alone, both topics restored from the archive, and the ledger runs again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledger.adapters.kafka.topics import check_topics
from ledger.adapters.local.objects import FolderObjects
from ledger.archive.store.archive import Archive
from tests.support.folder import Folder
from tests.support.remembered import Remembered

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]
SETTINGS = """
[archive]
adapter = "file"
[topics]
partitions = 2
"""


def test_a_broker_alone_is_given_back_what_the_archive_has(own_folder: Folder, tmp_path: Path) -> None:
    world = Remembered(tmp_path)
    jobs = [world.started(f"job-{n}") for n in range(3)]
    world.seal()
    own_folder.path.mkdir(parents=True, exist_ok=True)
    (own_folder.path / "ledger.toml").write_text(SETTINGS)
    kept = FolderObjects(own_folder.path / "archive")
    for name, data in world.archive.store.stored.items():  # type: ignore[attr-defined]
        kept.create(name, data)

    own_folder.up("--broker-only")
    told = own_folder.run("archive restore --adopt", "-o", "json")
    assert sum(row["records"] for row in json.loads(told.stdout)) == sum(
        len(list(world.archive.records(*place))) for place in world.archive.partitions()
    )
    own_folder.run("topics check")
    assert check_topics(own_folder.config.client(), own_folder.config.topic_settings()) == []
    assert sorted(own_folder.published().entries) == sorted(jobs)
    assert all(Archive(kept).head(*place).topic_id != "id" for place in world.archive.partitions())
    own_folder.run("down")
