"""The check for stale writes that the scenarios of the reconciler use."""

from __future__ import annotations

from tests.scenarios.failover import stale_writes
from tests.simulation.copies import Copied


def written(
    offset: int, epoch: int, key: bytes = b"job/attempt/1/1", partition: int = 0, role: str = "reconciler"
) -> Copied:
    headers = (("ce_source", f"/ledger/{role}/{epoch}".encode()), ("ledger_epoch", str(epoch).encode()))
    return Copied("events", partition, offset, key, b"x", headers)


def claim(offset: int, epoch: int, partition: int = 0) -> Copied:
    return written(offset, epoch, f"~claim/reconciler/{epoch}".encode(), partition)


def test_a_record_of_an_epoch_that_was_replaced_is_one() -> None:
    assert len(stale_writes([claim(0, 1), claim(1, 2), written(2, 1)])) == 1


def test_records_of_the_epoch_that_is_claimed_and_those_before_are_none() -> None:
    assert stale_writes([claim(0, 1), written(1, 1), claim(2, 2), written(3, 2)]) == []


def test_another_partition_and_another_role_say_nothing() -> None:
    assert stale_writes([claim(0, 1), claim(1, 2), written(0, 1, partition=1)]) == []
    assert stale_writes([claim(0, 1), claim(1, 2), written(2, 1, role="projector")]) == []
