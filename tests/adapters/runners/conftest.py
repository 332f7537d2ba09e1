"""A host: its folder path is short enough for any Unix socket, and its processes are ended afterwards."""

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
