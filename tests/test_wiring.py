"""What the settings name is what is made."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ledger import wiring
from ledger.adapters.forced import ForcedLeadership
from ledger.adapters.kafka.leadership import KafkaLeadership
from ledger.adapters.kafka.log import KafkaLog
from ledger.adapters.kafka.topics import specs
from ledger.adapters.runners.subprocess import SubprocessRunner
from ledger.config import Config, load_config
from ledger.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(tmp_path, kafka={"bootstrap.servers": "127.0.0.1:9"})


class Plugin:
    def __init__(self, folder: Path) -> None:
        self.folder = folder


def install(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    points = [EntryPoint(name, value, wiring.RUNNERS) for name, value in found.items()]
    monkeypatch.setattr(wiring, "entry_points", lambda group: points if group == wiring.RUNNERS else [])


def test_the_runner_of_this_host_is_installed(config: Config, tmp_path: Path) -> None:
    runner = wiring.runners(config)["subprocess"]
    assert isinstance(runner, SubprocessRunner)
    assert runner.folder == tmp_path / "agent"


def test_a_plugin_gets_a_folder_of_its_own(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, yarn=f"{__name__}:Plugin", subprocess="ledger.adapters.runners.subprocess:SubprocessRunner")
    made = wiring.runners(config)
    assert sorted(made) == ["outside", "subprocess", "yarn"]
    assert made["yarn"].folder == tmp_path / "runners" / "yarn"  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["no.such.module:Runner", f"{__name__}:Nothing", "builtins:len"])
def test_a_plugin_that_cannot_be_loaded_is_told_and_not_left_out(
    value: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, yarn=value)
    with pytest.raises(ConfigError, match="yarn"):
        wiring.runners(config)


def test_one_leads_unless_forced(config: Config, tmp_path: Path) -> None:
    first, second = wiring.leadership(config, "projector"), wiring.leadership(config, "projector")
    assert first.acquire()
    assert not second.acquire()
    assert wiring.leadership(config, "reconciler").acquire()
    assert wiring.leadership(config, "projector", force=True).acquire()
    first.release()
    assert second.acquire()
    second.release()
    assert config.leader_lock("projector") == tmp_path / "run" / "leader-projector.lock"


def test_kafka_elects_by_a_group_per_role_on_a_topic_of_its_own(tmp_path: Path) -> None:
    config = load_config(
        tmp_path, kafka={"bootstrap.servers": "127.0.0.1:9"}, topics={"prefix": "a."}, leadership={"adapter": "kafka"}
    )
    projector = wiring.leadership(config, "projector")
    assert isinstance(projector, KafkaLeadership)
    assert not projector.acquire()
    projector.close()
    assert isinstance(wiring.leadership(config, "projector", force=True), ForcedLeadership)
    leaders = [spec for spec in specs(config.topic_settings()) if spec.name == "a.ledger.leaders"]
    assert [spec.partitions for spec in leaders] == [1]
    assert len(specs(load_config(tmp_path).topic_settings())) == 3


def test_the_log_is_that_of_the_settings(config: Config, tmp_path: Path) -> None:
    assert isinstance(wiring.event_log(config), KafkaLog)
    with pytest.raises(ConfigError, match="No ledger runs"):
        wiring.event_log(load_config(tmp_path))


def test_the_source_reads_as_many_restore_points_as_the_projector_offers(tmp_path: Path) -> None:
    config = load_config(tmp_path, kafka={"bootstrap.servers": "127.0.0.1:9"}, projector={"restore_points": 5})
    assert wiring.source(config).keep == 5
