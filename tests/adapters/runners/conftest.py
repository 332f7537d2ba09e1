"""A host whose folder is short enough for any socket, and empty of processes afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.host import Host


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host(Path(tempfile.mkdtemp(prefix="jobledger-host-")))
    try:
        yield host
    finally:
        host.close()
