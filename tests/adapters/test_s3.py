"""Blobs in a bucket while S3 is busy, silent, cut off, refusing, or used by a rival. On moto behind a proxy."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.adapters.s3 import blobs as module
from ledger.adapters.s3 import client
from ledger.adapters.s3.blobs import MARKER, S3Blobs
from ledger.adapters.s3.client import connect
from ledger.adapters.s3.objects import S3Objects
from ledger.adapters.s3.settings import PARTS_MAX, S3Settings
from ledger.core.model.facts import GraphRef
from ledger.errors import ConfigError, PermanentError, Unreachable, UsageError
from ledger.ports import StoredBlob
from tests.support.s3 import MOTO_PART_BYTES, NOT_SET, PASSWORD, USER
from tests.support.s3_proxy import Fault, FaultyProxy, Request, through

SMALL, LARGE = os.urandom(50_000), os.urandom(MOTO_PART_BYTES + 7_000)  # LARGE is stored in two parts


#: Cached: making a client takes longer than most tests of this file.
_connected = cache(connect)


class Bucket:
    """A store behind a proxy. `direct`: a client that bypasses the proxy."""

    def __init__(self, direct: S3Settings, proxy: FaultyProxy, folder: Path) -> None:
        self.settings, self.proxy, self.folder = through(proxy, direct), proxy, folder
        self.pauses: list[float] = []
        self.blobs = S3Blobs(self.settings, sleep=self.pauses.append)
        self.direct = _connected(replace(direct, prefix=""))

    def source(self, data: bytes = SMALL) -> Path:
        path = self.folder / f"source-{len(data)}"
        path.write_bytes(data)
        return path

    def stored(self, data: bytes = SMALL, job_id: str = "job-1") -> GraphRef:
        ref = self.blobs.put(job_id, self.source(data))
        self.proxy.seen.clear()
        return ref

    def keys(self) -> list[str]:
        found = self.direct.list_objects_v2(Bucket=self.settings.bucket, Prefix=self.settings.prefix)
        return [one["Key"].removeprefix(self.settings.prefix) for one in found.get("Contents", ())]

    def uploads(self) -> list[str]:
        """The keys of uploads that were started, but neither completed nor aborted."""
        found = self.direct.list_multipart_uploads(Bucket=self.settings.bucket, Prefix=self.settings.prefix)
        return [one["Key"] for one in found.get("Uploads", ())]

    def fail(self, fault: Fault, times: int = 1000, when: Callable[[Request], bool] = lambda request: True) -> None:
        left = iter(range(times))

        def plan(request: Request) -> Fault | None:
            of_a_graph = MARKER not in request.path
            return fault if of_a_graph and when(request) and next(left, None) is not None else None

        self.proxy.plan = plan


@pytest.fixture
def proxy(moto: S3Settings) -> Iterator[FaultyProxy]:
    made = FaultyProxy(moto.endpoint_url or "")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def bucket(moto: S3Settings, proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    import botocore.endpoint

    # Between two tries of one request boto3 sleeps up to 20 s.
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda s: None))
    return Bucket(moto, proxy, tmp_path)


def completes(request: Request) -> bool:
    return request.method == "POST" and "uploadId=" in request.query


def puts(request: Request) -> bool:
    return request.method == "PUT" and "partNumber" not in request.query


#: Every call of the port, on an existing graph.
CALLS: dict[str, Callable[[Bucket, GraphRef], object]] = {
    "put": lambda b, ref: b.blobs.put("job-2", b.source(SMALL)),
    "put in parts": lambda b, ref: b.blobs.put("job-2", b.source(LARGE)),
    "fetch": lambda b, ref: b.blobs.fetch(ref, b.folder / "target"),
    "exists": lambda b, ref: b.blobs.exists(ref),
    "delete_all": lambda b, ref: b.blobs.delete_all("job-1"),
    "listing": lambda b, ref: b.blobs.listing(),
    "delete": lambda b, ref: b.blobs.delete(StoredBlob("job-1", ref.sha256, ref.size, 1e9, 0.0)),
}
call = pytest.mark.parametrize("name", CALLS)


# -- a busy or unreachable store ---------------------------------------------------------------------------------------


@call
@pytest.mark.parametrize(("status", "code"), [(500, "InternalError"), (503, "SlowDown")])
def test_a_store_that_is_busy_is_asked_again(bucket: Bucket, name: str, status: int, code: str) -> None:
    ref = bucket.stored()
    bucket.fail(Fault(status, code), times=2)
    CALLS[name](bucket, ref)
    assert len(bucket.proxy.seen) >= 3


@call
def test_a_store_that_stays_busy_is_unreachable(bucket: Bucket, name: str) -> None:
    ref = bucket.stored()
    bucket.fail(Fault(503, "SlowDown"))
    with pytest.raises(Unreachable, match=bucket.settings.bucket):
        CALLS[name](bucket, ref)
    asked = [request for request in bucket.proxy.seen if MARKER not in request.path]
    assert len(asked) == bucket.settings.attempts_max  # bounded, and not multiplied by a retry loop of this project


@call
def test_a_store_that_is_silent_is_unreachable(bucket: Bucket, name: str) -> None:
    ref = bucket.stored()
    impatient = replace(bucket.settings, read_timeout_s=0.3, attempts_max=2)
    bucket.blobs = S3Blobs(impatient, sleep=bucket.pauses.append)
    bucket.blobs._marked = True
    bucket.fail(Fault(silent=True))
    with pytest.raises(Unreachable):
        CALLS[name](bucket, ref)


def test_a_store_that_is_not_there_is_unreachable(bucket: Bucket) -> None:
    ref = bucket.stored()
    bucket.proxy.close()
    bucket.blobs = S3Blobs(bucket.settings)  # the connections of the other client are still open
    for one in CALLS.values():
        with pytest.raises(Unreachable):
            one(bucket, ref)


# -- conditional puts
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["whole", "in parts"])
def test_every_put_is_conditional(bucket: Bucket, data: bytes) -> None:
    ref = bucket.stored(data)
    bucket.blobs.delete_all("job-1")
    bucket.proxy.seen.clear()
    bucket.blobs.put("job-1", bucket.source(data))
    deciding = [r for r in bucket.proxy.seen if puts(r) or completes(r)]
    assert [r.headers.get("if-none-match") for r in deciding] == ["*"]
    bucket.direct.put_object(Bucket=bucket.settings.bucket, Key=bucket.settings.prefix + ref.uri, Body=b"damaged")
    bucket.proxy.seen.clear()
    bucket.blobs.put("job-1", bucket.source(data))
    deciding = [r for r in bucket.proxy.seen if puts(r) or completes(r)]
    # only an object that was seen to be damaged is overwritten
    assert ["if-match" in r.headers for r in deciding] == [False, True]


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "ExistingObjectIsDirectory"])
@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["whole", "in parts"])
def test_a_put_that_meets_another_is_tried_again(bucket: Bucket, data: bytes, code: str) -> None:
    deciding = completes if data is LARGE else puts
    bucket.fail(Fault(409, code), times=3, when=deciding)
    ref = bucket.blobs.put("job-1", bucket.source(data))
    assert bucket.blobs.exists(ref)
    assert len([r for r in bucket.proxy.seen if deciding(r) and MARKER not in r.path]) == 4
    assert bucket.pauses == sorted(bucket.pauses) or len(bucket.pauses) == 3
    assert bucket.uploads() == []


@pytest.mark.parametrize(
    ("fault", "when"),
    [
        (Fault(400, "InvalidPart"), completes),
        (Fault(404, "NoSuchUpload"), completes),
        (Fault(404, "NoSuchUpload"), lambda request: "partNumber=2" in request.query),
    ],
)
def test_an_upload_that_is_ended_under_us_begins_anew(
    bucket: Bucket, fault: Fault, when: Callable[[Request], bool]
) -> None:
    """`delete_all` of a retiring job may abort the upload at any moment."""
    bucket.fail(fault, times=1, when=when)
    assert bucket.blobs.exists(bucket.blobs.put("job-1", bucket.source(LARGE)))
    assert bucket.uploads() == []


@pytest.mark.parametrize(("status", "code"), [(404, "NoSuchKey"), (412, "PreconditionFailed")])
def test_a_damaged_graph_that_is_taken_away_before_it_is_mended_is_put_anew(bucket: Bucket, status: int, code: str) -> None:
    ref = bucket.stored()
    bucket.direct.put_object(Bucket=bucket.settings.bucket, Key=bucket.settings.prefix + ref.uri, Body=b"damaged")
    bucket.fail(Fault(status, code), times=1, when=lambda request: "if-match" in request.headers)
    assert bucket.blobs.put("job-1", bucket.source()) == ref
    bucket.blobs.fetch(ref, bucket.folder / "target")


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["whole", "in parts"])
def test_a_put_that_always_meets_another_gives_up_and_leaves_nothing(bucket: Bucket, data: bytes) -> None:
    bucket.fail(Fault(409, "ConditionalRequestConflict"), when=completes if data is LARGE else puts)
    with pytest.raises(Unreachable, match="again and again"):
        bucket.blobs.put("job-1", bucket.source(data))
    assert bucket.keys() == [MARKER]
    assert bucket.uploads() == []


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["whole", "in parts"])
def test_a_put_whose_answer_is_lost_is_done(bucket: Bucket, data: bytes) -> None:
    """The request is sent again, gets 412 because of itself, and finds the correct content."""
    bucket.fail(Fault(500, "InternalError", after=True), times=1, when=completes if data is LARGE else puts)
    ref = bucket.blobs.put("job-1", bucket.source(data))
    assert bucket.keys() == [ref.uri, MARKER]
    assert bucket.uploads() == []


def test_a_completion_that_fails_under_a_status_of_200_is_no_success(bucket: Bucket) -> None:
    body = b"<Error><Code>InternalError</Code><Message>a fault of the test</Message></Error>"
    bucket.fail(Fault(200, body=body), when=completes)
    with pytest.raises(Unreachable):
        bucket.blobs.put("job-1", bucket.source(LARGE))
    assert bucket.keys() == [MARKER]
    assert bucket.uploads() == []


@pytest.mark.parametrize("fault", [Fault(503, "SlowDown"), Fault(403, "AccessDenied"), Fault(silent=True)], ids=repr)
def test_an_upload_that_fails_in_the_middle_leaves_nothing(bucket: Bucket, fault: Fault) -> None:
    # A short timeout for silence, and a long one for all other requests, such as the abort of the upload.
    impatient = replace(bucket.settings, read_timeout_s=2.0 if fault.silent else 60.0, attempts_max=1)
    blobs = S3Blobs(impatient, sleep=bucket.pauses.append)
    bucket.fail(fault, when=lambda request: "partNumber=2" in request.query)
    with pytest.raises((Unreachable, ConfigError)):
        blobs.put("job-1", bucket.source(LARGE))
    assert bucket.keys() == [MARKER]
    assert bucket.uploads() == []


@pytest.mark.parametrize("deletes", [1, 3, 1000])
@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["whole", "in parts"])
def test_a_put_survives_a_delete_beside_it(bucket: Bucket, deletes: int, data: bytes) -> None:
    """Another submitter put the same graph, and the job is deleted before the put could read it. The retries are
    bounded."""
    ref = bucket.stored(data)
    other, left = S3Blobs(replace(bucket.settings, endpoint_url=bucket.direct.meta.endpoint_url)), iter(range(deletes))

    def plan(request: Request) -> Fault | None:
        graph = ref.uri in request.path
        if graph and (puts(request) or completes(request)) and next(left, None) is not None:
            return Fault(412, "PreconditionFailed")
        if graph and request.method == "GET":
            other.delete_all("job-1")
        return None

    bucket.proxy.plan = plan
    if deletes < 1000:
        assert bucket.blobs.put("job-1", bucket.source(data)) == ref
        bucket.proxy.plan = lambda request: None
        assert bucket.blobs.exists(ref)
    else:
        with pytest.raises(Unreachable, match="again and again"):
            bucket.blobs.put("job-1", bucket.source(data))
    assert bucket.uploads() == []


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["whole", "in parts"])
def test_a_file_that_changes_while_it_is_stored_is_not_stored(
    bucket: Bucket, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest would name other content."""
    source, found = bucket.source(data), module._ref_of

    def then_changed(job_id: str, path: Path) -> GraphRef:
        ref = found(job_id, path)
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        return ref

    monkeypatch.setattr(module, "_ref_of", then_changed)
    with pytest.raises(UsageError, match="changed"):
        bucket.blobs.put("job-1", source)
    assert bucket.keys() == [MARKER]
    assert bucket.uploads() == []


