"""Fixtures for all tests. Whatever asks for the broker is marked `kafka`, so that the fast tests never start a JVM."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ledger.adapters.embedded.broker import Broker
from tests.servers import CLEAN_ALWAYS, RunningBroker

SLOW = ("test_mutants.py", "test_runner.py", "test_processes.py", "test_jars.py", "test_stored.py")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
        if item.path.parent.name == "runners" or item.path.name in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One real broker for the whole run, which compacts as fast as it can. Leave it running: others use it too."""
    running = RunningBroker(Broker.at(tmp_path_factory.mktemp("broker"), extra=CLEAN_ALWAYS))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture
def bootstrap(broker: RunningBroker) -> str:
    """bootstrap.servers of the shared broker."""
    return broker.bootstrap


@pytest.fixture
def prefix() -> str:
    """A prefix for topics, groups and transactional ids that no other test has."""
    return f"t{uuid.uuid4().hex[:10]}."
