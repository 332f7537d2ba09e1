"""Uploads of a graph that succeed only while nobody else has put it, in one request or in parts."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ledger.adapters.s3.client import code_of, gone, status_of
from ledger.adapters.s3.settings import S3Settings
from ledger.core.model.facts import GraphRef
from ledger.errors import UsageError

log = logging.getLogger(__name__)

_MET = frozenset({"InvalidPart", "NoSuchUpload"})

#: The condition of a first put. For mending a damaged one it is {"IfMatch": its etag}.
NEW: Mapping[str, str] = {"IfNoneMatch": "*"}


def upload(client: Any, settings: S3Settings, key: str, source: Path, ref: GraphRef, condition: Mapping[str, str]) -> bool:
    """Whether the bytes of `ref` were put under `key`; False if somebody else was there first, or came in between: look
    what is there now. A request that was answered by nobody and sent again meets itself, and that is False too.

    Raises: UsageError if the file is not what it was when `ref` was made of it; as boto3. Nothing is left then."""
    try:
        if ref.size < settings.part_bytes:
            data = source.read_bytes()
            _must_be(hashlib.sha256(data).hexdigest(), source, ref)
            client.put_object(Bucket=settings.bucket, Key=key, Body=data, **settings.encryption, **condition)
        else:
            _in_parts(client, settings, key, source, ref, condition)
    except ClientError as error:
        if _met_another(error):
            log.debug("%s was put or deleted by another meanwhile: %s", key, error)
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
        # Parts that nobody asks for cost money until somebody removes them. If this fails too: `delete_all`, or the
        # bucket's lifecycle rule.
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
    """412: there is one, or it is not the one that was to be replaced. 409: another request on it was under way, whatever
    the store calls that (ConditionalRequestConflict; versitygw, whose objects are files, also ExistingObjectIsDirectory).
    No such upload, or a part missing: `delete_all` ended it, or our own completing of it was done and its answer lost."""
    return status_of(error) in (409, 412) or code_of(error) in _MET or gone(error)
