"""Derives the settings of a bucket, for graphs or the archive, from the ledger's settings. Opens no connection."""

from __future__ import annotations

from urllib.parse import urlsplit

from ledger.adapters.s3.settings import S3Settings
from ledger.config.settings import BucketSection
from ledger.errors import ConfigError


def s3_settings(given: BucketSection, section: str) -> S3Settings:
    """The settings of a bucket. section: the name of the settings section that `given` comes from, for error messages.
    Raises: ConfigError if a setting is missing or invalid."""
    if not given.bucket:
        hint = f"Set LEDGER_{section.upper()}__BUCKET=NAME"
        raise ConfigError(f"{section}.adapter is s3, but {section}.bucket is not set.", hint=hint)
    if given.endpoint_url is not None:
        _check_endpoint(given.endpoint_url, section)
    if given.sse_kms_key_id and not given.sse.startswith("aws:kms"):
        raise ConfigError(f"{section}.sse_kms_key_id needs {section}.sse = aws:kms or aws:kms:dsse.")
    return S3Settings(
        bucket=given.bucket,
        prefix=given.prefix and given.prefix.rstrip("/") + "/",
        endpoint_url=given.endpoint_url,
        region=given.region,
        path_style=given.path_style,
        sse=given.sse,
        sse_kms_key_id=given.sse_kms_key_id,
        part_bytes=given.part_bytes,
        connect_timeout_s=given.connect_timeout_s,
        read_timeout_s=given.read_timeout_s,
        attempts_max=given.attempts_max,
    )


def _check_endpoint(url: str, section: str) -> None:
    """Checks a url. The error does not contain the url, because it may contain a password.

    Raises: ConfigError."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        raise ConfigError(f"{section}.endpoint_url is invalid: it must be http://host:port or https://host:port.")
    if "@" in parts.netloc:
        hint = "boto3 finds the credentials: in the environment, in ~/.aws, or by the role of the machine."
        raise ConfigError(f"{section}.endpoint_url contains a user or password.", hint=hint)