def test_concurrent_puts_of_one_graph_agree(bucket: Bucket) -> None:
    source, refs, failed = bucket.source(), [], []

    def put() -> None:
        try:
            refs.extend(bucket.blobs.put("job-1", source) for _ in range(3))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=put) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert len(refs) == 18
    assert len(set(refs)) == 1
    assert bucket.keys() == [refs[0].uri, MARKER]


def test_no_graph_has_more_parts_than_s3_takes() -> None:
    settings = S3Settings("b", part_bytes=16 << 20)
    assert settings.part_size_bytes(64 << 20) == 16 << 20
    for size in (160_000 << 20, (160_000 << 20) + 1, 5 << 40):
        assert -(-size // settings.part_size_bytes(size)) <= PARTS_MAX


# -- reading
# -------------------------------------------------------------------------------------------------------------


def reads(request: Request) -> bool:
    return request.method == "GET"


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("source-"))


@pytest.mark.parametrize("cut_to", [0, 20_000])
def test_an_answer_that_breaks_off_is_read_anew(bucket: Bucket, cut_to: int) -> None:
    ref = bucket.stored()
    bucket.fail(Fault(cut_to=cut_to), times=1, when=reads)
    bucket.blobs.fetch(ref, bucket.folder / "target")
    assert (bucket.folder / "target").read_bytes() == SMALL
    assert left_in(bucket.folder) == ["target"]


