"""A blob store in a bucket: `<prefix>graphs/<job_id>/<sha256>`."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from ledger.adapters.blobs import CHUNK_BYTES, BlobName, check_job_id, checked, chunks_of, intact, is_digest, name_of
from ledger.adapters.s3.client import BROKEN, Connection, age_s, code_of, is_not_found, passing, translate_errors
from ledger.adapters.s3.settings import S3Settings
from ledger.adapters.s3.upload import NEW, upload
from ledger.core.garbage import AGE_OFF_S
from ledger.core.model.facts import GraphRef
from ledger.core.model.registers import is_job_id
from ledger.errors import PermanentError, Unreachable, UsageError
from ledger.ports import StoredBlob
from ledger.util.files import spool, sync_folder

#: An object beside `graphs/` that the first put creates. It marks bucket and prefix as the store of a ledger. Like a
#: folder that is not mounted, a bucket without it is no evidence that a graph is missing.
MARKER = "ledger-blobs"
_SAYS = b"The job graphs of a ledger lie beside this object. Without it they count as not there at the moment.\n"
_TRIES = 6
_PAUSE_S = 0.1  # before the second try; doubled before each further try


class S3Blobs:
    """Implements `ports.BlobStore` in a bucket. A uri is relative to bucket and prefix, so graphs can be copied to
    another bucket.

    The store connects at its first call. Several threads may share it; a forked child must create its own store.
    Raises: besides the errors of the port, ConfigError if the bucket, the permissions or the credentials are wrong."""

    def __init__(self, settings: S3Settings, *, sleep: Callable[[float], object] = time.sleep) -> None:
        self._settings, self._sleep = settings, sleep
        self._where = f"s3://{settings.bucket}/{settings.prefix}"
        self._connection = Connection(settings)
        self._marked = False

    def put(self, job_id: str, source: Path) -> GraphRef:
        """Stores a file, and returns the reference to it. Raises: UsageError if job_id is not a job id, `source` does
        not exist, or the file changes meanwhile; Unreachable; ConfigError."""
        check_job_id(job_id)
        with translate_errors(f"put a graph of {job_id}", self._where):
            for _ in self._tries(_TRIES):
                if not source.is_file():
                    raise UsageError(f"There is no file {source} to store.")
                ref = _ref_of(job_id, source)
                self._mark()
                if self._new(ref, source) or self._is_intact_or_mended(ref, source):
                    return ref
        raise Unreachable(f"Others put or delete graphs of {job_id} in {self._where} again and again.", hint="Try again.")

    def fetch(self, ref: GraphRef, target: Path) -> None:
        name = name_of(ref)
        with translate_errors(f"fetch {ref.uri}", self._where):
            wrong: PermanentError | None = None
            broken: BaseException | None = None
            for _ in self._tries(max(2, self._settings.attempts_max)):
                try:
                    with closing(self._body(name)) as body:
                        chunks = checked(_read(body), ref)
                        temporary, _, _ = spool(chunks, target.parent, f".{target.name}.")
                except _Broken as error:
                    broken = error.__cause__
                except PermanentError as error:  # it quarantines the job: try twice, in case of a damaged transfer
                    if wrong is not None:
                        raise
                    wrong = error
                else:
                    temporary.replace(target)
                    sync_folder(target.parent)
                    return
            assert broken is not None  # of at least two tries, a second PermanentError is raised
            raise broken

    def exists(self, ref: GraphRef) -> bool:
        name = name_of(ref)
        with translate_errors(f"look for {ref.uri}", self._where):
            try:
                found = self._client.head_object(Bucket=self._settings.bucket, Key=self._key(name))
            except ClientError as error:
                if not is_not_found(error):
                    raise
                self._must_be_a_store()
                return False
            return bool(found["ContentLength"] == ref.size)

    def delete_all(self, job_id: str) -> int:
        prefix = f"{self._settings.prefix}graphs/{check_job_id(job_id)}/"
        with translate_errors(f"delete the graphs of {job_id}", self._where):
            self._end_uploads(prefix)
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._settings.bucket, Prefix=prefix)
            return sum(self._delete([one["Key"] for one in page.get("Contents", ())]) for page in pages)

    def listing(self) -> list[StoredBlob]:
        prefix = f"{self._settings.prefix}graphs/"
        with translate_errors("list the graphs", self._where):
            self._must_be_a_store()
            return [*self._blobs(prefix), *self._uploads(prefix)]

    def delete(self, blob: StoredBlob) -> bool:
        check_job_id(blob.job_id)
        if not is_digest(blob.sha256):
            raise UsageError(f"Not a blob of this store: {blob.uri[:300]!r}.")
        with translate_errors(f"delete {blob.uri}", self._where):
            key = f"{self._settings.prefix}graphs/{blob.job_id}/{blob.sha256}"
            if blob.unfinished:
                self._abort(key, blob.unfinished)
                return True
            try:
                found = self._client.head_object(Bucket=self._settings.bucket, Key=key)
            except ClientError as error:
                if not is_not_found(error):
                    raise
                self._must_be_a_store()
                return True
            if int(found["LastModified"].timestamp()) != int(blob.put_at):  # only listings have milliseconds
                return False
            self._delete([key])
            return True

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _new(self, ref: GraphRef, source: Path) -> bool:
        return upload(self._client, self._settings, self._key(name_of(ref)), source, ref, NEW)

    def _is_intact_or_mended(self, ref: GraphRef, source: Path) -> bool:
        """Handles a put that found an existing or competing object. Returns True if the object is intact, or was
        replaced by `source`. Returns False if there is no object now, or another put is still running: then put
        again."""
        key = self._key(name_of(ref))
        try:
            found = self._client.get_object(Bucket=self._settings.bucket, Key=key)
        except ClientError as error:
            if is_not_found(error):
                return False
            raise
        with closing(found["Body"]) as body:
            # An intact, recent object stays. An old one is put again: that resets its age, so garbage collection keeps
            # it.
            if intact(body.iter_chunks(CHUNK_BYTES), ref) and age_s(found["LastModified"], found) < AGE_OFF_S:
                return True
        return upload(self._client, self._settings, key, source, ref, {"IfMatch": found["ETag"]})

    def _body(self, name: BlobName) -> Any:
        """The body of a graph's object, to read from. Raises: PermanentError if there is no such object."""
        try:
            return self._client.get_object(Bucket=self._settings.bucket, Key=self._key(name))["Body"]
        except ClientError as error:
            if not is_not_found(error):
                raise
            self._must_be_a_store()
            raise PermanentError(f"Graph {name.uri} is missing in {self._where}.") from error

    def _delete(self, keys: list[str]) -> int:
        """Deletes at most 1000 objects and returns their number. A response with status 200 may still contain errors
        for some keys. "Not found" is no error: versitygw reports it if a request is repeated before the first is
        answered."""
        if not keys:
            return 0
        left = keys
        for _ in self._tries(_TRIES):
            wanted = {"Objects": [{"Key": key} for key in left], "Quiet": True}
            answer = self._client.delete_objects(Bucket=self._settings.bucket, Delete=wanted)
            reported = [ClientError({"Error": one}, "DeleteObjects") for one in answer.get("Errors", ())]
            errors = [error for error in reported if not is_not_found(error)]
            if not errors:
                return len(keys)
            if lasting := [error for error in errors if not passing(error)]:
                raise lasting[0]
            left = [error.response["Error"]["Key"] for error in errors]
        raise errors[0]

    def _end_uploads(self, prefix: str) -> None:
        """Aborts the unfinished uploads of killed submitters. A submitter that is alive notices the abort and starts
        again."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._settings.bucket, Prefix=prefix)
        for page in pages:
            for one in page.get("Uploads", ()):
                self._abort(one["Key"], one["UploadId"])

    def _abort(self, key: str, upload_id: str) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self._settings.bucket, Key=key, UploadId=upload_id)
        except ClientError as error:
            if code_of(error) != "NoSuchUpload":
                raise

    def _blobs(self, prefix: str) -> Iterator[StoredBlob]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._settings.bucket, Prefix=prefix)
        for page in pages:
            for one in page.get("Contents", ()):
                if name := _name_in(one["Key"], prefix):
                    at = one["LastModified"]
                    yield StoredBlob(*name, one["Size"], age_s(at, page), at.timestamp())

    def _uploads(self, prefix: str) -> Iterator[StoredBlob]:
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._settings.bucket, Prefix=prefix)
        for page in pages:
            for one in page.get("Uploads", ()):
                if name := _name_in(one["Key"], prefix):
                    at = one["Initiated"]
                    yield StoredBlob(*name, 0, age_s(at, page), at.timestamp(), one["UploadId"])

    def _mark(self) -> None:
        if not self._marked:
            key, encryption = self._settings.prefix + MARKER, self._settings.encryption
            try:
                self._client.put_object(Bucket=self._settings.bucket, Key=key, Body=_SAYS, **NEW, **encryption)
            except ClientError as error:
                if code_of(error) not in ("ConditionalRequestConflict", "PreconditionFailed"):
                    raise
            self._marked = True

    def _must_be_a_store(self) -> None:
        try:
            self._client.get_object(Bucket=self._settings.bucket, Key=self._settings.prefix + MARKER)["Body"].close()
        except ClientError as error:
            if not is_not_found(error):
                raise
            raise Unreachable(
                f"{self._where} is not the blob store of a ledger: there is no object {MARKER} in it.",
                hint="Correct blobs.bucket or blobs.prefix; or restore the store, including that object.",
            ) from error

    def _tries(self, number: int) -> Iterator[int]:
        for i in range(number):
            if i:
                self._sleep(_PAUSE_S * 2 ** (i - 1) * random.uniform(0.5, 1.5))
            yield i

    def _key(self, name: BlobName) -> str:
        return self._settings.prefix + name.uri

    @property
    def _client(self) -> Any:
        return self._connection.client


class _Broken(Exception):
    """The connection failed in the middle of a body. boto3 retries requests, but does not resume a body."""


def _read(body: Any) -> Iterator[bytes]:
    try:
        yield from body.iter_chunks(CHUNK_BYTES)
    except BROKEN as error:
        raise _Broken from error


def _name_in(key: str, prefix: str) -> BlobName | None:
    """The blob that an object's key names; None if the object does not belong to the store."""
    job_id, _, sha256 = key.removeprefix(prefix).partition("/")
    return BlobName(job_id, sha256) if is_job_id(job_id) and is_digest(sha256) else None


def _ref_of(job_id: str, source: Path) -> GraphRef:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks_of(source):
        digest.update(chunk)
        size += len(chunk)
    name = BlobName(job_id, digest.hexdigest())
    return GraphRef(name.uri, name.sha256, size)
