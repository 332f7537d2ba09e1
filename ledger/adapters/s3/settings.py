"""Which bucket, and how it is spoken to."""

from __future__ import annotations

from dataclasses import dataclass

PARTS_MAX = 10_000  # of one upload; S3's own limit
PART_BYTES_MIN = 5 << 20  # of every part but the last; S3's own limit


@dataclass(frozen=True, slots=True)
class S3Settings:
    """No credentials: these come by boto3's own chain. prefix: before every key, empty or with a `/` at its end.
    endpoint_url, region: None = as boto3 finds them. part_bytes: from this size on a graph is uploaded in parts of it.
    attempts_max: of one request, the first included. path_style: the bucket in the path (True), in
    the host's name (False), or as boto3 finds it (None)."""

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
        """What is said of it when an object is made. Reading takes nothing: the store knows."""
        said = {"ServerSideEncryption": self.sse, "SSEKMSKeyId": self.sse_kms_key_id}
        return {name: value for name, value in said.items() if value}

    def part_size_bytes(self, size_bytes: int) -> int:
        """Bytes of one part of a graph of that size: larger than `part_bytes` only where there would be too many."""
        return max(self.part_bytes, -(-size_bytes // PARTS_MAX))
