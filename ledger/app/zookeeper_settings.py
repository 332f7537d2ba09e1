"""Derives the settings of the connection to ZooKeeper from the ledger's settings. Opens no connection."""

from __future__ import annotations

from pathlib import Path

from ledger.adapters.zookeeper.recipe import hosts
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from ledger.config.config import Config, read_secret
from ledger.errors import ConfigError


def zookeeper_settings(config: Config) -> ZooKeeperSettings:
    """The settings of the connection to ZooKeeper. They include secrets: never show them.

    Raises: ConfigError if a setting is missing or invalid, or a file with a secret can't be read."""
    given = config.zookeeper
    if not given.hosts:
        hint = "Set LEDGER_ZOOKEEPER__HOSTS=host:port,host:port"
        raise ConfigError("leadership.adapter is zookeeper, but zookeeper.hosts is not set.", hint=hint)
    try:
        hosts(given.hosts)
    except ValueError as error:
        hint = "Write host:port,host:port; put a path into zookeeper.chroot."
        raise ConfigError(f"zookeeper.hosts is invalid: {error}.", hint=hint) from None
    if given.auth and not (given.username and given.password_file):
        raise ConfigError(f"zookeeper.auth {given.auth} needs zookeeper.username and zookeeper.password_file.")
    if (given.tls_cert_file is None) != (given.tls_key_file is None):
        raise ConfigError("Set both zookeeper.tls_cert_file and zookeeper.tls_key_file, or neither.")
    for name in ("tls_ca_file", "tls_cert_file", "tls_key_file"):
        file = getattr(given, name)
        if given.tls and file is not None and not file.expanduser().is_file():
            raise ConfigError(f"The file that zookeeper.{name} names is not there: {file}.")
    return ZooKeeperSettings(
        hosts=given.hosts,
        chroot=given.chroot,
        session_timeout_s=config.leadership.session_timeout_s,
        auth=given.auth,
        username=given.username,
        password=_secret("zookeeper.password_file", given.password_file),
        tls=given.tls,
        tls_ca=_absolute(given.tls_ca_file),
        tls_cert=_absolute(given.tls_cert_file),
        tls_key=_absolute(given.tls_key_file),
        tls_key_password=_secret("zookeeper.tls_key_password_file", given.tls_key_password_file),
        tls_verify_hostname=given.tls_verify_hostname,
    )


def _secret(name: str, file: Path | None) -> str:
    return "" if file is None else read_secret(name, file)


def _absolute(file: Path | None) -> Path | None:
    return None if file is None else file.expanduser().absolute()