def test_answers_that_always_break_off_are_no_damaged_graph(bucket: Bucket) -> None:
    ref = bucket.stored()
    bucket.fail(Fault(cut_to=20_000), when=reads)
    with pytest.raises(Unreachable):
        bucket.blobs.fetch(ref, bucket.folder / "target")
    assert len(bucket.proxy.seen) == bucket.settings.attempts_max
    assert left_in(bucket.folder) == []


def test_what_the_wire_has_changed_is_read_anew(bucket: Bucket) -> None:
    ref = bucket.stored()
    bucket.fail(Fault(flip=True), times=1, when=reads)
    bucket.blobs.fetch(ref, bucket.folder / "target")
    assert (bucket.folder / "target").read_bytes() == SMALL


def test_what_was_wrong_once_and_not_seen_again_is_no_verdict(bucket: Bucket) -> None:
    ref = bucket.stored()
    cut, flip = Fault(cut_to=9), Fault(flip=True)
    for faults in ([cut, cut, flip], [flip, cut, cut]):
        met = iter(faults)
        bucket.proxy.plan = lambda request, met=met: next(met, None)  # type: ignore[misc]
        with pytest.raises(Unreachable):
            bucket.blobs.fetch(ref, bucket.folder / "target")
    assert left_in(bucket.folder) == []


