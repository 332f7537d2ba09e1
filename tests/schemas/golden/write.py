"""Adds the missing files for new schema versions to golden/: `python -m tests.schemas.golden.write`.

For each version it writes a value with its meaning, and the digest of the schema file. Existing files are never
overwritten: they represent the records in users' logs.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from ledger.adapters.avro import encode
from tests.schemas.examples import FULL, plain
from tests.schemas.versions import ALL, EVERY, GOLDEN, ROOT, Version, name_of, schema_path, snake

DIGESTS = GOLDEN / "schemas.sha256"


def main() -> None:
    for fact in FULL:
        version = ALL[snake(type(fact).__name__)][-1]
        path = GOLDEN / f"{name_of(version)}.bin"
        if not path.exists():
            path.write_bytes(encode(fact))
            Path(path.with_suffix(".json")).write_text(
                json.dumps(plain(fact), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
            print(f"written: {path.name}")
    known = DIGESTS.read_text(encoding="utf-8") if DIGESTS.exists() else ""
    new = [line for line in map(digest_line, EVERY) if line.split()[1] not in known]
    DIGESTS.write_text(known + "".join(f"{line}\n" for line in new), encoding="utf-8")


def digest_line(version: Version) -> str:
    """A line in the format of sha256sum, with the path from the root of the repository."""
    path = schema_path(version)
    return f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT).as_posix()}"


if __name__ == "__main__":
    main()
