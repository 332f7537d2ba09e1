"""Ledgers in folders. One is shared by the tests that do it no lasting harm; others get their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.folder import Folder


@pytest.fixture(scope="package")
def shared_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """A running ledger with two projectors and an archive. Jobs of other tests are there, some of them run: use ids that
    no other test has, and stop what you have started."""
    folder = Folder(tmp_path_factory.mktemp("shared") / "ledger")
    folder.path.mkdir()
    (folder.path / "ledger.toml").write_text('[archive]\nadapter = "file"\ninterval_s = 0.5\nanchor_interval_s = 0.5\n')
    try:
        folder.up("--projectors", "2")
        yield folder
    finally:
        folder.clear()


@pytest.fixture
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """A folder of the test's own; nothing runs in it yet, and nothing will afterwards."""
    folder = Folder(tmp_path_factory.mktemp("own") / "ledger")
    try:
        yield folder
    finally:
        folder.clear()
