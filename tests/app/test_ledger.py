"""`Ledger`: adapters are made once, at their first use; an in-memory ledger reads nothing from this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger import Ledger, load_config
from ledger.adapters.memory.clock import ManualClock
from ledger.errors import ConfigError


def test_adapters_are_made_once_and_at_their_first_use(tmp_path: Path) -> None:
    ledger = Ledger.open(load_config(tmp_path))
    assert not list(tmp_path.iterdir())
    assert ledger.blobs is ledger.blobs and ledger.runners is ledger.runners and (tmp_path / "blobs").is_dir()
    with pytest.raises(ConfigError, match="No ledger runs"):
        ledger.source()
    with pytest.raises(ConfigError, match="no archive"):
        ledger.archive  # noqa: B018


def test_in_memory_neither_environment_nor_file_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_TOPICS__PREFIX", "other.")
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "nonsense")
    ledger = Ledger.in_memory()
    assert ledger.config.topics.events == "ledger.events" and not ledger.config.archive.adapter
    assert not ledger.entries() and ledger.event_log is ledger.event_log


def test_in_memory_one_of_two_candidates_leads() -> None:
    clock = ManualClock()
    ledger = Ledger.in_memory(clock)
    assert ledger.clock is clock and ledger.candidates("projector") == []
    first, second = ledger.leadership("projector"), ledger.leadership("projector")
    assert first.acquire() and not second.acquire() and ledger.leadership("reconciler").acquire()
    assert [one.leads for one in ledger.candidates("projector")] == [True]
    assert ledger.leadership("projector", force=True).acquire()


def test_two_ledgers_in_memory_share_nothing(tmp_path: Path) -> None:
    (tmp_path / "graph").write_bytes(b"x")
    one, other = Ledger.in_memory(), Ledger.in_memory()
    one.blobs.put("job", tmp_path / "graph")
    assert len(one.blobs.listing()) == 1 and not other.blobs.listing()
