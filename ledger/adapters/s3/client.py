"""The client of S3, and what its errors mean.

What is refused or not found in general (credentials, rights, bucket) is a ConfigError, whatever was asked for: it says
nothing about a graph, so jobs wait for whoever mends it. What may pass by itself is Unreachable. Whether a graph is
missing or damaged is judged by `blobs`, never here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache, cached_property
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as NotConnected

from ledger._version import __version__
from ledger.adapters.s3.settings import S3Settings
from ledger.errors import ConfigError, LedgerError, Unreachable

RIGHTS = (
    "s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on its objects, s3:ListBucket and "
    "s3:ListBucketMultipartUploads on the bucket"
)
#: Answers with a status of "your fault" that are nobody's: the request was cut short or damaged on its way, came too
#: late, or met another one.
_PASSING = frozenset({
    "BadDigest", "ConditionalRequestConflict", "IncompleteBody", "InternalError", "OperationAborted", "RequestTimeout",
    "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "XAmzContentSHA256Mismatch",
})  # fmt: skip
_GONE = frozenset({"404", "NoSuchKey", "NotFound"})
_DENIED = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})  # of status 400; those of 401 and 403 besides
_ADDRESSING = {None: "auto", True: "path", False: "virtual"}

#: What a request, or a read of its answer's body, raises when the connection fails under it.
BROKEN = (NotConnected, HTTPClientError, IncompleteReadError)

for _name in ("boto3", "botocore"):  # at level debug they log every header, that of a session's token among them
    logging.getLogger(_name).setLevel(logging.WARNING)


def connect(settings: S3Settings) -> Any:
    """A client; no connection is made yet. It may be used by several threads, but not by a forked child.

    Raises: ConfigError if boto3 does not take the settings or those of its own files and variables."""
    config = Config(
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": settings.attempts_max},
        s3={"addressing_style": _ADDRESSING[settings.path_style]},
        # Our own digest says what a graph is. Without a checksum of boto3's the body's SHA-256 is part of the signature,
        # so the store checks what it receives; and stores that know no trailing checksums are content.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra=f"jobledger/{__version__}",
    )
    try:
        return _session().client("s3", region_name=settings.region, endpoint_url=settings.endpoint_url, config=config)
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(f"boto3 does not take the settings of the blob store: {error}") from error


class Connection:
    """The client of one store: made at its first use, once, whichever thread comes first."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings, self._making = settings, threading.Lock()

    @property
    def client(self) -> Any:
        """Raises: as `connect`."""
        with self._making:
            return self._connected

    @cached_property
    def _connected(self) -> Any:
        return connect(self._settings)


def preload() -> None:
    """Reads what boto3 knows of S3, a fifth of a second, so that forked children have it. Asks for no credentials."""
    _session().client("s3", region_name="us-east-1", aws_access_key_id="nobody", aws_secret_access_key="nothing")  # noqa: S106


def _session() -> Any:
    core = botocore.session.get_session()
    core.register_component("data_loader", _models())
    return boto3.session.Session(botocore_session=core)


@cache
def _models() -> Any:
    """boto3's descriptions of services, parsed once in a process; sessions only read them."""
    return botocore.session.get_session().get_component("data_loader")


def code_of(error: ClientError) -> str:
    """What S3 calls the error; the status where the answer had no body (HEAD)."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def gone(error: ClientError) -> bool:
    """There is no such object (or, by HEAD, no such bucket)."""
    return code_of(error) in _GONE


def passing(error: ClientError) -> bool:
    """The same request may go well a moment later."""
    status = status_of(error)
    return code_of(error) in _PASSING or status == 429 or (status >= 500 and status != 501)


@contextmanager
def told(doing: str, where: str) -> Iterator[None]:
    """Around calls of the client and the files beside it. where: the store, for people.

    Raises: ConfigError, Unreachable."""
    try:
        yield
    except ClientError as error:
        raise _judged(error, doing, where) from error
    except BROKEN as error:
        raise Unreachable(f"Can't {doing}: {where} did not answer: {error}") from error
    except BotoCoreError as error:
        hint = "See: jobledger config show. Credentials come from the environment, ~/.aws or the role of the machine."
        raise ConfigError(f"Can't {doing}: {error}", hint=hint) from error
    except OSError as error:
        raise Unreachable(f"Can't {doing}: {error}") from error


def _judged(error: ClientError, doing: str, where: str) -> LedgerError:
    code, message = code_of(error), str(error)[:500]
    if passing(error):
        return Unreachable(f"Can't {doing}: {where} answers with {message}")
    if code == "NoSuchBucket":
        hint = "Make the bucket, or correct blobs.bucket."
        return ConfigError(f"Can't {doing}: there is no bucket of {where}.", hint=hint)
    if code in _DENIED or status_of(error) in (401, 403):
        hint = f"Needed for {where}: {RIGHTS}; with a key of KMS also kms:GenerateDataKey and kms:Decrypt."
        return ConfigError(f"Can't {doing}: {where} refuses us: {message}", hint=hint)
    if code == "NotImplemented" or status_of(error) == 501:
        hint = "It must know conditional writes (If-None-Match) and uploads in parts."
        return ConfigError(f"Can't {doing}: {where} does not know how: {message}", hint=hint)
    return ConfigError(f"Can't {doing}: {where} answers with {message}", hint="See: jobledger config show --sources")


def age_s(since: datetime, answer: Mapping[str, Any]) -> float:
    """By the store's own clock: every answer says what time it is there."""
    told_at = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = parsedate_to_datetime(told_at).timestamp() if told_at else time.time()
    return max(0.0, now - since.timestamp())
