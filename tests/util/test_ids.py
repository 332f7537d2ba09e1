"""The layout of a UUIDv7 is that of RFC 9562."""

from __future__ import annotations

import uuid

import pytest

from ledger.core.model.registers import is_job_id
from ledger.util.ids import uuid7


def test_the_example_of_rfc_9562_appendix_a_6():
    # unix_ts_ms 0x017F22E279B0, rand_a 0xCC3, rand_b 0x18C4DC0C0C07398F
    chance = 0xCC3 << 62 | 0x18C4DC0C0C07398F
    assert uuid7(0x017F22E279B0 / 1000, chance.to_bytes(10, "big")) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@pytest.mark.parametrize("chance", [bytes(10), b"\xff" * 10, bytes(range(16))])
def test_version_and_variant_stand_whatever_chance_says(chance):
    made = uuid.UUID(uuid7(1_700_000_000.123, chance))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == 1_700_000_000_123


def test_ids_sort_by_time_and_are_job_ids():
    times = [0.0, 1.0, 1.5, 1_000_000.0, 1_700_000_000.0, 4_000_000_000.0]
    made = [uuid7(t, b"\xff" * 10) for t in times]
    assert made == sorted(made)
    assert all(map(is_job_id, made))


def test_every_random_bit_that_has_room_counts():
    made = {uuid7(1.0, (1 << bit).to_bytes(10, "big")) for bit in range(74)}
    assert len(made) == 74


@pytest.mark.parametrize("time_s, chance", [(1.0, bytes(9)), (-1.0, bytes(10)), (2.0**48, bytes(10))])
def test_what_does_not_fit_is_refused(time_s, chance):
    with pytest.raises(ValueError, match="uuid7"):
        uuid7(time_s, chance)
