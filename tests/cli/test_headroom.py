"""How far the archive is ahead of compaction: `archive status`, and a line of `topics check`."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.archive.store.status import ArchiveProgress
from tests.support.jobs_world import Shell

HOUR_S = 3600.0


def waiting(headroom_s: float | None) -> ArchiveProgress:
    age_s = None if headroom_s is None else 24 * HOUR_S - headroom_s
    return ArchiveProgress("ledger.events", 2, 1, 40, 50, age_s, headroom_s, 24 * HOUR_S)


@pytest.fixture
def told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("ledger.adapters.kafka.topics.check_topics", lambda *_: [])

    def tell(verb: str, headroom_s: float | None, adapter: str = "file") -> Any:
        monkeypatch.setattr("ledger.app.archives.archive_progress", lambda _: [waiting(None), waiting(headroom_s)])
        return shell.run(*verb.split(), LEDGER_ARCHIVE__ADAPTER=adapter)

    return tell


@pytest.mark.parametrize("verb", ["archive status", "topics check"])
@pytest.mark.parametrize(("headroom_s", "code", "words"), [
    (None, 0, ""), (20 * HOUR_S, 0, ""), (11 * HOUR_S, 0, "may remove it in 11h"), (0.0, 1, "may have removed records"),
    (-60.0, 1, "may have removed records"),
])  # fmt: skip
def test_little_headroom_is_said_and_none_is_a_failure(
    told: Any, verb: str, headroom_s: float | None, code: int, words: str
) -> None:
    answer = told(verb, headroom_s)
    assert answer.exit_code == code, answer.output
    assert ("WARNING: ledger.events[2] from offset 40" in answer.stderr) == bool(words) and words in answer.stderr


def test_a_line_of_topics_check(told: Any) -> None:
    assert "headroom of the archive: 20h at least" in told("topics check", 20 * HOUR_S).stderr
    assert "headroom of the archive: nothing waits" in told("topics check", None).stderr
    assert "headroom" not in told("topics check", 0.0, adapter="").stderr
