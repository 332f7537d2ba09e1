from __future__ import annotations

import os

import pytest

from tests.support.jobs_world import Shell


@pytest.fixture
def shell(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in [name for name in os.environ if name.startswith("LEDGER_")]:
        monkeypatch.delenv(name)
    return Shell(tmp_path)