def test_what_is_wrong_each_time_is_damaged(bucket: Bucket) -> None:
    ref = bucket.stored()
    (bucket.folder / "target").write_bytes(b"other")
    bucket.fail(Fault(flip=True), when=reads)
    with pytest.raises(PermanentError, match="SHA-256"):
        bucket.blobs.fetch(ref, bucket.folder / "target")
    assert (bucket.folder / "target").read_bytes() == b"other"
    assert left_in(bucket.folder) == ["target"]


def test_a_disk_that_fails_is_no_damaged_graph(bucket: Bucket) -> None:
    ref = bucket.stored()
    with pytest.raises(Unreachable):
        bucket.blobs.fetch(ref, bucket.folder / "no such folder" / "target")


# -- deleting
# ------------------------------------------------------------------------------------------------------------


def test_all_pages_are_deleted_a_thousand_at_a_time(bucket: Bucket) -> None:
    from moto.backends import get_backend

    store = get_backend("s3")["123456789012"]["aws"]
    for number in range(2300):
        store.put_object(bucket.settings.bucket, f"{bucket.settings.prefix}graphs/job-1/{number:064x}", b"")
    neighbour = bucket.stored(job_id="job-10")
    assert bucket.blobs.delete_all("job-1") == 2300
    assert [r.query for r in bucket.proxy.seen if r.method == "POST"] == ["delete"] * 3
    assert bucket.blobs.delete_all("job-1") == 0
    assert bucket.keys() == [neighbour.uri, MARKER]


def answer_once(*errors: tuple[str, str]) -> Fault:
    said = "".join(f"<Error><Key>{key}</Key><Code>{code}</Code><Message>m</Message></Error>" for key, code in errors)
    return Fault(200, body=f"<DeleteResult>{said}</DeleteResult>".encode())


