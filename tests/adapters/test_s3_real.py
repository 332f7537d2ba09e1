"""Behaviour that only a real S3 server shows: conditional requests among rivals, checks of content, and a crash."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from ledger.adapters.s3.blobs import MARKER, S3Blobs
from ledger.adapters.s3.client import connect
from ledger.adapters.s3.objects import S3Objects
from ledger.adapters.s3.settings import S3Settings
from ledger.adapters.s3.upload import NEW, upload
from ledger.core.model.facts import GraphRef
from ledger.errors import ConfigError, Unreachable
from tests.support.s3 import BUILD_S, RealS3, make_bucket, of_its_own, real_s3, settings
from tests.support.s3_proxy import Fault, FaultyProxy, through
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(BUILD_S + 120)]

SMALL, LARGE = os.urandom(50_000), os.urandom(11_000_000)  # LARGE is stored in three parts
sizes = pytest.mark.parametrize("data", [SMALL, LARGE], ids=["whole", "in parts"])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(SMALL)
    return path


@pytest.fixture
def proxy(versitygw: S3Settings) -> Iterator[FaultyProxy]:
    made = FaultyProxy(versitygw.endpoint_url or "")
    try:
        yield made
    finally:
        made.close()


def keys(given: S3Settings) -> list[str]:
    found = connect(given).list_objects_v2(Bucket=given.bucket, Prefix=given.prefix)
    return [one["Key"].removeprefix(given.prefix) for one in found.get("Contents", ())]


def uploads(given: S3Settings) -> list[Any]:
    found = connect(given).list_multipart_uploads(Bucket=given.bucket, Prefix=given.prefix)
    return [one for one in found.get("Uploads", ()) if one["Key"].startswith(given.prefix)]


@sizes
def test_of_many_who_create_one_does(versitygw: S3Settings, source: Path, data: bytes) -> None:
    """The server must enforce the condition: each rival learns whether it created the object."""
    source.write_bytes(data)
    blobs = S3Blobs(versitygw)
    ref = blobs.put("job-1", source)
    for _ in range(3):
        blobs.delete_all("job-1")
        won: list[bool] = []
        together = threading.Barrier(6)

        def create(won: list[bool] = won, together: threading.Barrier = together) -> None:
            client = connect(versitygw)
            together.wait(300)
            won.append(upload(client, versitygw, versitygw.prefix + ref.uri, source, ref, NEW))

        threads = [threading.Thread(target=create) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert sorted(won) == [False] * 5 + [True]
        assert blobs.put("job-1", source) == ref
    assert uploads(versitygw) == []


@sizes
def test_submitters_and_a_retirement_side_by_side_end_in_order(versitygw: S3Settings, source: Path, data: bytes) -> None:
    """Puts and deletes of one job interleave freely. No call fails, and the final object is complete."""
    source.write_bytes(data)
    failed: list[Exception] = []
    refs: list[GraphRef] = []
    ended = threading.Event()

    def put() -> None:
        try:
            refs.extend(S3Blobs(versitygw).put("job-1", source) for _ in range(4))
        except Unreachable as error:
            if "again and again" not in str(error):  # legitimate, with a delete every few milliseconds
                failed.append(error)
        except Exception as error:
            failed.append(error)

    def delete() -> None:
        blobs = S3Blobs(versitygw)
        try:
            while not ended.wait(0.05):
                blobs.delete_all("job-1")
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=put) for _ in range(3)]
    deleting = threading.Thread(target=delete)
    for thread in [*threads, deleting]:
        thread.start()
    for thread in threads:
        thread.join(300)
    ended.set()
    deleting.join(300)
    assert failed == []
    blobs = S3Blobs(versitygw)
    ref = until(lambda: blobs.put("job-1", source), "all earlier requests are done")
    assert {ref, *refs} == {ref}
    blobs.fetch(ref, source.with_name("target"))
    assert source.with_name("target").read_bytes() == data
    assert blobs.delete_all("job-1") == 1
    assert keys(versitygw) == [MARKER]
    assert uploads(versitygw) == []


@sizes
def test_what_the_wire_changes_is_refused_by_the_server(
    versitygw: S3Settings, proxy: FaultyProxy, source: Path, data: bytes
) -> None:
    source.write_bytes(data)
    proxy.plan = lambda request: Fault(flip_sent=True) if request.method == "PUT" and MARKER not in request.path else None
    with pytest.raises(Unreachable):
        S3Blobs(through(proxy, versitygw)).put("job-1", source)
    assert keys(versitygw) == [MARKER]
    assert uploads(versitygw) == []
    proxy.plan = lambda request: None
    assert S3Blobs(versitygw).exists(S3Blobs(through(proxy, versitygw)).put("job-1", source))


@sizes
def test_a_put_whose_answer_is_lost_is_done(versitygw: S3Settings, proxy: FaultyProxy, source: Path, data: bytes) -> None:
    source.write_bytes(data)
    left = iter(range(1))

    def lose_one(request: Any) -> Fault | None:
        completes = request.method == "POST" and "uploadId" in request.query
        puts = request.method == "PUT" and "uploadId" not in request.query and MARKER not in request.path
        deciding = completes or puts
        return Fault(500, "InternalError", after=True) if deciding and next(left, None) is not None else None

    proxy.plan = lose_one
    ref = S3Blobs(through(proxy, versitygw)).put("job-1", source)
    assert next(left, None) is None
    assert keys(versitygw) == [ref.uri, MARKER]
    assert uploads(versitygw) == []


def test_what_is_gone_before_it_is_deleted_is_deleted(versitygw: S3Settings, proxy: FaultyProxy, source: Path) -> None:
    """The server reports an object as missing if an overlapping delete, or an earlier try of the same one, removed it."""
    ref = S3Blobs(versitygw).put("job-1", source)
    S3Objects(versitygw).create("one", b"1")
    error = f"<Error><Key>{versitygw.prefix}{ref.uri}</Key><Code>NoSuchKey</Code><Message>none</Message></Error>"
    faults = {
        "POST": Fault(200, after=True, body=f"<DeleteResult>{error}</DeleteResult>".encode()),
        "DELETE": Fault(404, "NoSuchKey", after=True),
    }
    met: list[str] = []

    def gone(request: Any) -> Fault | None:
        met.extend({request.method} & set(faults))
        return faults.get(request.method)

    proxy.plan = gone
    assert S3Blobs(through(proxy, versitygw)).delete_all("job-1") == 1
    S3Objects(through(proxy, versitygw)).delete("one")
    assert met == ["POST", "DELETE"]
    assert keys(versitygw) == [MARKER]


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_credentials_are_a_matter_of_settings(
    versitygw: S3Settings, source: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = S3Blobs(versitygw).put("job-1", source)
    monkeypatch.setenv(name, "another")
    refused = S3Blobs(versitygw)
    for ask in (
        lambda: refused.put("job-1", source), lambda: refused.fetch(ref, source.with_name("target")),
        lambda: refused.exists(ref), lambda: refused.delete_all("job-1"),
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            ask()


def test_all_pages_are_deleted(versitygw: S3Settings, source: Path) -> None:
    client, blobs = connect(versitygw), S3Blobs(versitygw)
    for number in range(1100):
        client.put_object(Bucket=versitygw.bucket, Key=f"{versitygw.prefix}graphs/job-1/{number:064x}", Body=b"")
    neighbour = blobs.put("job-10", source)
    assert blobs.delete_all("job-1") == 1100
    assert blobs.delete_all("job-1") == 0
    assert keys(versitygw) == [neighbour.uri, MARKER]


@pytest.fixture
def own_server(tmp_path: Path, s3_credentials: None) -> Iterator[RealS3]:
    with real_s3(tmp_path / "s3") as server:
        yield server


def test_a_server_that_dies_is_waited_for(own_server: RealS3, source: Path) -> None:
    given = of_its_own(make_bucket(settings(own_server.endpoint)))
    blobs = S3Blobs(given)
    ref = blobs.put("job-1", source)
    own_server.kill()
    for ask in (
        lambda: blobs.put("job-2", source), lambda: blobs.fetch(ref, source.with_name("target")),
        lambda: blobs.exists(ref), lambda: blobs.delete_all("job-1"),
    ):  # fmt: skip
        with pytest.raises(Unreachable):
            ask()
    own_server.start()
    assert blobs.exists(ref)
    blobs.fetch(ref, source.with_name("target"))
    assert source.with_name("target").read_bytes() == SMALL


def test_a_condition_that_fails_changes_nothing(versitygw: S3Settings, source: Path) -> None:
    client = connect(versitygw)
    named = {"Bucket": versitygw.bucket, "Key": f"{versitygw.prefix}graphs/job-1/any"}
    first = client.put_object(**named, Body=b"first", IfNoneMatch="*")["ETag"]
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"0123456789abcdef0123456789abcdef"'}):
        with pytest.raises(ClientError, match="PreconditionFailed"):
            client.put_object(**named, Body=b"second", **condition)
    assert client.get_object(**named)["Body"].read() == b"first"
    client.put_object(**named, Body=b"third", IfMatch=first)
    assert client.get_object(**named)["Body"].read() == b"third"
