"""Altered or damaged data in a rewritten archive is found, and is not rewritten again."""

from __future__ import annotations

import random
from dataclasses import replace
from hashlib import sha256

import pytest

from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format import parquet
from ledger.archive.format.notes import REWRITTEN
from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.removals import EXPIRED, REDACTED, Gone, Rewritten, body_of
from ledger.archive.format.segments import pack
from ledger.archive.removal.rewriting import Wanted, rewrite
from ledger.archive.store.archive import Archive
from ledger.archive.store.verifying import verify
from ledger.errors import LedgerError
from ledger.util import failpoints
from tests.support.archives.days import an_archive, spread
from tests.support.archives.given import TOPIC, read_out
from tests.support.archives.mutations import spoiled
from tests.support.archives.taking import AT, BY, GONE, take_out, verdict_of
from tests.support.repetitions import seeds

# -- attacks -----------------------------------------------------------------------------------------------------------


def test_what_is_missing_without_a_note_is_broken() -> None:
    archive, store, _ = an_archive()
    take_out(archive)
    head = archive.head(TOPIC, 0)
    one = archive.chain(TOPIC, 0).rewritten[1]
    records = parquet.read(store.stored[one.object], TOPIC, 0)
    whole = store.stored[one.object]
    victim = next(record for record in records if record.value() is not None and not isinstance(record, RedactedRecord))
    for gone, redacted, why in (([victim.offset()], (), "a record was removed"),
                                ((), [victim.offset()], "no note says that it was redacted")):  # fmt: skip
        store.stored[one.object] = parquet.rewrite(whole, gone, redacted)
        broken = verdict_of(archive, [head]).broken
        assert broken[0].offset == victim.offset() and why in broken[0].reason
    store.stored[one.object] = parquet.encode(
        [replace(record, _key=b"forged") if isinstance(record, RedactedRecord) else record for record in records], read_out
    )
    assert "the record was altered" in verdict_of(archive, [head]).broken[0].reason


def test_what_a_note_says_is_gone_must_not_be_there() -> None:
    archive, store, _ = an_archive()
    manifest = next(archive.manifests(TOPIC, 0))
    data = store.stored[manifest.records]
    inside = tuple(sorted(offset for offset in GONE if offset < manifest.next))
    for why in (EXPIRED, REDACTED):
        fresh = Archive(MemoryObjects(), "test", lambda: AT)
        fresh.store.stored = dict(store.stored)  # type: ignore[attr-defined]
        gone = Gone(why, ((inside[0], inside[0]),), 1, "prod", 1, 1, "")
        said = Rewritten(manifest.records, manifest.records, manifest.records_sha256, (gone,), BY, AT, -1)
        fresh.note(fresh.head(TOPIC, 0), REWRITTEN, body_of([said], BY, AT))
        broken = verify(fresh)[0].broken
        assert [(one.offset, one.reason) for one in broken] == [
            (inside[0], "the record or its value is there, but a note says it was removed")
        ]
    assert data


@pytest.mark.parametrize("seed", seeds(1))
def test_whatever_is_altered_in_what_was_rewritten_is_found(seed: int) -> None:
    archive, store, _ = an_archive()
    take_out(archive)
    head, drawn = archive.head(TOPIC, 0), random.Random(seed)
    whole = dict(store.stored)
    for name in [name for name in store.stored if f"/{TOPIC}/0/" in name]:
        for what, store.stored in spoiled(drawn, whole, name):
            verdict = verdict_of(archive, [head])
            assert verdict.broken, f"{what}, seed {seed}: not found"
            assert verdict.proved <= verdict.broken[0].offset


def test_a_stub_that_was_altered_is_found() -> None:
    archive, store, _ = an_archive()
    take_out(archive)
    manifest = next(archive.manifests(TOPIC, 0))
    leaves = archive.leaves(manifest)
    at = next(i for i, leaf in enumerate(leaves) if leaf.offset in GONE)
    leaves[at] = leaves[at]._replace(hash=bytes(32))
    store.stored[manifest.leaves] = pack(leaves)
    assert verdict_of(archive, [archive.head(TOPIC, 0)]).broken
    with pytest.raises(LedgerError, match="not what was sealed"):
        Archive(store).leaves(manifest)