def deletes(request: Request) -> bool:
    return request.method == "POST" and request.query == "delete"


def test_what_a_deletion_leaves_is_deleted_again(bucket: Bucket) -> None:
    ref = bucket.stored()
    bucket.fail(answer_once((bucket.settings.prefix + ref.uri, "SlowDown")), times=2, when=deletes)
    assert bucket.blobs.delete_all("job-1") == 1
    assert bucket.keys() == [MARKER]
    assert len(bucket.pauses) == 2


@pytest.mark.parametrize(("code", "told"), [("SlowDown", Unreachable), ("AccessDenied", ConfigError)])
def test_a_deletion_that_is_refused_in_part_is_none(bucket: Bucket, code: str, told: type[Exception]) -> None:
    """The status of the answer is 200. If it counted as success, the job would be retired and its graph would stay."""
    ref = bucket.stored()
    bucket.fail(answer_once((bucket.settings.prefix + ref.uri, code)), when=deletes)
    with pytest.raises(told):
        bucket.blobs.delete_all("job-1")
    assert bool(bucket.pauses) is (told is Unreachable)  # no backoff for an error that waiting can't fix


def test_what_a_killed_submitter_has_uploaded_goes_with_the_job(bucket: Bucket) -> None:
    named = {"Bucket": bucket.settings.bucket, "Key": f"{bucket.settings.prefix}graphs/job-1/{'a' * 64}"}
    upload_id = bucket.direct.create_multipart_upload(**named)["UploadId"]
    bucket.direct.upload_part(**named, UploadId=upload_id, PartNumber=1, Body=b"half")
    other = bucket.direct.create_multipart_upload(**{**named, "Key": named["Key"].replace("job-1", "job-10")})
    assert bucket.blobs.delete_all("job-1") == 0
    assert bucket.uploads() == [other["Key"]]


# -- refusals, and other servers
# ---------------------------------------------------------------------------------------------


@call
@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "ExpiredToken"])
def test_a_refusal_is_a_matter_of_settings_and_names_the_rights(bucket: Bucket, name: str, code: str) -> None:
    """Without the right to list, S3 answers 403 for a missing object. That must not count as a missing graph."""
    ref = bucket.stored()
    bucket.fail(Fault(403, code))
    with pytest.raises(ConfigError) as raised:
        CALLS[name](bucket, ref)
    assert "s3:GetObject" in raised.value.hint
    assert "s3:ListBucket" in raised.value.hint


@call
def test_a_bucket_that_is_not_there_is_a_matter_of_settings(bucket: Bucket, name: str) -> None:
    ref = bucket.stored()
    bucket.blobs = S3Blobs(replace(bucket.settings, bucket="no-such-bucket"))
    with pytest.raises(ConfigError, match="no bucket of s3://no-such-bucket") as raised:
        CALLS[name](bucket, ref)
    assert "blobs.bucket" in raised.value.hint


@call
def test_a_store_without_conditional_writes_is_told(bucket: Bucket, name: str) -> None:
    ref = bucket.stored()
    bucket.fail(Fault(501, "NotImplemented"))
    with pytest.raises(ConfigError, match="does not support it"):
        CALLS[name](bucket, ref)


