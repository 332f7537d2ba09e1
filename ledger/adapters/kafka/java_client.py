"""Translates librdkafka's settings to those of Kafka's Java client, which Spark uses.

Covers only the settings of an encrypted or authenticated connection. A setting of that kind without a counterpart here
is an error; none is dropped silently. Sources: librdkafka's CONFIGURATION.md; Kafka's "Security" and KIP-651 (PEM);
docs/decisions/0048."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ledger.errors import ConfigError

#: SASL mechanism -> the Java class that implements it.
LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: The settings that are translated below. Any other setting of ssl.* or sasl.* is refused if the protocol would use it.
_SASL = {"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"}
_SSL = {
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem",
    "ssl.key.password", "ssl.keystore.location", "ssl.keystore.password", "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
}  # fmt: skip
_PKCS8 = "-----BEGIN PRIVATE KEY-----"
READERS = "the reconciler and the archiver, which read Kafka by Spark,"


def java_settings(client: Mapping[str, str]) -> dict[str, str]:
    """bootstrap.servers and the connection settings, by the names of the Java client, secrets included.

    client: librdkafka settings, with secrets already read from their files. Raises: ConfigError if Spark's client has
    no counterpart of a setting, or a setting that it needs is missing."""
    made = {"bootstrap.servers": client["bootstrap.servers"]}
    protocol = client.get("security.protocol", "plaintext").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"kafka.security.protocol must be one of {', '.join(PROTOCOLS)}.")
    if protocol == "PLAINTEXT":
        return made
    made["security.protocol"] = protocol
    with_sasl, with_ssl = protocol.startswith("SASL"), protocol.endswith("SSL")
    _refuse_others(client, with_sasl, with_ssl)
    if with_sasl:
        made |= _sasl(client)
    if with_ssl:
        made |= _trust(client) | _own_certificate(client)
    return made


def _refuse_others(client: Mapping[str, str], with_sasl: bool, with_ssl: bool) -> None:
    others = [
        name for name in sorted(client)
        if (with_sasl and name.startswith(("sasl.", "enable.sasl")) and name not in _SASL)
        or (with_ssl and name.startswith(("ssl.", "enable.ssl")) and name not in _SSL)
    ]  # fmt: skip
    if others:
        raise _refused(f"kafka.{', kafka.'.join(others)}")


def _sasl(client: Mapping[str, str]) -> dict[str, str]:
    mechanism = client.get("sasl.mechanism") or client.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in LOGIN_MODULES:
        raise _refused(f"kafka.sasl.mechanism {mechanism}", f"They can use {', '.join(LOGIN_MODULES)}.")
    missing = [name for name in ("sasl.username", "sasl.password") if not client.get(name)]
    if missing:
        raise ConfigError(f"kafka.sasl.mechanism {mechanism} needs kafka.{' and kafka.'.join(missing)}.")
    name, word = _quoted(client["sasl.username"]), _quoted(client["sasl.password"])
    login = f"{LOGIN_MODULES[mechanism]} required username={name} password={word};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _trust(client: Mapping[str, str]) -> dict[str, str]:
    """The settings for the authorities that may sign the brokers' certificates. Without any, the JVM's own trust store
    is used."""
    made = {}
    if client.get("enable.ssl.certificate.verification", "true").lower() not in ("true", "t", "1"):
        raise _refused("kafka.enable.ssl.certificate.verification = false", "Name the authority: kafka.ssl.ca.location")
    identified = client.get("ssl.endpoint.identification.algorithm", "https")
    if identified not in ("https", "none"):
        raise _refused(f"kafka.ssl.endpoint.identification.algorithm = {identified}")
    if identified == "none":
        made["ssl.endpoint.identification.algorithm"] = ""
    if text := client.get("ssl.ca.pem"):
        return made | {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}
    if named := client.get("ssl.ca.location"):
        path = Path(named).expanduser().absolute()  # the JVM may have another working directory
        if not path.is_file():
            raise _refused(f"kafka.ssl.ca.location = {named}", "It must be a file of certificates (PEM) that can be read.")
        return made | {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    return made


def _own_certificate(client: Mapping[str, str]) -> dict[str, str]:
    """The settings of our own client certificate, for brokers that require one (mutual TLS)."""
    if store := client.get("ssl.keystore.location"):
        made = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(Path(store).expanduser().absolute())}
        return made | {f"ssl.{kind}.password": word for kind in ("keystore", "key")
                       if (word := client.get("ssl.keystore.password", ""))}  # fmt: skip
    certificate, key = _pem(client, "ssl.certificate"), _pem(client, "ssl.key")
    if not certificate and not key:
        return {}
    if not certificate or not key:
        raise ConfigError("Set both kafka.ssl.certificate.location and kafka.ssl.key.location, or neither.")
    if "ENCRYPTED" in key:  # Java 17 has no SecretKeyFactory named PBES2, which Kafka requests
        raise _refused("a private key (PEM) with a password", "Take a PKCS #12 file: kafka.ssl.keystore.location")
    if not key.lstrip().startswith(_PKCS8):
        raise _refused("a private key that is not in PKCS #8", "Convert it: openssl pkcs8 -topk8 -nocrypt")
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}


def _pem(client: Mapping[str, str], name: str) -> str:
    """The PEM text from the settings or from the file that they name; "" if neither is set."""
    if text := client.get(f"{name}.pem"):
        return text
    if not (named := client.get(f"{name}.location")):
        return ""
    try:
        return Path(named).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The file that kafka.{name}.location names can't be read: {error}.") from error


def _quoted(text: str) -> str:
    """The text as a JAAS string: its tokenizer knows the escapes of C."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _refused(what: str, hint: str = "") -> ConfigError:
    return ConfigError(f"Kafka: {READERS} can't use {what}.", hint=hint or "docs/RUNBOOK.md lists what they can use.")
