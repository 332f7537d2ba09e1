"""Servers for elections. They are not shared with other tests, since the tests stop and kill them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.embedded.broker import Broker
from tests.support.candidates import LASTING_S, SESSION_S, Election, KafkaServer, ZooKeeperServer
from tests.support.servers import RunningBroker, create_topic

KINDS = ["memory", "file", *(pytest.param(kind, marks=pytest.mark.kafka) for kind in ("zookeeper", "kafka"))]


@pytest.fixture(scope="module")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that allows sessions shorter than six seconds, Kafka's usual minimum."""
    folder = tmp_path_factory.mktemp("electing-broker")
    running = RunningBroker(Broker.at(folder, extra={"group.min.session.timeout.ms": "1000"}))
    try:
        running.start()
        yield KafkaServer(running)
    finally:
        running.kill()


@pytest.fixture(scope="module")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    from tests.support.zookeepers import Zookeepers

    with Zookeepers.open(tmp_path_factory.mktemp("zookeeper"), count=1) as running:
        yield ZooKeeperServer(running)


@pytest.fixture(params=KINDS)
def election(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, prefix: str) -> Iterator[Election]:
    """An election of any kind. Its leader stays leader unless a test acts."""
    yield from _opened(request, tmp_path_factory, prefix, LASTING_S)


@pytest.fixture(params=KINDS[1:])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, prefix: str) -> Iterator[Election]:
    """An election that processes can share. Its leader stays leader unless a test acts."""
    yield from _opened(request, tmp_path_factory, prefix, LASTING_S)


@pytest.fixture(params=KINDS[2:])
def leased(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, prefix: str) -> Iterator[Election]:
    """An election with a server, whose lease ends soon by time alone. A file lock lasts as long as its process."""
    yield from _opened(request, tmp_path_factory, prefix, SESSION_S)


@pytest.fixture(params=KINDS[2:])
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, prefix: str) -> Iterator[Election]:
    """Like `leased`, but its leader stays leader unless a test acts."""
    yield from _opened(request, tmp_path_factory, prefix, LASTING_S)


def _opened(
    request: pytest.FixtureRequest, folders: pytest.TempPathFactory, prefix: str, session_s: float
) -> Iterator[Election]:
    made = _election(request, folders, prefix, session_s)
    try:
        yield made
    finally:
        made.close()


def _election(request: pytest.FixtureRequest, folders: pytest.TempPathFactory, prefix: str, session_s: float) -> Election:
    if request.param == "memory":
        return Election("memory")
    if request.param == "file":
        return Election("file", {"path": str(folders.mktemp("run") / "locks" / "leader-projector.lock")})
    real = {"moment_s": session_s / 2, "after_death_s": 8 * session_s, "session_s": session_s}
    where = {"prefix": prefix, "session_s": session_s}
    if request.param == "kafka":
        server = request.getfixturevalue("kafka_server")
        create_topic(server.broker.bootstrap, f"{prefix}ledger.leaders")
        return Election("kafka", {**where, "bootstrap": server.broker.bootstrap}, server, **real)
    server = request.getfixturevalue("zookeeper_server")
    return Election("zookeeper", {**where, "hosts": server.zookeepers.hosts}, server, **real)
