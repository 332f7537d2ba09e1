"""The adapters that are made from the settings."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ledger.adapters.forced_leadership import ForcedLeadership
from ledger.adapters.kafka.leadership import KafkaLeadership
from ledger.adapters.kafka.log import KafkaLog
from ledger.adapters.kafka.topics import specs
from ledger.adapters.runners.contained import ContainedRunner
from ledger.adapters.runners.outside import OutsideRunner
from ledger.adapters.runners.subprocess import SubprocessRunner
from ledger.app import wiring
from ledger.app.ledger import Ledger
from ledger.config.config import Config, load_config
from ledger.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(tmp_path, kafka={"bootstrap.servers": "127.0.0.1:9"})


def install(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    points = [EntryPoint(name, value, wiring.RUNNERS) for name, value in found.items()]
    monkeypatch.setattr(wiring, "entry_points", lambda group: points if group == wiring.RUNNERS else [])


def test_the_runner_of_this_host_is_installed(config: Config, tmp_path: Path) -> None:
    runner = Ledger.open(config).runners["subprocess"]
    assert isinstance(runner, SubprocessRunner)
    assert runner.folder == tmp_path / "agent"


def test_a_plugin_gets_a_folder_and_a_process_of_its_own(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, yarn="no.such.module:Runner", subprocess="ledger.adapters.runners.subprocess:SubprocessRunner")
    made = Ledger.open(config).runners
    assert sorted(made) == ["outside", "subprocess", "yarn"], "a runner that can't be loaded is listed too"
    yarn = made["yarn"]
    assert isinstance(yarn, ContainedRunner) and yarn.folder == tmp_path / "runners" / "yarn"


def test_no_plugin_takes_the_place_of_our_own_runners(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, subprocess="evil:Runner", outside="evil:Runner", **{"../x": "evil:Runner"})
    made = {name: type(runner) for name, runner in Ledger.open(config).runners.items()}
    assert made == {"outside": OutsideRunner, "subprocess": SubprocessRunner}


def test_a_list_of_entry_points_that_cannot_be_read_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, listed in {"bad": "no entry at all", "good": "yarn = a:B"}.items():
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{wiring.RUNNERS}]\n{listed}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert wiring.plugins() == {"yarn": "a:B"}


def test_one_leads_unless_forced(config: Config, tmp_path: Path) -> None:
    first, second = Ledger.open(config).leadership("projector"), Ledger.open(config).leadership("projector")
    assert first.acquire()
    assert not second.acquire()
    assert Ledger.open(config).leadership("reconciler").acquire()
    assert Ledger.open(config).leadership("projector", force=True).acquire()
    first.release()
    assert second.acquire()
    second.release()
    assert config.leader_lock("projector") == tmp_path / "run" / "leader-projector.lock"


@pytest.mark.slow
def test_kafka_elects_by_a_group_per_role_on_a_topic_of_its_own(tmp_path: Path) -> None:
    config = load_config(
        tmp_path, kafka={"bootstrap.servers": "127.0.0.1:9"}, topics={"prefix": "a."}, leadership={"adapter": "kafka"}
    )
    projector = Ledger.open(config).leadership("projector")
    assert isinstance(projector, KafkaLeadership)
    assert not projector.acquire()
    projector.close()
    assert isinstance(Ledger.open(config).leadership("projector", force=True), ForcedLeadership)
    leaders = [spec for spec in specs(config.topic_settings()) if spec.name == "a.ledger.leaders"]
    assert [spec.partitions for spec in leaders] == [1]
    assert len(specs(load_config(tmp_path).topic_settings())) == 3


def test_the_log_is_that_of_the_settings(config: Config, tmp_path: Path) -> None:
    assert isinstance(Ledger.open(config).event_log, KafkaLog)
    with pytest.raises(ConfigError, match="No ledger runs"):
        Ledger.open(load_config(tmp_path)).event_log  # noqa: B018


def test_the_source_reads_as_many_restore_points_as_the_projector_offers(tmp_path: Path) -> None:
    config = load_config(tmp_path, kafka={"bootstrap.servers": "127.0.0.1:9"}, projector={"restore_points": 5})
    assert Ledger.open(config).source().keep == 5
