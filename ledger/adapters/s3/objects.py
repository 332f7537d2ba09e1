"""An object store in a bucket: `<prefix><name>`."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from ledger.adapters.s3.client import BROKEN, Connection, age_s, is_not_found, status_of, translate_errors
from ledger.adapters.s3.settings import S3Settings
from ledger.adapters.s3.upload import NEW
from ledger.archive.format.objects import ObjectStat, check_name, check_prefix, check_size, is_name

_TRIES = 3


class S3Objects:
    """Implements `archive.format.objects.ObjectStore` in a bucket. Several threads may share it; a forked child must
    create its own store.

    Each object takes one request: objects of an archive have some megabytes at most."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings, self._connection = settings, Connection(settings)
        self._where = f"s3://{settings.bucket}/{settings.prefix}"

    def create(self, name: str, data: bytes) -> bool:
        key = self._settings.prefix + check_name(name)
        with translate_errors(f"create {name}", self._where):
            try:
                self._client.put_object(
                    Bucket=self._settings.bucket, Key=key, Body=data, **self._settings.encryption, **NEW
                )
            except ClientError as error:
                if status_of(error) != 412:  # 409: a concurrent create is undecided; Unreachable, so the caller retries
                    raise
                return False
        return True

    def read(self, name: str) -> bytes | None:
        key = self._settings.prefix + check_name(name)
        with translate_errors(f"read {name}", self._where):
            for left in reversed(range(_TRIES)):
                try:
                    found = self._client.get_object(Bucket=self._settings.bucket, Key=key)
                    check_size(name, found["ContentLength"])
                    data: bytes = found["Body"].read()
                    return data
                except ClientError as error:
                    if not is_not_found(error):
                        raise
                    return None
                except BROKEN:  # in the middle of the body: boto3 retries requests, but does not resume a body
                    if not left:
                        raise
        raise AssertionError

    def stat(self, name: str) -> ObjectStat | None:
        key = self._settings.prefix + check_name(name)
        with translate_errors(f"look at {name}", self._where):
            try:
                found = self._client.head_object(Bucket=self._settings.bucket, Key=key)
            except ClientError as error:
                if status_of(error) != 404:
                    raise
                return None
        return ObjectStat(found["ContentLength"], age_s(found["LastModified"], found))

    def delete(self, name: str) -> None:
        key = self._settings.prefix + check_name(name)
        with translate_errors(f"delete {name}", self._where):
            try:
                self._client.delete_object(Bucket=self._settings.bucket, Key=key)
            except ClientError as error:
                if not is_not_found(error):
                    raise

    def names(self, prefix: str) -> list[str]:
        before = self._settings.prefix
        with translate_errors(f"list {prefix or 'all'}", self._where):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._settings.bucket, Prefix=before + check_prefix(prefix)
            )
            found = (one["Key"].removeprefix(before) for page in pages for one in page.get("Contents", ()))
            return sorted(filter(is_name, found))

    @property
    def _client(self) -> Any:
        return self._connection.client
