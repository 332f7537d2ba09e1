from __future__ import annotations

import pytest

from tests.client.world import Operated


@pytest.fixture
def world(tmp_path) -> Operated:
    return Operated(tmp_path)
