"""Uploads a graph on a condition, in one request or in parts: the upload succeeds only if no other process has put the
graph."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ledger.adapters.s3.client import code_of, is_not_found, status_of
from ledger.adapters.s3.settings import S3Settings
from ledger.core.model.facts import GraphRef
from ledger.errors import UsageError

log = logging.getLogger(__name__)

_MET = frozenset({"InvalidPart", "NoSuchUpload"})

#: The condition of a first put. To replace a damaged object it is {"IfMatch": its ETag}.
NEW: Mapping[str, str] = {"IfNoneMatch": "*"}


def upload(client: Any, settings: S3Settings, key: str, source: Path, ref: GraphRef, condition: Mapping[str, str]) -> bool:
    """Puts the bytes of `ref` under `key` and returns True. False if another process put or deleted the object first or
    meanwhile: then check the object that exists now. A retried request whose first answer was lost conflicts with
    itself, and that returns False too.

    Raises: UsageError if the file changed after `ref` was made from it; boto3's errors. An error leaves no object, and
    no parts unless the abort fails too."""
    try:
        if ref.size < settings.part_bytes:
            data = source.read_bytes()
            _must_be(hashlib.sha256(data).hexdigest(), source, ref)
            client.put_object(Bucket=settings.bucket, Key=key, Body=data, **settings.encryption, **condition)
        else:
            _in_parts(client, settings, key, source, ref, condition)
    except ClientError as error:
        if _met_another(error):
            log.debug("object_changed_meanwhile", extra={"key": key, "reason": str(error)})
            return False
        raise
    return True


def _in_parts(
    client: Any, settings: S3Settings, key: str, source: Path, ref: GraphRef, condition: Mapping[str, str]
) -> None:
    named = {"Bucket": settings.bucket, "Key": key}
    named["UploadId"] = client.create_multipart_upload(**named, **settings.encryption)["UploadId"]
    try:
        digest, parts = hashlib.sha256(), []
        for number, data in enumerate(_pieces(source, settings.part_size_bytes(ref.size)), start=1):
            digest.update(data)
            etag = client.upload_part(**named, PartNumber=number, Body=data)["ETag"]
            parts.append({"PartNumber": number, "ETag": etag})
        _must_be(digest.hexdigest(), source, ref)
        client.complete_multipart_upload(**named, MultipartUpload={"Parts": parts}, **condition)
    except BaseException:
        # Parts of an unfinished upload cost money until they are removed. If this abort fails too, `delete_all` or the
        # bucket's lifecycle rule removes them.
        with suppress(ClientError, BotoCoreError):
            client.abort_multipart_upload(**named)
        raise


def _pieces(source: Path, size_bytes: int) -> Iterator[bytes]:
    with source.open("rb") as file:
        while data := file.read(size_bytes):
            yield data


def _must_be(sha256: str, source: Path, ref: GraphRef) -> None:
    if sha256 != ref.sha256:
        raise UsageError(f"{source} changed while it was stored.", hint="Store it again.")


def _met_another(error: ClientError) -> bool:
    """Whether the error means that another process put or deleted the object.

    412: an object exists, or it is not the one to be replaced. 409: another request on the key was in progress,
    whatever code the store uses (ConditionalRequestConflict; versitygw, whose objects are files, also
    ExistingObjectIsDirectory). NoSuchUpload, InvalidPart, or not found: `delete_all` aborted the upload, or our own
    request completed it but its answer was lost."""
    return status_of(error) in (409, 412) or code_of(error) in _MET or is_not_found(error)
