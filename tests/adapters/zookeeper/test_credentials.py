"""Leadership by ZooKeeper with access control: users, and certificates on both sides."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError

from ledger.adapters.zookeeper.leadership import candidates
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from ledger.embedded.ports import free_ports
from ledger.errors import Unreachable
from tests.adapters.zookeeper.world import LONG, World, leads_on, node_of
from tests.support.waiting import seconds_until
from tests.support.zookeepers import Zookeepers

pytestmark = pytest.mark.kafka  # it starts a JVM for each member


@pytest.mark.parametrize("auth", ["digest", "sasl"])
def test_with_a_user_nobody_else_reads_or_writes_what_we_make(
    auth: str, zookeepers: Zookeepers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        running = stack.enter_context(with_sasl(tmp_path)) if auth == "sasl" else zookeepers
        running.start()
        settings = ZooKeeperSettings(
            hosts=running.hosts, chroot=f"/t{uuid.uuid4().hex[:8]}", session_timeout_s=LONG,
            auth=auth, username="ledger", password="geheim",
        )  # fmt: skip
        world = World(settings, stack)
        anna, bert = world.leader("anna"), world.standby("bert")
        seconds_until(lambda: [one.who for one in candidates(settings, world.path)] == ["anna", "bert"], 30)
        stranger = world.client()
        for refused in (
            lambda: stranger.get_children(world.path),
            lambda: stranger.get(f"{world.path}/{node_of(anna)}"),
            lambda: stranger.set(f"{world.path}/{node_of(anna)}", b""),
            lambda: stranger.delete(f"{world.path}/{node_of(anna)}"),
            lambda: stranger.create(f"{world.path}/{'0' * 32}-1-0000000000"),
        ):
            with pytest.raises(NoAuthError):
                refused()
        with pytest.raises(Unreachable, match="NoAuthError"):
            candidates(replace(settings, auth=""), world.path)
        wrong = World(replace(settings, password="falsch"), stack).candidate("carl")
        wrong.acquire()
        seconds_until(lambda: wrong.standing().waits_for.startswith("zookeeper: "), 30)
        assert not wrong.valid()
        anna.release()
        seconds_until(bert.valid, LONG / 2)


@contextmanager
def with_sasl(folder: Path) -> Iterator[Zookeepers]:
    """One member that knows the user `ledger` by SASL."""
    jaas = folder / "jaas.conf"
    jaas.write_text(
        'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_ledger="geheim"; };\n', encoding="ascii"
    )
    extra = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with Zookeepers.open(folder / "sasl", 1, extra, java=[f"-Djava.security.auth.login.config={jaas}"]) as running:
        yield running


def test_by_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    make_certificate(tmp_path, "server")
    make_certificate(tmp_path, "client")
    (secure,) = free_ports(1)
    extra = {
        "secureClientPort": str(secure),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(tmp_path / "server.both.pem"),
        "ssl.trustStore.location": str(tmp_path / "client.pem"),
        "ssl.clientAuth": "need",
    }
    with Zookeepers.open(tmp_path / "tls", 1, extra), ExitStack() as stack:
        settings = ZooKeeperSettings(
            hosts=f"127.0.0.1:{secure}", session_timeout_s=LONG, tls=True,
            tls_ca=tmp_path / "server.pem", tls_cert=tmp_path / "client.pem", tls_key=tmp_path / "client.key",
        )  # fmt: skip
        world = World(settings, stack)
        anna, bert = world.leader("anna"), world.standby("bert")
        leads_on(anna, 2)
        anna.release()
        seconds_until(bert.valid, LONG / 2)
        for stranger in (
            replace(settings, tls_ca=None),  # the client does not trust the server
            replace(settings, tls_ca=tmp_path / "client.pem"),
            replace(settings, tls_cert=None, tls_key=None),  # the server does not trust the client
            replace(settings, hosts=f"localhost:{secure}"),  # not the name in the certificate
            replace(settings, tls=False),
        ):
            with pytest.raises(Unreachable):
                candidates(stranger, world.path, timeout_s=1)
        trusting = replace(settings, hosts=f"localhost:{secure}", tls_verify_hostname=False)
        seconds_until(lambda: candidates(trusting, world.path), 30)


def make_certificate(folder: Path, name: str) -> None:
    """Writes <name>.pem, <name>.key, and both in one file, as the servers need it."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", key, "-out", certificate, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / f"{name}.both.pem").write_text(key.read_text() + certificate.read_text())
