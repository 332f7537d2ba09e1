"""The settings of a bucket and of the connection to it."""

from __future__ import annotations

from dataclasses import dataclass

PARTS_MAX = 10_000  # S3's limit of parts for one upload
PART_BYTES_MIN = 5 << 20  # S3's least size of a part, except for the last one


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Settings of one store, without credentials: boto3 finds credentials itself.

    prefix: precedes every key; empty, or with a `/` at its end. endpoint_url, region: None = boto3's own configuration.
    part_bytes: graphs of at least this size are uploaded in parts of this size. attempts_max: attempts of one request,
    the first included. path_style: the bucket is in the URL's path (True), in the host name (False), or as boto3
    decides (None)."""

    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str | None = None
    path_style: bool | None = None
    sse: str = ""
    sse_kms_key_id: str = ""
    part_bytes: int = 16 << 20
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 8.0
    attempts_max: int = 3

    @property
    def encryption(self) -> dict[str, str]:
        """The encryption arguments for requests that create objects. Requests that read need none: the store knows the
        arguments."""
        said = {"ServerSideEncryption": self.sse, "SSEKMSKeyId": self.sse_kms_key_id}
        return {name: value for name, value in said.items() if value}

    def part_size_bytes(self, size_bytes: int) -> int:
        """The part size, in bytes, for a graph of this size: `part_bytes`, or more if there would be too many parts."""
        return max(self.part_bytes, -(-size_bytes // PARTS_MAX))
