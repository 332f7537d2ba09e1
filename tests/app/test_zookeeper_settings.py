"""The election that the settings name, and settings that are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters.local.leadership import FileLockLeadership
from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership
from ledger.app.ledger import Ledger
from ledger.app.zookeeper_settings import zookeeper_settings
from ledger.config.config import Config, load_config
from ledger.errors import ConfigError, Unreachable


def load(folder: Path, adapter: str = "zookeeper", session_timeout_s: float = 10, **zookeeper: Any) -> Config:
    return load_config(
        folder,
        leadership={"adapter": adapter, "session_timeout_s": session_timeout_s},
        zookeeper={"hosts": "127.0.0.1:1"} | zookeeper,
        topics={"prefix": "test."},
    )


def test_a_file_is_the_default(tmp_path: Path) -> None:
    config = load_config(tmp_path)
    assert config.leadership.adapter == "file"
    one = Ledger.open(config).leadership("projector")
    assert isinstance(one, FileLockLeadership)
    assert Ledger.open(config).candidates("projector") == []
    one.acquire()
    (found,) = Ledger.open(config).candidates("projector")
    assert found.leads
    one.release()


@pytest.mark.slow
def test_zookeeper_if_it_is_named(tmp_path: Path) -> None:
    config = load(tmp_path, chroot="/a")
    made = Ledger.open(config).leadership("projector")
    assert isinstance(made, ZooKeeperLeadership)
    assert made._strategy._path == "/a/test.leaders/projector"
    assert not made.valid()  # no connection was started for it
    assert not made._started
    made.close()
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        Ledger.open(config).candidates("projector")


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name == "kazoo" or name.startswith("kazoo.")]:
        monkeypatch.delitem(sys.modules, module)
    for module in ("leadership", "node_strategy", "link", "client"):
        monkeypatch.delitem(sys.modules, f"ledger.adapters.zookeeper.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    for ask in (
        lambda made, role: Ledger.open(made).leadership(role),
        lambda made, role: Ledger.open(made).candidates(role),
    ):
        with pytest.raises(ConfigError) as caught:
            ask(load(tmp_path), "projector")
        assert "pip install 'jobledger[zookeeper]'" in caught.value.hint


def test_everything_that_is_set_arrives(tmp_path: Path) -> None:
    secret, key_secret, pem = tmp_path / "password", tmp_path / "key.password", tmp_path / "x.pem"
    secret.write_text("geheim\n")
    key_secret.write_text("noch geheimer\n")
    pem.write_text("")
    config = load(
        tmp_path, session_timeout_s=4, chroot="/c", auth="digest", username="u", password_file=secret, tls=True,
        tls_ca_file=pem, tls_cert_file=pem, tls_key_file=pem, tls_key_password_file=key_secret, tls_verify_hostname=False,
    )  # fmt: skip
    made = zookeeper_settings(config)
    assert (made.hosts, made.chroot, made.session_timeout_s) == ("127.0.0.1:1", "/c", 4)
    assert (made.auth, made.username, made.password) == ("digest", "u", "geheim")
    assert (made.tls, made.tls_ca, made.tls_cert, made.tls_key) == (True, pem, pem, pem)
    assert (made.tls_key_password, made.tls_verify_hostname) == ("noch geheimer", False)
    assert "geheim" not in json.dumps(config.shown())


@pytest.mark.parametrize(
    ("zookeeper", "told"),
    [
        ({"hosts": ""}, "zookeeper.hosts is not set"),
        ({"hosts": "zk1:x"}, "zookeeper.hosts"),
        ({"hosts": "zk1:2181/chroot"}, "zookeeper.hosts"),
        ({"auth": "digest"}, "zookeeper.username and zookeeper.password_file"),
        ({"auth": "sasl", "username": "u"}, "zookeeper.password_file"),
        ({"auth": "digest", "username": "u", "password_file": "/nowhere/at/all"}, "zookeeper.password_file"),
        ({"tls": True, "tls_cert_file": "x"}, "tls_key_file"),
        ({"tls": True, "tls_ca_file": "/nowhere/at/all"}, "tls_ca_file"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(zookeeper: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        Ledger.open(load(tmp_path, **zookeeper)).leadership("projector")


def test_config_check_looks_at_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ledger", "config", "check", "-b", "k:1", "--dir", str(tmp_path)]
    environment = {**os.environ, "LEDGER_LEADERSHIP__ADAPTER": "zookeeper", "LEDGER_ZOOKEEPER__HOSTS": "zk1:x"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (told.returncode, "zookeeper.hosts" in told.stderr) == (2, True)
    environment["LEDGER_ZOOKEEPER__HOSTS"] = "zk1:2181"
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        ("leadership", {"adapter": "etcd"}), ("leadership", {"session_timeout_s": 0.5}), ("zookeeper", {"auth": "x509"}),
        ("zookeeper", {"chroot": "ledger"}), ("zookeeper", {"chroot": "/a//b"}), ("zookeeper", {"host": "x"}),
    ],
)  # fmt: skip
def test_what_is_no_setting_is_refused(section: str, setting: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{section}.{next(iter(setting))}"):
        load_config(tmp_path, **{section: setting})
