"""The headroom: its alarm, which also works while no server answers, and metrics over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.prometheus import Exporter
from ledger.archive.format.anchor import Anchor, AnchorRecord
from ledger.archive.format.chain import Head
from ledger.archive.store.archiving import PartitionShape
from ledger.archive.store.compaction_margin import AGAIN_S, FINE, LOOKS, OVER, SCARCE, UNKNOWN, Headroom, Reckoned
from ledger.archive.store.metrics import measured
from ledger.archive.store.status import ArchiveProgress, progress, with_anchors
from ledger.embedded.ports import free_ports
from ledger.errors import ConfigError, LedgerError, Unreachable
from ledger.util.metrics import CATALOGUE
from tests.support.archives.scraping import scraped
from tests.support.pages import ROOT

DAY_S = 86_400.0


def waiting(headroom_s: float | None, partition: int = 2) -> ArchiveProgress:
    oldest_s = None if headroom_s is None else DAY_S - headroom_s
    return ArchiveProgress("ledger.events", partition, 5, 40, 50, oldest_s, headroom_s, DAY_S)


class Watched:
    """A headroom that the test queries by hand."""

    def __init__(self) -> None:
        self.clock, self.answer = ManualClock(), [waiting(None)]
        self.error: LedgerError | None = None
        self.headroom = Headroom(self._ask, 0.5, 30.0, self.clock)

    def _ask(self) -> list[ArchiveProgress]:
        if self.error is not None:
            raise self.error
        return self.answer

    def look(self, headroom_s: float | None = None) -> str:
        self.answer = [waiting(None, 1), waiting(headroom_s)]
        return self.headroom.look().state


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def told() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


def events(told: list[Any]) -> list[tuple[str, str]]:
    return [(line["log_level"], line["event"]) for line in told]


def test_each_change_is_told_once_and_again_at_intervals(watched: Watched, told: list[Any]) -> None:
    states = [watched.look(s) for s in (None, 20 * 3600, 11 * 3600, 10 * 3600, -5.0, -35.0)]
    assert states == [FINE, FINE, SCARCE, SCARCE, OVER, OVER]
    assert events(told) == [("warning", "headroom_scarce"), ("error", "headroom_over")]
    assert (told[1]["partition"], told[1]["sealed"], told[1]["headroom_s"]) == ("ledger.events[2]", 40, -5.0)
    watched.clock.sleep(AGAIN_S)
    watched.look(-335.0)
    assert events(told)[2:] == [("error", "headroom_over")]
    watched.look(None)
    watched.look(None)
    assert events(told)[3:] == [("warning", "headroom_regained")]


def test_it_goes_on_running_out_while_nobody_answers(watched: Watched, told: list[Any]) -> None:
    assert watched.look(13 * 3600) == FINE
    watched.error = Unreachable("no broker")
    watched.clock.sleep(60.0)
    assert watched.headroom.look().state == FINE
    watched.clock.sleep(2 * 3600)
    assert watched.headroom.look().state == SCARCE
    watched.clock.sleep(11 * 3600)
    assert watched.headroom.look().state == OVER
    assert watched.headroom.now().found[1].headroom_s == -60.0
    assert [line["not_asked"] for line in told] == ["no broker"] * 2


def test_what_is_not_known_is_no_good_news(watched: Watched, told: list[Any]) -> None:
    watched.error = Unreachable("no broker")
    assert watched.headroom.look().state == UNKNOWN
    assert [(line["event"], line["why"]) for line in told] == [("headroom_unknown", "no broker")]
    watched.error = None
    assert watched.look(None) == FINE
    watched.error = Unreachable("no broker")
    watched.clock.sleep(LOOKS * 30.0)
    assert watched.headroom.look().state == UNKNOWN
    assert [line["event"] for line in told] == ["headroom_unknown", "headroom_regained", "headroom_unknown"]


def test_it_looks_by_itself_and_no_error_ends_it() -> None:
    from threading import Event

    looked, looks = Event(), []

    def ask() -> list[ArchiveProgress]:
        looks.append(1)
        if len(looks) == 1:
            raise RuntimeError("a bug")
        looked.set()
        return []

    from ledger.adapters.clock import SystemClock

    with Headroom(ask, 0.5, 0.01, SystemClock()):
        assert looked.wait(30)


def test_what_waits_is_what_lies_beyond_the_head() -> None:
    place = "ledger.events", 0
    shape = {place: PartitionShape("id", 0, 50)}
    asked: list[Any] = []

    def oldest(begin: Any) -> dict[Any, float]:
        asked.append(dict(begin))
        return dict.fromkeys(begin, 900.0)

    (one,) = progress({place: Head(*place, 4, "ab", 40)}, shape, oldest, {"ledger.events": 500.0}, 1000.0)
    assert (one.oldest_s, one.headroom_s, one.sealed, one.manifests) == (100.0, 400.0, 40, 5)
    (one,) = progress({place: Head(*place, 4, "ab", 50)}, shape, oldest, {"ledger.events": 500.0}, 1000.0)
    assert (one.oldest_s, one.headroom_s) == (None, None)
    assert asked == [{place: 40}, {}]


def test_the_last_anchor_is_the_one_that_reaches_furthest() -> None:
    heads = [Head("ledger.events", 2, sequence, "ab" * 32) for sequence in (3, 7, 5)]
    kept = [AnchorRecord(Anchor(head), "", 100.0 + head.sequence) for head in heads]
    found = with_anchors([waiting(None, 1), waiting(None)], kept, 200.0)
    assert [(one.anchored, one.anchored_age_s) for one in found] == [(None, None), (7, 93.0)]


def everything() -> Any:
    now = Reckoned((waiting(400.0), waiting(None, 1)), 0.0, SCARCE)
    place = "ledger.events", 2
    failing, anchored = {"anchor": 2, "compact": 0}, {place: (6, 999_000.0)}
    return measured(now, 1_000_000.0, 10.0, {place: 17}, {place: 998_000.0}, failing, anchored)


@pytest.mark.slow
def test_metrics_are_scraped_over_http() -> None:
    (port,) = free_ports(1)
    with Exporter("127.0.0.1", port, everything):
        found = scraped(port)
        with pytest.raises(ConfigError, match="can't be served"):
            Exporter("127.0.0.1", port, everything)
    at = '{partition="2",topic="ledger.events"}'
    other = '{partition="1",topic="ledger.events"}'
    assert found == {
        f"ledger_archive_headroom_seconds{at}": 400.0, f"ledger_archive_headroom_seconds{other}": DAY_S,
        f"ledger_archive_oldest_waiting_timestamp_seconds{at}": 1_000_000.0 - (DAY_S - 400.0),
        "ledger_archive_headroom_timestamp_seconds": 999_990.0,
        f"ledger_archive_sealed_offset{at}": 40.0, f"ledger_archive_sealed_offset{other}": 40.0,
        f"ledger_archive_end_offset{at}": 50.0, f"ledger_archive_end_offset{other}": 50.0,
        f"ledger_archive_sealed_records_total{at}": 17.0,
        f"ledger_archive_last_timestamp_seconds{at}": 998_000.0, f"ledger_archive_anchor_sequence{at}": 6.0,
        f"ledger_archive_anchor_timestamp_seconds{at}": 999_000.0,
        'ledger_archive_chore_failures{chore="anchor"}': 2.0, 'ledger_archive_chore_failures{chore="compact"}': 0.0,
    }  # fmt: skip
    with Exporter("127.0.0.1", port, everything):  # the port is free again
        assert scraped(port) == found


def test_nothing_is_said_of_what_is_not_known() -> None:
    found = measured(Reckoned(), 0.0, 0.0, {}, {}, {}, {})
    assert [samples for samples in found.values() if samples] == []


def test_names_are_as_prometheus_wants_them_and_the_catalogue_is_whole() -> None:
    assert set(everything()) == set(CATALOGUE)
    for metric in CATALOGUE:
        assert re.fullmatch(r"ledger_[a-z_]+", metric.name) and metric.help.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert set(metric.labels) <= {"topic", "partition", "chore"}
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_every_metric_stands_in_the_runbook() -> None:
    page = (ROOT / "docs" / "RUNBOOK.md").read_text()
    named = set(re.findall(r"`(ledger_[a-z_]+)`", page))
    assert named == {metric.name for metric in CATALOGUE}
