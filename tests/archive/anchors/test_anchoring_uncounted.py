"""Anchors in the topic that no reader counts do not block an archiver that signs. After a failed write, the file of
anchors is read again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from ledger.adapters import cloudevents
from ledger.adapters.ed25519 import PrivateKey, PublicKeys, make
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.objects import MemoryObjects
from ledger.adapters.memory.sender import MemorySender
from ledger.app.anchors import counting
from ledger.archive.anchors.anchor_file import AnchorFile
from ledger.archive.anchors.anchor_topic import AnchorTopic, standing
from ledger.archive.anchors.anchoring import Anchoring, NotAnchored
from ledger.archive.format.anchor import Anchor
from ledger.archive.format.chain import Head
from ledger.archive.store.archive import Archive
from ledger.config.config import Config
from ledger.errors import ConfigError
from tests.support.archives.given import TOPIC, an_archive, records, sealed

ANCHORS = "ledger.anchors"
FORGED = Head(TOPIC, 0, 10**6, "0" * 64, 1)


@pytest.fixture(autouse=True)
def told() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


class Signed:
    """An archive, and a topic of anchors in which only those of one key count."""

    def __init__(self, folder: Path) -> None:
        self.archive, self.store, self.heads = an_archive()
        self.log = MemoryLog({ANCHORS: 1}, ManualClock())
        make(folder / "key")
        self.key, self.public = PrivateKey(folder / "key"), PublicKeys(folder / "key.pub")

    def topic(self) -> AnchorTopic:
        return AnchorTopic(
            ANCHORS, self.log, lambda: MemorySender(self.log), cloudevents, ManualClock(), actor="a@h", writer="test",
            new_id=lambda: "id",
        )  # fmt: skip

    def anchoring(self) -> Anchoring:
        return Anchoring(self.archive, self.topic(), self.archive.partitions, self.key, self.public.why_not)

    def grow(self) -> Head:
        begin = self.archive.head(TOPIC, 0).next
        return sealed(self.archive, records(30, 9, 0, begin), each=10)[-1]

    def last(self) -> Anchor:
        return [kept.anchor for kept in standing(self.topic().read()).kept if kept.anchor.head.partition == 0][-1]


@pytest.fixture
def signed(tmp_path: Path) -> Signed:
    return Signed(tmp_path)


def others(folder: Path) -> PrivateKey:
    make(folder / "other")
    return PrivateKey(folder / "other")


@pytest.mark.parametrize("first", [False, True])
def test_an_anchor_that_does_not_count_is_told_and_written_over(signed: Signed, told: list[Any], first: bool) -> None:
    anchoring = signed.anchoring()
    if not first:
        anchoring.step()
    signed.topic().write(Anchor(FORGED))
    signed.topic().write(Anchor(FORGED, signed.key.key, "00" * 64))
    grown = signed.grow()
    assert grown in [one.head for one in anchoring.step()]
    assert signed.last().head == grown and anchoring.anchored()[TOPIC, 0][0] == grown.sequence
    assert [line["event"] for line in told].count("anchor_does_not_count") == 2
    assert anchoring.step() == signed.anchoring().step() == []


def test_it_is_written_over_though_nothing_has_grown(signed: Signed) -> None:
    """Otherwise compaction would remove the archiver's anchor and keep the other one."""
    anchoring = signed.anchoring()
    anchoring.step()
    signed.topic().write(Anchor(signed.heads[0]))
    assert [one.head for one in anchoring.step()] == [signed.heads[0]]
    assert signed.public.why_not(signed.last()) == ""


def test_what_counts_still_stops_it(signed: Signed) -> None:
    signed.anchoring().step()
    signed.topic().write(Anchor(signed.heads[0]._replace(sequence=3)))
    signed.store.delete(f"manifests/{TOPIC}/0/{9:012}.json")
    with pytest.raises(NotAnchored, match="manifest 9 was anchored, but the chain ends below it"):
        signed.anchoring().step()


def test_all_count_for_who_does_not_sign_or_whose_own_do_not(tmp_path: Path) -> None:
    """Otherwise an archiver would not count its own anchors, and write them again each time."""
    signed = Signed(tmp_path)
    config = Config.model_validate({"archive": {"anchor_public_key_file": tmp_path / "key.pub"}})
    assert counting(config, None) is None
    assert counting(Config(), signed.key) is None
    assert counting(config, others(tmp_path)) is None
    why_not = counting(config, signed.key)
    assert why_not is not None and why_not(Anchor(FORGED)) == "it is not signed"


def test_after_a_write_that_failed_the_file_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a forged chain would be anchored, although the file contradicts it."""
    archive, store, heads = an_archive()
    file = AnchorFile(tmp_path / "anchors")
    anchoring = Anchoring(archive, file, archive.partitions)
    assert [one.head for one in anchoring.step()] == heads
    sealed(archive, records(30, 9, 0, heads[0].next), each=10)

    def full(anchor: Anchor) -> None:
        raise ConfigError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(file, "write", full)
        with pytest.raises(ConfigError):
            anchoring.step()
    other = Archive(MemoryObjects(), "test", lambda: "2026-01-01T00:00:00Z")
    sealed(other, records(300, 5), each=10)
    store.stored.update(other.store.stored)
    with pytest.raises(NotAnchored, match="not the one that was anchored"):
        anchoring.step()
