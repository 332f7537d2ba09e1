"""Replacements of joined objects are checked before the originals are deleted."""

from __future__ import annotations

from dataclasses import asdict, replace
from hashlib import sha256

import pytest

from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format import notes
from ledger.archive.store.archive import Archive
from ledger.archive.store.chains import LINES, lines_of
from ledger.archive.store.compaction import compact
from ledger.errors import LedgerError
from tests.support.archives.days import LATER_S, an_archive
from tests.support.archives.given import TOPIC


@pytest.mark.parametrize("spoil", ["manifests", "records", "leaves"])
def test_what_a_note_of_anybody_names_takes_the_place_of_nothing(spoil: str) -> None:
    """A writer with the right to create objects must not be able to make others delete objects. So the objects that a
    note names must hold the manifests that it replaces."""
    archive, store, _ = an_archive()
    fitting = Archive(MemoryObjects())
    fitting.store.stored = dict(store.stored)
    compact(fitting, LATER_S)
    true = fitting.chain(TOPIC, 0).joined[0]
    names = {"manifests": true.manifests, "records": true.records, "leaves": true.leaves}
    data = {kind: fitting.store.stored[name] for kind, name in names.items()}
    others = [replace(one, written_by="somebody") for one in archive.manifests(TOPIC, 0)]
    data[spoil] = lines_of(others[true.first_sequence : true.last_sequence + 1]) if spoil == "manifests" else b""
    said = {kind: f"joined/{TOPIC}/0/x/{kind}{LINES}" for kind in data}
    for kind, name in said.items():
        assert store.create(name, data[kind])
    whole = dict(store.stored)
    said |= {f"{kind}_sha256": sha256(one).hexdigest() for kind, one in data.items()}
    archive.note(archive.head(TOPIC, 0), notes.JOINED, asdict(replace(true, **said)))
    with pytest.raises(LedgerError, match=r"^joined/.*/x/"):
        compact(Archive(store), 0)  # no day is over
    assert whole.items() <= store.stored.items()
