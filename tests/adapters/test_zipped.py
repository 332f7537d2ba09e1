"""A damaged or altered zip of this project: reading gives the original content, nothing, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from ledger.adapters.local.zipped import ZipObjects
from ledger.errors import LedgerError, UsageError

OBJECTS = {"bundle.json": b"{}" * 50, "records/a": bytes(range(40))}
#: Values of compression methods that are not used, and values that look like sizes or offsets.
VALUES = [0, 1, 9, 12, 14, 99, 127, 254, 255]


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    with closing(ZipObjects(tmp_path / "whole.zip", new=True)) as store:
        for name, data in OBJECTS.items():
            store.create(name, data)
    return (tmp_path / "whole.zip").read_bytes()


def altered(whole: bytes, values: Mapping[int, int]) -> bytes:
    data = bytearray(whole)
    for at, value in values.items():
        data[at] = value
    return bytes(data)


def is_read_rightly_or_refused(file: Path, data: bytes) -> bool:
    """Whether reading was refused; checks that it otherwise returns the original content or nothing."""
    file.write_bytes(data)
    try:
        with closing(ZipObjects(file)) as store:
            assert all(store.read(name) in (None, data) for name, data in OBJECTS.items())
    except LedgerError as error:
        assert not str(error).endswith(": ."), "the error names a reason"
        return True
    return False


def test_one_byte_that_was_altered_is_no_error_of_ours(whole: bytes, tmp_path: Path) -> None:
    spoiled = [altered(whole, {at: value}) for at in range(len(whole)) for value in [*VALUES, whole[at] ^ 128]]
    assert sum(is_read_rightly_or_refused(tmp_path / "spoiled.zip", data) for data in spoiled) > len(spoiled) / 3


def test_a_zip_that_is_there_is_not_written_over(whole: bytes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is there already"):
        ZipObjects(tmp_path / "whole.zip", new=True)
    assert (tmp_path / "whole.zip").read_bytes() == whole


def test_a_zip_that_was_cut_off_is_refused(whole: bytes, tmp_path: Path) -> None:
    assert all(is_read_rightly_or_refused(tmp_path / "cut.zip", whole[:size]) for size in range(len(whole)))


@pytest.mark.parametrize("which", [0, 1], ids=["in front of the object", "in the list of all"])
def test_a_name_that_is_no_text_is_refused(whole: bytes, tmp_path: Path, which: int) -> None:
    """The flags declare UTF-8 names, and one name is not valid."""
    name = b"records/a"
    where = [whole.index(name), whole.rindex(name)][which]
    flags = whole.rindex(b"PK\x03\x04") + 7, whole.rindex(b"PK\x01\x02") + 9
    spoiled = altered(whole, {**dict.fromkeys(flags, 8), where: 255})
    assert is_read_rightly_or_refused(tmp_path / "spoiled.zip", spoiled)