@call
def test_without_credentials_nothing_is_asked(bucket: Bucket, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = bucket.stored()
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", *NOT_SET):
        monkeypatch.delenv(variable, raising=False)
    bucket.blobs = S3Blobs(bucket.settings)
    with pytest.raises(ConfigError, match="credentials") as raised:
        CALLS[name](bucket, ref)
    assert "~/.aws" in raised.value.hint
    assert bucket.proxy.seen == []


def test_a_wrong_prefix_is_no_missing_graph(bucket: Bucket) -> None:
    """A job must wait until the setting is corrected, and must not be abandoned."""
    ref = bucket.stored()
    elsewhere = S3Blobs(replace(bucket.settings, prefix=f"{bucket.settings.prefix}other/"))
    for ask in (lambda: elsewhere.fetch(ref, bucket.folder / "target"), lambda: elsewhere.exists(ref)):
        with pytest.raises(Unreachable, match=MARKER):
            ask()
    elsewhere.put("job-9", bucket.source(b"any"))
    assert not elsewhere.exists(ref)
    with pytest.raises(PermanentError, match="missing"):
        elsewhere.fetch(ref, bucket.folder / "target")


def test_a_store_can_be_copied(bucket: Bucket) -> None:
    ref = bucket.stored()
    there = replace(bucket.settings, prefix=f"{bucket.settings.prefix}copy/")
    for key in (ref.uri, MARKER):
        source = {"Bucket": there.bucket, "Key": bucket.settings.prefix + key}
        bucket.direct.copy_object(Bucket=there.bucket, Key=there.prefix + key, CopySource=source)
    S3Blobs(there).fetch(ref, bucket.folder / "target")
    assert (bucket.folder / "target").read_bytes() == SMALL


# -- requests
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["whole", "in parts"])
def test_what_is_stored_is_stored_encrypted(bucket: Bucket, data: bytes) -> None:
    bucket.blobs = S3Blobs(replace(bucket.settings, sse="aws:kms", sse_kms_key_id="our-key"))
    ref = bucket.blobs.put("job-1", bucket.source(data))
    made = [r for r in bucket.proxy.seen if puts(r) or r.query == "uploads"]
    assert len(made) == 2  # the graph and the marker
    for request in made:
        assert request.headers["x-amz-server-side-encryption"] == "aws:kms"
        assert request.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "our-key"
    bucket.proxy.seen.clear()
    bucket.blobs.fetch(ref, bucket.folder / "target")
    assert not any(name.startswith("x-amz-server-side") for r in bucket.proxy.seen for name in r.headers)


@pytest.mark.parametrize(
    ("endpoint_url", "path_style", "url"),
    [
        ("https://s3.example", True, "https://s3.example/bucket/k"),
        ("https://s3.example", False, "https://bucket.s3.example/k"),
        ("https://s3.example", None, "https://s3.example/bucket/k"),
        (None, True, "https://s3.eu-west-1.amazonaws.com/bucket/k"),
        (None, None, "https://bucket.s3.eu-west-1.amazonaws.com/k"),
    ],
)
def test_the_bucket_stands_where_the_store_wants_it(
    s3_credentials: None, endpoint_url: str | None, path_style: bool | None, url: str
) -> None:
    settings = S3Settings("bucket", endpoint_url=endpoint_url, region="eu-west-1", path_style=path_style)

    class Asked(Exception):
        pass

    def ask_nobody(request: Any, **_: object) -> None:
        raise Asked(request.url)

    made = connect(settings)
    made.meta.events.register("before-send.s3", ask_nobody)
    with pytest.raises(Asked) as asked:
        made.get_object(Bucket="bucket", Key="k")
    assert str(asked.value) == url


def test_what_is_sent_is_checked_by_the_store(bucket: Bucket) -> None:
    """The digest of every body is part of the signature. No store needs to support newer checksums."""
    bucket.stored(LARGE)
    bucket.blobs.put("job-2", bucket.source(LARGE))
    sent = [r for r in bucket.proxy.seen if r.method == "PUT"]
    assert len(sent) == 2
    for request in sent:
        assert len(request.headers["x-amz-content-sha256"]) == 64
        assert "x-amz-content-sha256" in request.headers["authorization"]
        assert not [name for name in request.headers if name.startswith(("x-amz-checksum", "x-amz-trailer"))]


