"""The settings of librdkafka translated for Spark's Kafka client, or an error that names those without a counterpart."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ledger.adapters.kafka.java_client import java_settings
from ledger.config.config import load_config
from ledger.errors import ConfigError
from tests.support.pages import ROOT, blocks
from tests.support.servers import create_topic

HERE = {"bootstrap.servers": "k:9092"}
SASL = {**HERE, "security.protocol": "sasl_plaintext", "sasl.username": "u", "sasl.password": "p"}
PKCS8 = "-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----\n"


def test_without_a_protocol_the_address_is_all_that_is_passed_on() -> None:
    assert java_settings({**HERE, "client.id": "a", "ssl.ca.location": "/none", "sasl.username": "u"}) == HERE


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ({**SASL, "sasl.mechanisms": "PLAIN"}, {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config":
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";',
        }),
        ({**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.password": 'a"b\\c\nd'}, {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config":
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="a\\"b\\\\c\\nd";',
        }),
        ({**HERE, "security.protocol": "SSL", "sasl.kerberos.keytab": "is not used"}, {"security.protocol": "SSL"}),
        ({**HERE, "security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none", "ssl.ca.pem": "CA"}, {
            "security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "", "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "CA",
        }),
        ({**HERE, "security.protocol": "ssl", "ssl.certificate.pem": "C", "ssl.key.pem": PKCS8}, {
            "security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "C",
            "ssl.keystore.key": PKCS8,
        }),
        ({**HERE, "security.protocol": "ssl", "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "w"}, {
            "security.protocol": "SSL", "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12",
            "ssl.keystore.password": "w", "ssl.key.password": "w",
        }),
    ],
)  # fmt: skip
def test_each_setting_has_its_counterpart(client: dict[str, str], expected: dict[str, str]) -> None:
    assert java_settings(client) == {**HERE, **expected}


def test_files_are_named_whole_and_their_texts_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's JVM has another working directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("ca.pem", "CA"), ("c.pem", "C"), ("k.pem", PKCS8)):
        (tmp_path / name).write_text(text)
    made = java_settings({**HERE, "security.protocol": "ssl", "ssl.ca.location": "ca.pem",
                          "ssl.certificate.location": "c.pem", "ssl.key.location": "k.pem"})  # fmt: skip
    assert made["ssl.truststore.location"] == str(tmp_path / "ca.pem")
    assert (made["ssl.keystore.certificate.chain"], made["ssl.keystore.key"]) == ("C", PKCS8)


@pytest.mark.parametrize(
    ("client", "named"),
    [
        ({"security.protocol": "tls"}, "kafka.security.protocol"),
        ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism GSSAPI"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "kafka.sasl.mechanism OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}, "kafka.sasl.password"),
        ({**SASL, "sasl.mechanism": "PLAIN", "sasl.oauthbearer.config": "x"}, "kafka.sasl.oauthbearer.config"),
        ({"security.protocol": "SSL", "ssl.crl.location": "x", "ssl.cipher.suites": "y"},
         "kafka.ssl.cipher.suites, kafka.ssl.crl.location"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}, "certificate.verification"),
        ({"security.protocol": "SSL", "ssl.ca.location": "probe"}, "kafka.ssl.ca.location = probe"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/"}, "kafka.ssl.ca.location = /"),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "C"}, "kafka.ssl.key.location"),
        ({"security.protocol": "SSL", "ssl.certificate.location": "/none"}, "kafka.ssl.certificate.location"),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "C", "ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"},
         "PKCS #8"),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "C", "ssl.key.pem": "-----BEGIN ENCRYPTED PRIVATE KEY-----"},
         "a private key (PEM) with a password"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "other"}, "identification.algorithm"),
    ],
)  # fmt: skip
def test_what_has_none_is_refused_by_name_and_never_left_out(client: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        java_settings({**HERE, **client})
    assert named in str(caught.value)
    assert "BEGIN" not in str(caught.value)


def test_the_settings_that_the_runbook_shows_are_taken(tmp_path: Path) -> None:
    (shown,) = ["\n".join(b.lines) for b in blocks((ROOT / "docs" / "RUNBOOK.md").read_text()) if "secured-kafka" in b.info]
    (tmp_path / "ca.pem").touch()
    (tmp_path / "kafka.password").write_text("p\n")
    (tmp_path / "ledger.toml").write_text(shown.replace("/etc/jobledger", str(tmp_path)))
    made = java_settings(load_config(tmp_path).client())
    assert (made["security.protocol"], made["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert 'username="jobledger" password="p"' in made["sasl.jaas.config"]


@pytest.mark.parametrize("arguments", [("config", "check"), ("serve", "reconciler"), ("serve", "archiver")])
def test_commands_refuse_what_spark_can_not_use_before_they_reach_for_a_server(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    settings = ("-b", "127.0.0.1:1", "-X", "security.protocol=SSL", "-X", "ssl.cipher.suites=ALL")
    run = subprocess.run(
        [sys.executable, "-m", "ledger", *arguments, "--dir", str(tmp_path), *settings],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert "the reconciler and the archiver, which read Kafka by Spark, can't use kafka.ssl.cipher.suites" in run.stderr


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    from tests.adapters.secured import PASSWORD, USER, secured_broker

    with secured_broker(tmp_path_factory.mktemp("secured")) as (broker, clients):
        create_topic(broker.bootstrap, "secured", 1)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        made = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.alter_user_scram_credentials([made])[USER].result(60)
        yield clients


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(150)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_spark_reads_what_librdkafka_wrote_by_the_same_settings(
    secured: dict[str, dict[str, str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """SASL passwords over TLS, and certificates on both sides. No secret appears in errors or output."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from ledger.adapters.spark.session import start_session
    from tests.adapters.secured import PASSWORD, STORE_PASSWORD

    spark = start_session(tmp_path / "spark", slots=2)

    def read(client: dict[str, str]) -> list[str]:
        settings = {f"kafka.{name}": value for name, value in java_settings(client).items()}
        rows = spark.read.format("kafka").options(subscribe="secured", **settings).load()
        return sorted(row.value for row in rows.selectExpr("CAST(value AS STRING) AS value").collect())

    try:
        for kind, client in secured.items():
            producer = Producer(dict[str, str | int | float | bool](client))
            producer.produce("secured", kind.encode())
            assert producer.flush(60) == 0
            assert kind in read(client)
        with pytest.raises((Py4JError, PySparkException)) as caught:
            read({**secured["PLAIN"], "sasl.password": f"wrong {PASSWORD}"})
        told = str(caught.value) + "".join(capfd.readouterr())
        assert "uthentication" in told
        assert not [secret for secret in (PASSWORD, STORE_PASSWORD, "PRIVATE KEY") if secret in told]
    finally:
        spark.stop()
        gc.collect()
