"""Servers that scenarios share. Each ledger on them has its own topics and elections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three ZooKeeper members and one broker. Each test leaves them serving."""
    with Cluster.open(tmp_path_factory.mktemp("one")) as cluster:
        yield cluster.start(brokers=1, topics=False)
