"""Today's code decodes recorded values of every schema version, so old records stay readable for ever."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger.adapters import cloudevents
from ledger.adapters.avro import decode, encode
from tests.schemas.examples import plain
from tests.schemas.golden.write import DIGESTS, digest_line
from tests.schemas.versions import ALL, EVERY, GOLDEN, KIND_OF, Version, name_of


def recorded(version: Version) -> tuple[bytes, dict[str, Any]]:
    path = GOLDEN / f"{name_of(version)}.bin"
    return path.read_bytes(), json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def test_every_version_has_a_recorded_value_and_no_other_has() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.bin")) == sorted(map(name_of, EVERY))


@pytest.mark.parametrize("version", EVERY, ids=name_of)
def test_a_recorded_value_still_says_the_same(version: Version) -> None:
    """Fields that were added later have their defaults."""
    value, meant = recorded(version)
    now = plain(decode(KIND_OF[version.fact], value))
    later = {f["name"]: f["default"] for f in ALL[version.fact][-1].schema["fields"] if f["name"] not in meant}
    assert _without_later(now, meant) == meant
    assert {name: now[name] for name in later} == later


def _without_later(now: Any, meant: Any) -> Any:
    """`now` without fields that were added later (also in nested records), for the comparison with the recorded
    meaning."""
    if isinstance(now, dict) and isinstance(meant, dict):
        return {key: _without_later(value, meant[key]) for key, value in now.items() if key in meant}
    return now


@pytest.mark.parametrize("version", EVERY, ids=name_of)
def test_what_was_written_once_is_written_again_byte_for_byte(version: Version) -> None:
    """A spec's digest is its name, and a resend of an event has the same bytes. No release may change either, even if it
    has newer schema versions."""
    value, _ = recorded(version)
    assert encode(decode(KIND_OF[version.fact], value)) == value


def test_no_schema_file_is_ever_edited() -> None:
    """This includes docs and defaults, which the fingerprint does not cover."""
    recorded_digests = sorted(DIGESTS.read_text(encoding="utf-8").splitlines())
    assert recorded_digests == sorted(map(digest_line, EVERY))


def test_headers_are_as_recorded() -> None:
    for case in json.loads((GOLDEN / "headers.json").read_text(encoding="utf-8")):
        written = cloudevents.headers(case["fact"], **case["arguments"])
        assert [[name, value.decode()] for name, value in written] == case["headers"]
