"""Checks a proof of `jobledger audit prove` against an anchor, with nothing but the standard library.

usage: python check_proof.py PROOF.json ANCHOR   (the SHA-256 that was kept of a manifest at or above the record's)
"""

import json
import sys
from base64 import b64decode
from hashlib import sha256


def raw(text):
    return None if text is None else b64decode(text)


def sized(data):
    return b"\xff\xff\xff\xff" if data is None else len(data).to_bytes(4, "big") + data


def sha(data):
    return bytes(32) if data is None else sha256(data).digest()


def check(proof, anchor):
    record, index, size = proof["record"], proof["index"], proof["size"]
    numbers = b"".join(record[name].to_bytes(8, "big", signed=True) for name in ("offset", "timestamp_ms"))
    headers = b"".join(sized(name.encode()) + sized(raw(value)) for name, value in record["headers"])
    redacted = "value_sha256" in record  # then the value is gone, and its hash stands for it
    # Nothing may be shown beside what is proved: a value next to the hash of another one would be taken for proved.
    shown = {"offset", "timestamp_ms", "key", "value_sha256" if redacted else "value", "headers"}
    value = bytes.fromhex(record["value_sha256"]) if redacted else sha(raw(record["value"]))
    hashed = sha(b"\0" + numbers + sha(raw(record["key"])) + value + sha(headers))
    path = [bytes.fromhex(text) for text in proof["path"]]
    while size > 1:
        if index ^ 1 < size:
            hashed = sha(b"\1" + path.pop(0) + hashed) if index & 1 else sha(b"\1" + hashed + path.pop(0))
        index, size = index >> 1, (size + 1) >> 1
    hashes = [sha256(text.encode()).hexdigest() for text in proof["manifests"]]
    first, *later = map(json.loads, proof["manifests"])
    sealed = {"topic": proof["topic"], "partition": proof["partition"], "count": proof["size"], "root": hashed.hex()}
    linked = [manifest["previous"] for manifest in later] == hashes[:-1]
    whole = record.keys() == shown and proof["head"] == hashes[-1]
    return whole and not path and linked and anchor in hashes and {**first, **sealed} == first


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
            sound = check(json.load(file), sys.argv[2])
    except Exception as error:
        sys.exit(f"NOT PROVED: {sys.argv[1]} is no proof: {error!r}")
    print("proved" if sound else "NOT PROVED")  # noqa: T201
    sys.exit(0 if sound else 1)
