"""Ledgers in folders. Tests that cause no lasting damage share one; other tests get their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.folder import Folder


@pytest.fixture(scope="package")
def shared_ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """A running ledger with two projectors and an archive. It holds jobs of other tests, some of them running: use
    unique ids, and stop the jobs that you start."""
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
    """A folder for this test only. Nothing runs in it yet, and the fixture ends whatever the test leaves running."""
    folder = Folder(tmp_path_factory.mktemp("own") / "ledger")
    try:
        yield folder
    finally:
        folder.clear()
