"""Reads settings from the environment and from a TOML file, each as nested tables. `config` validates them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.errors import ConfigError

_UNDERSCORED = {"log.level": "log_level"}  # the one librdkafka name with an underscore that a user may set


def default_dir() -> Path:
    """The default folder of this user's ledger: $XDG_DATA_HOME/jobledger."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "jobledger"


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings among the environment variables, nested as in the TOML file. An empty variable counts as not set."""
    found: dict[str, Any] = {}
    for variable, field in (("LEDGER_DIR", "dir"), ("LEDGER_CONFIG", "config_file")):
        if environment.get(variable):
            found[field] = environment[variable]
    for variable, value in environment.items():
        section, separator, key = variable.removeprefix("LEDGER_").lower().partition("__")
        if variable.startswith("LEDGER_") and separator and value:
            table, name = found.setdefault(section, {}), key
            if section == "kafka":
                name = kafka_name(key)
            elif section == "spark":
                name = key.replace("_", ".")
            elif section == "pools":
                pool, _, name = key.partition("__")
                table = table.setdefault(pool, {})
            table[name] = value
    return found


def kafka_name(name: str) -> str:
    """The name of a Kafka setting as Kafka writes it: `bootstrap_servers` -> `bootstrap.servers`."""
    dotted = name.replace("_", ".")
    return _UNDERSCORED.get(dotted, dotted)


def file_of(known: Mapping[str, Any]) -> Path | None:
    """The TOML file to read; None if there is none. known: the settings from flags and environment."""
    if known.get("config_file") is not None:
        return Path(known["config_file"]).expanduser()
    file = Path(known.get("dir") or default_dir()).expanduser() / "ledger.toml"
    return file if file.exists() else None


def from_file(file: Path | None) -> dict[str, Any]:
    """The settings in the TOML file; {} if `file` is None. Raises: ConfigError if the file can't be read."""
    if file is None:
        return {}
    try:
        with file.open("rb") as stream:
            settings = tomllib.load(stream)
        for section in ("kafka", "spark"):
            if isinstance(settings.get(section), dict):
                settings[section] = _flat(settings[section])
    except (OSError, ValueError, RecursionError) as error:  # tomllib raises ValueErrors, also for an invalid date
        raise ConfigError(f"The settings in {file} can't be read: {error}.") from error
    if misplaced := {"dir", "config_file"} & set(settings):
        raise ConfigError(f"{file} sets {', '.join(misplaced)}: a file can't set its own location.", hint="Use --dir.")
    return settings


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The table with dotted names, because TOML reads an unquoted `bootstrap.servers = …` as nested tables."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return flat


def names_of(layer: Mapping[str, Any]) -> list[str]:
    """The dotted names of all settings in nested tables."""
    names = []
    for section, value in layer.items():
        names += [f"{section}.{key}" for key in names_of(value)] if isinstance(value, Mapping) else [section]
    return names


def text_of(setting: Any) -> str:
    """The value of a setting as text, as in the environment. Raises: ValueError if the value is not a text, number or
    boolean."""
    if isinstance(setting, bool):
        return str(setting).lower()
    if isinstance(setting, str | int | float):
        return str(setting)
    raise ValueError("each value must be a text, a number, true or false")
