from __future__ import annotations

import pytest

from tests.support.operated import Operated


@pytest.fixture
def world(tmp_path) -> Operated:
    return Operated(tmp_path)
