"""Records as input for the rules: one after the other in one partition, a second apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from consumers.keys import parse
from consumers.rules import Finding, Rules, Seen, Settings

SETTINGS = Settings(actors=("alice@*", "reconciler@*"), restarts_max=3, restarts_window_s=60.0, gap_grace_s=10.0)
BEGIN_S = 1_700_000_000.0


class Records:
    """Makes records. By default each event has a unique id and the next sequence number of its source."""

    def __init__(self) -> None:
        self.offset, self.numbers = -1, dict[str, int]()

    def __call__(
        self, key: str, fields: Mapping[str, Any] | None = None, *, value: bytes | None = b"v",
        after_s: float | None = None, source: str = "/s", partition: int = 0, number: int | None = None, **headers: str,
    ) -> Seen:  # fmt: skip
        self.offset += 1
        if number is None:
            self.numbers[source] = number = self.numbers.get(source, 0) + 1
        said = {"ce_id": f"event-{self.offset}", "ce_source": source, "ce_sequence": str(number)}
        said |= {"ledger_actor": "alice@host"}
        parsed = parse(key.encode())
        assert parsed is not None, key
        time_s = BEGIN_S + (self.offset if after_s is None else after_s)
        kept = {name: text for name, text in {**said, **headers}.items() if text}
        return Seen("events", partition, self.offset, time_s, parsed, key.encode(), value, fields, kept)

    def again(self, seen: Seen) -> Seen:
        """The same event, sent again."""
        self.offset += 1
        return replace(seen, offset=self.offset, time_s=BEGIN_S + self.offset)


def judged(history: list[Seen], settings: Settings = SETTINGS, now_s: float = BEGIN_S + 3600) -> list[Finding]:
    """All findings of a history, including those that appear an hour later."""
    rules = Rules(settings)
    return [*all_of(rules, history, now_s), *rules.tick(now_s)]


def all_of(rules: Rules, history: list[Seen], now_s: float) -> Iterator[Finding]:
    for seen in history:
        yield from rules.judge(seen, now_s)
