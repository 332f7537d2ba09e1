"""Fixtures for all tests. A test that asks for the broker is marked `kafka`, so that the fast tests never start a JVM."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import structlog
import typer.testing
from hypothesis import HealthCheck, settings

from ledger.adapters.java.java import SHORT_LIVED
from ledger.adapters.s3.settings import S3Settings
from ledger.embedded.broker import Broker
from ledger.embedded.ports import VARIABLE
from tests.support import order, s3, seeds, waiting
from tests.support.servers import CLEAN_ALWAYS, RunningBroker, ports_of

#: No deadline: the time that an example takes depends on the machine, not on the code.
settings.register_profile("ledger", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ledger")
#: Cached: building the command from its functions takes four fifths of the time of a command call in a test.
typer.testing._get_command = cache(typer.testing._get_command)
os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    #: No other worker draws the port of a server that is down or not up yet. Processes that a test starts inherit the
    #: variable.
    os.environ.setdefault(VARIABLE, ports_of(worker, int(os.environ["PYTEST_XDIST_WORKER_COUNT"])))


def pytest_report_header() -> str:
    return f"what is drawn comes again with {seeds.said()}"


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: order.rank(item.nodeid.partition("::")[0]))  # stable: the tests of a file stay together
    for item in items:
        if (reruns := item.config.getoption("reruns")) is not None:
            # The condition checks the type of the exception. --only-rerun would search words, also in messages and
            # causes.
            item.add_marker(pytest.mark.flaky(reruns=reruns, condition=waiting.late))
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
        if "versitygw" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(s3.BUILD_S + 120))
        if "moto" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)  # a server, although in this process: the import alone takes seconds


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    return order.scheduler(config, log)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Restores the umask: a role that runs in this process sets one that makes files readable by their owner only."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One real broker for the whole run, which compacts as fast as it can. Do not stop it: other tests use it too."""
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
    """A unique prefix for the topics, groups and transactional ids of one test."""
    return f"t{uuid.uuid4().hex[:10]}."


@pytest.fixture
def quiet() -> Iterator[None]:
    """Captures log output, so that nothing is printed."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 finds the credentials of the test servers, and no others."""
    s3.use_credentials(monkeypatch)


@pytest.fixture(scope="session")
def moto_bucket() -> Iterator[S3Settings]:
    with s3.moto() as endpoint:
        yield s3.make_bucket(s3.settings(endpoint, part_bytes=s3.MOTO_PART_BYTES))


@pytest.fixture(scope="session")
def versitygw_bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Settings]:
    with s3.real_s3(tmp_path_factory.mktemp("s3")) as server:
        yield s3.make_bucket(s3.settings(server.endpoint))


@pytest.fixture
def moto(moto_bucket: S3Settings, s3_credentials: None) -> S3Settings:
    """A store in moto that only this test uses."""
    return s3.of_its_own(moto_bucket)


@pytest.fixture
def versitygw(versitygw_bucket: S3Settings, s3_credentials: None) -> S3Settings:
    """A store in a real server that only this test uses. Such tests are marked `slow`: the server may have to be built."""
    return s3.of_its_own(versitygw_bucket)