def test_what_is_not_as_it_was_sealed_is_not_rewritten() -> None:
    archive, store, _ = an_archive()
    manifest = list(archive.manifests(TOPIC, 0))[2]
    store.stored[manifest.records] = store.stored[manifest.records][:-1] + b"!"
    with pytest.raises(LedgerError, match="not what was sealed"):
        take_out(archive)
    assert manifest.records in store.stored


def test_an_object_of_other_records_than_were_sealed_is_not_rewritten() -> None:
    """The forger also wrote the last manifest, which names the object."""
    archive, store, _ = an_archive()
    manifest = list(archive.manifests(TOPIC, 0))[-1]
    other = store.stored[next(archive.manifests(TOPIC, 1)).records]
    store.stored[manifest.records] = other
    forged = replace(manifest, records_sha256=sha256(other).hexdigest()).encode()
    store.stored[f"manifests/{TOPIC}/0/{manifest.sequence:012}.json"] = forged
    with pytest.raises(LedgerError, match="does not hold the records that were sealed"):
        take_out(archive, [Wanted(EXPIRED, frozenset([archive.leaves(manifest)[1].offset]), "prod", 1, 1)])
    assert manifest.records in store.stored


def test_what_does_not_come_back_as_it_was_stored_takes_the_place_of_nothing() -> None:
    class Damaging(MemoryObjects):
        def create(self, name: str, data: bytes) -> bool:
            return super().create(name, data[:-1] if name.startswith("rewritten/") else data)

    _, whole, _ = an_archive()
    store = Damaging()
    store.stored = dict(whole.stored)
    with pytest.raises(LedgerError, match="does not return"):
        take_out(Archive(store, "test", lambda: AT))
    assert list(Archive(store).records(TOPIC, 0)) == spread(0)


def test_a_rewriting_that_takes_out_more_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that must stay are compared before any reader uses the new object, whatever went wrong in the rewrite."""
    archive, _, _ = an_archive()
    plain = parquet.rewrite
    monkeypatch.setattr(parquet, "rewrite", lambda data, expired, redacted: plain(data, {*expired, 0, 1, 2, 3}, redacted))
    with pytest.raises(LedgerError, match="does not hold the records that were sealed"):
        take_out(archive)
    assert archive.chain(TOPIC, 0).rewritten == ()


def test_what_was_damaged_between_rewriting_and_clearing_keeps_what_it_was_made_of() -> None:
    archive, store, _ = an_archive()
    failpoints.arm("rewrite.noted:raise")
    try:
        with pytest.raises(failpoints.Failed):
            take_out(archive)
    finally:
        failpoints.arm("")
    one = archive.chain(TOPIC, 0).rewritten[0]
    store.stored[one.object] = b"damaged"
    with pytest.raises(LedgerError, match="is not what was sealed"):
        take_out(archive)
    assert one.records in store.stored


def test_what_a_note_of_anybody_names_takes_the_place_of_nothing() -> None:
    """A writer with the right to create objects must not be able to make others delete objects."""
    archive, store, _ = an_archive()
    one = next(archive.manifests(TOPIC, 0))
    store.create(f"rewritten/{TOPIC}/0/x.parquet", b"garbage")
    whole = dict(store.stored)
    said = Rewritten(one.records, f"rewritten/{TOPIC}/0/x.parquet", sha256(b"garbage").hexdigest(), (), "", "", -1)
    archive.note(archive.head(TOPIC, 0), REWRITTEN, body_of([said], BY, AT))
    with pytest.raises(LedgerError, match="does not hold the records that were sealed"):
        rewrite(Archive(store), TOPIC, 0, [], BY, AT)
    assert whole.items() <= store.stored.items()
