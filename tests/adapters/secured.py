"""A Kafka with authentication: certificates made for the test, and a broker whose listeners require them."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from ledger.embedded.broker import Broker
from ledger.embedded.ports import free_ports
from tests.support.servers import RunningBroker

USER, PASSWORD = "alice", 'not "easy" to\\quote;'
STORE_PASSWORD = "of the store"


class Authority:
    """A certificate authority. All its files are in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test's authority")])
        made = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.file = folder / "ca.pem"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path, Path]:
        """Certificate and key (PKCS #8) for a name at 127.0.0.1, and both in one store (PKCS #12, with STORE_PASSWORD)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = self._builder(subject, key).add_extension(here, critical=False).sign(self._key, hashes.SHA256())
        certificate_file, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
        store_file = self.folder / f"{name}.p12"
        locked = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        store_file.write_bytes(pkcs12.serialize_key_and_certificates(name.encode(), key, signed, None, locked))
        return certificate_file, key_file, store_file

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
        )  # fmt: skip


@contextmanager
def secured_broker(folder: Path) -> Iterator[tuple[RunningBroker, dict[str, dict[str, str]]]]:
    """The broker, whose main address needs no login; and kind of listener -> librdkafka settings of a client that may
    use it."""
    authority = Authority(folder / "keys")
    certificate, key, _ = authority.issue("broker")
    both = folder / "keys" / "broker-both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    broker = Broker.at(folder / "broker")
    plain, scram, mutual = (f"127.0.0.1:{port}" for port in free_ports(3))
    listeners = {"PLAINTEXT": broker.bootstrap, "PLAIN": plain, "SCRAM": scram, "MUTUAL": mutual}
    told = ",".join(f"{name}://{address}" for name, address in listeners.items())
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{quoted}";'
    extra = {
        "listeners": f"{told},CONTROLLER://127.0.0.1:{broker.controller_port}",
        "advertised.listeners": told,
        "listener.security.protocol.map":
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAIN:SASL_SSL,SCRAM:SASL_SSL,MUTUAL:SSL",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": login,
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config":
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.file),
    }  # fmt: skip
    running = RunningBroker(replace(broker, extra=extra))
    own, own_key, store = authority.issue("client")
    trusts = {"ssl.ca.location": str(authority.file)}
    says = {"security.protocol": "SASL_SSL", "sasl.username": USER, "sasl.password": PASSWORD, **trusts}
    asked = {"bootstrap.servers": mutual, "security.protocol": "ssl", **trusts}
    clients = {
        "PLAIN": {"bootstrap.servers": plain, "sasl.mechanisms": "PLAIN", **says},
        "SCRAM": {"bootstrap.servers": scram, "sasl.mechanism": "SCRAM-SHA-512", **says},
        "MUTUAL": {**asked, "ssl.certificate.location": str(own), "ssl.key.location": str(own_key)},
        "STORE": {**asked, "ssl.keystore.location": str(store), "ssl.keystore.password": STORE_PASSWORD},
    }  # fmt: skip
    try:
        running.start()
        yield running, clients
    finally:
        running.stop()
