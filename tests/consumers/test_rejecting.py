"""The audit consumer's memory of records that it can't read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from consumers.audit import REJECTS_SHOWN, Audit
from consumers.settings import load

REJECTED = 200


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Audit:
    """An audit consumer that sends nothing. Its first reject is accepted in the settings."""

    async def send(*_: Any) -> None: ...

    monkeypatch.setattr(Audit, "_send", send)
    return Audit(load({"AUDIT_BOOTSTRAP_SERVERS": "none:9", "AUDIT_ACCEPTED": "ledger.events[0]@0"}))


def test_rejects_are_counted_and_a_few_are_remembered(audit: Audit) -> None:
    audit.caught_up = True

    async def reject() -> None:
        for offset in range(REJECTED):
            message: Any = SimpleNamespace(
                topic="ledger.events", partition=0, offset=offset, timestamp=1.0, key=b"k", value=b"v", headers=(),
            )  # fmt: skip
            await audit.reject(message, f"why {offset}")

    asyncio.run(reject())
    (told,) = audit.problems()
    assert told.startswith(f"{REJECTED - 1} records could not be read: ledger.events[0]@1: why 1; ")
    assert f"why {REJECTS_SHOWN}. They" in told
    assert audit.state()["rejected"] == REJECTED
    held = [value for value in vars(audit).values() if isinstance(value, dict | list | set)]
    assert held and all(len(one) <= REJECTS_SHOWN for one in held)
