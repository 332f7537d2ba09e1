"""From the settings to the bucket that holds the graphs, or the archive. Nothing here opens a connection."""

from __future__ import annotations

from urllib.parse import urlsplit

from ledger.adapters.s3.settings import S3Settings
from ledger.config.settings import BucketSection
from ledger.errors import ConfigError


def s3_settings(given: BucketSection, section: str) -> S3Settings:
    """section: what its settings are called by. Raises: ConfigError if a setting is missing or can't be."""
    if not given.bucket:
        hint = f"Set LEDGER_{section.upper()}__BUCKET=NAME"
        raise ConfigError(f"{section}.adapter is s3, but nothing says which bucket.", hint=hint)
    if given.endpoint_url is not None:
        _check_endpoint(given.endpoint_url, section)
    if given.sse_kms_key_id and not given.sse.startswith("aws:kms"):
        raise ConfigError(f"{section}.sse_kms_key_id takes {section}.sse = aws:kms or aws:kms:dsse.")
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
    """The message has no url in it: one with a password must not be told further."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        raise ConfigError(f"{section}.endpoint_url can't be: it is http://host:port or https://host:port.")
    if "@" in parts.netloc:
        hint = "Credentials come as boto3 finds them: environment, ~/.aws, the role of the machine."
        raise ConfigError(f"{section}.endpoint_url holds a user or password.", hint=hint)
