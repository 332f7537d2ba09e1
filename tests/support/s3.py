"""S3 for tests: moto in this process, or versitygw as a real server on a folder.

Go builds versitygw once, from the module and version below, into the user's cache beside the broker's jars.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ledger.adapters.java.jars import cache_folder
from ledger.adapters.s3.settings import S3Settings
from ledger.embedded.ports import free_ports
from tests.support.servers import die_with_parent
from tests.support.waiting import NotInTime

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUILD_S = 600.0
READY_S = 60.0
PART_BYTES = 5 << 20  # the minimum of a real server, except for the last part
MOTO_PART_BYTES = 64 << 10  # moto is configured to accept these
USER, PASSWORD = "test-user", "test-password"
#: Environment of a process that may only reach a server of these tests.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": PASSWORD, "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}  # fmt: skip
NOT_SET = (
    "AWS_CA_BUNDLE", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN",
)  # fmt: skip


def use_credentials(patch: pytest.MonkeyPatch) -> None:
    for name in NOT_SET:
        patch.delenv(name, raising=False)
    for name, value in CREDENTIALS.items():
        patch.setenv(name, value)


def settings(endpoint_url: str, bucket: str = "graphs-of-tests", part_bytes: int = PART_BYTES) -> S3Settings:
    """Settings for a test server. They use path_style, because 127.0.0.1 has no host names for buckets, and small parts,
    so that tests need only small files."""
    return S3Settings(bucket, "", endpoint_url, "us-east-1", path_style=True, part_bytes=part_bytes)


def make_bucket(given: S3Settings) -> S3Settings:
    from ledger.adapters.s3.client import connect  # imported here: every test run imports this file, but few need boto3

    with pytest.MonkeyPatch.context() as patch:
        use_credentials(patch)
        connect(given).create_bucket(Bucket=given.bucket)
    return given


def of_its_own(given: S3Settings) -> S3Settings:
    """The same bucket with a unique prefix."""
    return replace(given, prefix=f"ledger/{uuid.uuid4().hex[:10]}/")


# -- moto ----------------------------------------------------------------------------------------------------------------


@contextmanager
def moto() -> Iterator[str]:
    """Runs a moto server in this process. Yields its endpoint."""
    import logging

    from moto.s3 import models
    from moto.server import ThreadedMotoServer
    from werkzeug.serving import WSGIRequestHandler

    models.S3_UPLOAD_PART_MIN_SIZE = MOTO_PART_BYTES  # type: ignore[attr-defined]
    WSGIRequestHandler.disable_nagle_algorithm = True  # as in tests.support.s3_proxy
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


# -- versitygw -----------------------------------------------------------------------------------------------------------


@cache
def versitygw() -> str:
    """The path of the program. The first call on a machine builds it, in a minute or two. Skips the test without Go."""
    program = _program()
    if program.exists():
        return str(program)
    if (go := shutil.which("go")) is None:
        pytest.skip("Go is needed to build versitygw")
    program.parent.mkdir(parents=True, exist_ok=True)
    with program.with_name("lock").open("w") as lock, tempfile.TemporaryDirectory(dir=program.parent) as built:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker of a test run builds it, the others wait
        if not program.exists():
            done = subprocess.run(
                [go, "install", VERSITYGW], env={**os.environ, "GOBIN": built, "GOWORK": "off"}, cwd=built,
                capture_output=True, text=True, check=False, timeout=BUILD_S,
            )  # fmt: skip
            if done.returncode != 0:
                pytest.fail(f"go install {VERSITYGW}: {done.stderr.strip()[-2000:]}")
            Path(built, "versitygw").replace(program)
    return str(program)


def _can_build() -> bool:
    return _program().exists() or shutil.which("go") is not None


def _program() -> Path:
    return cache_folder() / "versitygw" / VERSITYGW.rpartition("@")[2] / "versitygw"


#: The parameter for suites that run on several stores, one of them a bucket: the name of a fixture.
BUCKET = pytest.param(
    "versitygw" if _can_build() else "moto", marks=[pytest.mark.slow, pytest.mark.timeout(BUILD_S + 120)], id="bucket"
)


class RealS3:
    """A real server. Its buckets are folders in `folder`/buckets; its requests are logged in `folder`/log. `kill` and
    `start` in turn is a crash; the address stays the same."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.buckets = folder, folder / "buckets"
        (self._port,) = free_ports(1)  # no other connection can get this port while the server is down
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        attributes = self.folder / "attributes"  # in extra files, because not every file system has extended attributes
        for path in (self.buckets, attributes):
            path.mkdir(parents=True, exist_ok=True)
        address = f"127.0.0.1:{self._port}"
        command = [versitygw(), "--port", address, "posix", "--sidecar", str(attributes), str(self.buckets)]
        root = {"ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": PASSWORD, "HOME": str(self.folder), "PATH": os.environ["PATH"]}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=root, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        deadline = time.monotonic() + READY_S
        while not _answers(self._port):
            ended, said = self._process.poll() is not None, (self.folder / "log").read_text()[-2000:]
            if ended or time.monotonic() > deadline:
                self.kill()
                assert not ended, f"versitygw has ended: {said}"
                raise NotInTime(f"not within {READY_S:g} s: versitygw is up: {said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kills the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def real_s3(folder: Path) -> Iterator[RealS3]:
    """Runs a real server. Skips the test if Go is missing."""
    server = RealS3(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status in (200, 403)
    except OSError:
        return False
    finally:
        connection.close()