def test_credentials_are_told_nobody(
    bucket: Bucket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "the-token-of-a-session"
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    told = []
    with caplog.at_level(logging.DEBUG):
        bucket.blobs = S3Blobs(bucket.settings)
        ref = bucket.stored()
        for fault in (Fault(403, "SignatureDoesNotMatch"), Fault(500, "InternalError"), Fault(400, "ExpiredToken")):
            bucket.fail(fault)
            for one in CALLS.values():
                with pytest.raises((ConfigError, Unreachable)) as raised:
                    one(bucket, ref)
                told.append(f"{raised.value} {raised.value.hint}")
    assert all(token in r.headers["x-amz-security-token"] for r in bucket.proxy.seen)  # the credentials were used
    for secret in (token, PASSWORD, USER):
        assert [text for text in [caplog.text, *told] if secret in text] == []


def test_nothing_is_connected_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tasks of a reconciler need no graph, and each task has a process of its own."""

    def never(settings: Any) -> Any:
        raise AssertionError("connected")

    monkeypatch.setattr(client, "connect", never)
    blobs = S3Blobs(S3Settings("b"))
    with pytest.raises(AssertionError):
        blobs.exists(GraphRef(f"graphs/j/{'a' * 64}", "a" * 64, 1))


# -- listings for garbage collection -----------------------------------------------------------------------------------


def test_a_put_of_what_is_old_puts_it_again_and_so_makes_it_young(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = bucket.stored()
    assert bucket.blobs.put("job-1", bucket.source()) == ref
    assert [request for request in bucket.proxy.seen if puts(request)][1:] == [], "a young object is not put again"
    bucket.proxy.seen.clear()
    monkeypatch.setattr(module, "AGE_OFF_S", -1.0)
    assert bucket.blobs.put("job-1", bucket.source()) == ref
    assert len([request for request in bucket.proxy.seen if puts(request)]) == 2, (
        "the first one is refused, the second one is conditional"
    )


def test_uploads_that_did_not_come_to_their_end_are_listed_and_can_be_ended(bucket: Bucket) -> None:
    ref = bucket.stored()
    key = f"{bucket.settings.prefix}graphs/job-2/{'0' * 64}"
    bucket.direct.create_multipart_upload(Bucket=bucket.settings.bucket, Key=key)
    (left,) = [blob for blob in bucket.blobs.listing() if blob.unfinished]
    assert (left.job_id, left.sha256) == ("job-2", "0" * 64) and left.age_s >= 0
    assert bucket.uploads() == [key]
    assert bucket.blobs.delete(left) and bucket.uploads() == [] and bucket.blobs.delete(left)
    assert [blob.uri for blob in bucket.blobs.listing()] == [ref.uri]


def test_of_another_bucket_there_is_no_listing(bucket: Bucket) -> None:
    """Without the marker nothing can be judged as garbage."""
    bucket.stored()
    elsewhere = S3Blobs(replace(bucket.settings, prefix=f"{bucket.settings.prefix}elsewhere/"))
    with pytest.raises(Unreachable, match=MARKER):
        elsewhere.listing()


def test_what_is_not_ours_is_not_listed(bucket: Bucket) -> None:
    ref = bucket.stored()
    for name in ("graphs/notes", "graphs/job-1/notes.txt", "graphs/a/b/" + "0" * 64, "other/job-1/" + "0" * 64):
        bucket.direct.put_object(Bucket=bucket.settings.bucket, Key=bucket.settings.prefix + name, Body=b"x")
    assert [blob.uri for blob in bucket.blobs.listing()] == [ref.uri]


def test_age_counts_by_the_clock_of_the_store() -> None:
    """The machine's clock says 2026: by that clock an object put a minute ago would be years old, or from the
    future."""
    answer = {"ResponseMetadata": {"HTTPHeaders": {"date": "Thu, 01 Jan 2015 00:01:00 GMT"}}}
    put_at = datetime(2015, 1, 1, tzinfo=UTC)
    assert client.age_s(put_at, answer) == 60.0
    assert client.age_s(put_at + timedelta(hours=1), answer) == 0.0, "an object from the future has the age 0"


# -- the objects of an archive -----------------------------------------------------------------------------------------


def test_an_object_whose_creation_met_another_has_no_creator_yet(bucket: Bucket) -> None:
    """409 means that another request was in progress: it is open which one created the object, so the caller
    retries."""
    objects = S3Objects(bucket.settings)
    bucket.fail(Fault(409, "ConditionalRequestConflict"), when=puts)
    with pytest.raises(Unreachable):
        objects.create("one", b"1")
    bucket.proxy.plan = lambda request: None
    assert objects.create("one", b"1")


def test_an_object_that_is_forbidden_is_not_taken_for_missing(bucket: Bucket) -> None:
    objects = S3Objects(bucket.settings)
    objects.create("one", b"1")
    bucket.fail(Fault(403, "AccessDenied"))
    for look in (objects.stat, objects.read):
        with pytest.raises(ConfigError):
            look("one")


def test_an_object_whose_answer_breaks_off_is_read_anew(bucket: Bucket) -> None:
    objects = S3Objects(bucket.settings)
    objects.create("one", SMALL)
    bucket.fail(Fault(cut_to=20_000), times=1, when=reads)
    assert objects.read("one") == SMALL
    bucket.fail(Fault(cut_to=20_000), when=reads)
    with pytest.raises(Unreachable):
        objects.read("one")
