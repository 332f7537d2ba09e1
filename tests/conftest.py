"""Fixtures for all tests. Whatever asks for the broker is marked `kafka`, so that the fast tests never start a JVM."""

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

#: How long an example takes is the machine's doing, and no property of the code.
settings.register_profile("ledger", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ledger")
#: Built of its functions once, not anew at each call: that is four fifths of what a command costs a test.
typer.testing._get_command = cache(typer.testing._get_command)
os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    #: So that no other worker draws the port of a server that is down, or not yet up. What a test starts inherits it.
    os.environ.setdefault(VARIABLE, ports_of(worker, int(os.environ["PYTEST_XDIST_WORKER_COUNT"])))


def pytest_report_header() -> str:
    return f"what is drawn comes again with {seeds.said()}"


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: order.rank(item.nodeid.partition("::")[0]))  # stable: files stay whole
    for item in items:
        if (reruns := item.config.getoption("reruns")) is not None:
            # By the type of what ended the test: --only-rerun looks for words, in texts and in causes too.
            item.add_marker(pytest.mark.flaky(reruns=reruns, condition=waiting.late))
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
        if "versitygw" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(s3.BUILD_S + 120))
        if "moto" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)  # a server, if one in this process: its import alone takes seconds


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    return order.scheduler(config, log)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """A role that a test runs in this process makes files for its owner alone: the next test does not."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


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


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing of what is logged is printed."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 finds those of the tests' servers, and no others."""
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
    """A store of the test's own in moto."""
    return s3.of_its_own(moto_bucket)


@pytest.fixture
def versitygw(versitygw_bucket: S3Settings, s3_credentials: None) -> S3Settings:
    """A store of the test's own in a real server. What asks for it is marked `slow`: the server may have to be built."""
    return s3.of_its_own(versitygw_bucket)
