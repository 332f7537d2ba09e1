"""The S3 client, and the translation of its errors.

An error about credentials, permissions or the bucket is a ConfigError, whatever the request: it proves nothing about a
graph, so jobs wait until an operator corrects it. A transient error is Unreachable. Only `blobs` decides whether a
graph is missing or damaged.
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
#: Transient errors, although some have a 4xx status: the request was truncated or damaged in transit, came too late, or
#: conflicted with another request.
_PASSING = frozenset({
    "BadDigest", "ConditionalRequestConflict", "IncompleteBody", "InternalError", "OperationAborted", "RequestTimeout",
    "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "XAmzContentSHA256Mismatch",
})  # fmt: skip
_GONE = frozenset({"404", "NoSuchKey", "NotFound"})
_DENIED = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})  # status 400; 401 and 403 always deny
_ADDRESSING = {None: "auto", True: "path", False: "virtual"}

#: The errors of a request, or of reading a response's body, when the connection fails.
BROKEN = (NotConnected, HTTPClientError, IncompleteReadError)

for _name in ("boto3", "botocore"):  # at level debug they log every header, session tokens included
    logging.getLogger(_name).setLevel(logging.WARNING)


def connect(settings: S3Settings) -> Any:
    """A client that has not connected yet. Several threads may share it; a forked child must not use it.

    Raises: ConfigError if boto3 refuses our settings, or the settings in boto3's own files and environment variables.
    """
    config = Config(
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": settings.attempts_max},
        s3={"addressing_style": _ADDRESSING[settings.path_style]},
        # A graph's own digest identifies it. Without boto3's checksum, the signature covers the body's SHA-256, so the
        # store still verifies the received body. And some stores do not support trailing checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra=f"jobledger/{__version__}",
    )
    try:
        return _session().client("s3", region_name=settings.region, endpoint_url=settings.endpoint_url, config=config)
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(f"boto3 refuses the settings of the blob store: {error}") from error


class Connection:
    """Holds the client of one store. The client is created once, at its first use by any thread."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings, self._making = settings, threading.Lock()

    @property
    def client(self) -> Any:
        """The client of the store. Raises: ConfigError as `connect`."""
        with self._making:
            return self._connected

    @cached_property
    def _connected(self) -> Any:
        return connect(self._settings)


def preload() -> None:
    """Loads boto3's description of S3, which takes a fifth of a second, so that forked children inherit it. Needs no
    credentials."""
    _session().client("s3", region_name="us-east-1", aws_access_key_id="nobody", aws_secret_access_key="nothing")  # noqa: S106


def _session() -> Any:
    core = botocore.session.get_session()
    core.register_component("data_loader", _models())
    return boto3.session.Session(botocore_session=core)


@cache
def _models() -> Any:
    """boto3's loader of service descriptions. It parses each once per process; sessions only read them."""
    return botocore.session.get_session().get_component("data_loader")


def code_of(error: ClientError) -> str:
    """The error code that S3 gave; the HTTP status if the response had no body (HEAD)."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_not_found(error: ClientError) -> bool:
    """Whether the error means that there is no such object (or, for HEAD, no such bucket)."""
    return code_of(error) in _GONE


def passing(error: ClientError) -> bool:
    """Whether the error is transient: the same request may succeed a moment later."""
    status = status_of(error)
    return code_of(error) in _PASSING or status == 429 or (status >= 500 and status != 501)


@contextmanager
def translate_errors(doing: str, where: str) -> Iterator[None]:
    """Translates errors of the client, and of files, inside the `with` block. doing: the action, for the error's text.
    where: the name of the store, for people.

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
        hint = "Create the bucket, or correct blobs.bucket."
        return ConfigError(f"Can't {doing}: there is no bucket of {where}.", hint=hint)
    if code in _DENIED or status_of(error) in (401, 403):
        hint = f"Needed for {where}: {RIGHTS}; with a key of KMS also kms:GenerateDataKey and kms:Decrypt."
        return ConfigError(f"Can't {doing}: {where} refuses us: {message}", hint=hint)
    if code == "NotImplemented" or status_of(error) == 501:
        hint = "The store must support conditional writes (If-None-Match) and multipart uploads."
        return ConfigError(f"Can't {doing}: {where} does not support it: {message}", hint=hint)
    return ConfigError(f"Can't {doing}: {where} answers with {message}", hint="See: jobledger config show --sources")


def age_s(since: datetime, answer: Mapping[str, Any]) -> float:
    """Seconds since a moment, by the store's own clock. answer: a response of the store; its `date` header gives the
    time."""
    date_header = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = parsedate_to_datetime(date_header).timestamp() if date_header else time.time()
    return max(0.0, now - since.timestamp())
