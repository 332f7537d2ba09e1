"""The longest delay of an archiver after which a projector may start from its snapshots, manifest by manifest."""

from __future__ import annotations

import pytest

from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.segments import store_segment
from ledger.archive.snapshots import snapshots
from ledger.archive.snapshots.bootstrap import usable
from ledger.archive.store.archive import Archive
from ledger.archive.store.archiving import PartitionShape
from ledger.core.model.registers import Running, key_of
from ledger.ports import MemoryRecord
from ledger.util import times
from tests.support.archives.given import TOPIC, TOPIC_ID, read_out

pytestmark = pytest.mark.usefixtures("quiet")
AWAY_S = 300.0
BEGUN_S = 1_700_000_000.0


class Chain:
    """One partition, sealed at the times that a test gives."""

    def __init__(self) -> None:
        self.now_s = BEGUN_S
        self.archive = Archive(MemoryObjects(), "test", lambda: times.rfc3339(self.now_s))

    def seal(self, after_s: float, hole: int = 0, ages_s: tuple[float, ...] = (1.0,), topic_id: str = TOPIC_ID) -> None:
        """Seals after_s after the last manifest. ages_s: the ages of the records. hole: the missing offsets before the
        first one."""
        self.now_s += after_s
        head = self.archive.head(TOPIC, 0)
        found = [
            MemoryRecord(TOPIC, 0, head.next + hole + n, key_of(f"job-{n}", Running(1)).encode(), b"x", (),
                         int((self.now_s - age_s) * 1000))
            for n, age_s in enumerate(ages_s)
        ]  # fmt: skip
        self.archive.seal(head, topic_id, store_segment(self.archive.store, head.next, found, read_out))

    def usable(self, beyond: int = 0, topic_id: str = TOPIC_ID) -> bool:
        snapshots.make(self.archive, TOPIC, 0, snapshots.thin_events, read_out, snapshots.same_registers)
        shape = PartitionShape(topic_id, 0, self.archive.head(TOPIC, 0).next + beyond)
        found = list(usable(self.archive, {(TOPIC, 0): shape}, AWAY_S))
        assert all(one.newest_s == pytest.approx(self.now_s - 1.0) for one in found)
        return bool(found)


@pytest.fixture
def chain() -> Chain:
    made = Chain()
    made.seal(0.0)
    return made


def test_one_that_was_begun_on_an_old_ledger_has_read_it_in_one_go(chain: Chain) -> None:
    chain.seal(AWAY_S / 2, hole=1000, ages_s=(1e7, 1e6, 1.0))
    chain.seal(AWAY_S / 2, hole=1000, ages_s=(1e5, 1.0))
    assert chain.usable(beyond=5)


def test_after_that_a_record_that_was_old_when_it_was_sealed_says_that_it_was_away(chain: Chain) -> None:
    chain.seal(AWAY_S - 1)
    chain.seal(AWAY_S - 1, ages_s=(AWAY_S - 2, 1.0))
    assert chain.usable()
    chain.seal(AWAY_S - 1, ages_s=(AWAY_S + 2, 1.0))
    assert not chain.usable()


@pytest.mark.parametrize(("hole", "fits"), [(0, True), (1, True), (2, False), (30, False)])
def test_a_hole_after_a_long_silence_may_have_been_a_tombstone(chain: Chain, hole: int, fits: bool) -> None:
    """A hole of one offset is only the end of a transaction: then no record was written in between."""
    chain.seal(100 * AWAY_S, hole=hole)
    assert chain.usable() is fits


def test_a_hole_without_a_silence_is_nothing(chain: Chain) -> None:
    for _ in range(6):
        chain.seal(AWAY_S - 2, hole=50)
    assert chain.usable()


def test_of_what_was_restored_since_none_is_begun_from(chain: Chain) -> None:
    assert chain.usable()
    assert not chain.usable(topic_id="another")
    assert not chain.usable(beyond=-1), "the topic was truncated"
