"""Where settings are found: the environment and a TOML file, each as nested tables. What they mean is `config`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.errors import ConfigError

_UNDERSCORED = {"log.level": "log_level"}  # the one librdkafka name with an underscore that a user may set


def default_dir() -> Path:
    """Where the ledger of this user lies."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "jobledger"


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings among the variables, as nested as in the file. An empty variable counts as not set."""
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
    """`bootstrap_servers` -> `bootstrap.servers`."""
    dotted = name.replace("_", ".")
    return _UNDERSCORED.get(dotted, dotted)


def file_of(known: Mapping[str, Any]) -> Path | None:
    """The TOML file that is meant; None: there is none. known: what flags and environment say."""
    if known.get("config_file") is not None:
        return Path(known["config_file"]).expanduser()
    file = Path(known.get("dir") or default_dir()).expanduser() / "ledger.toml"
    return file if file.exists() else None


def from_file(file: Path | None) -> dict[str, Any]:
    """Raises: ConfigError if it can't be read."""
    if file is None:
        return {}
    try:
        with file.open("rb") as stream:
            settings = tomllib.load(stream)
        for section in ("kafka", "spark"):
            if isinstance(settings.get(section), dict):
                settings[section] = _flat(settings[section])
    except (OSError, ValueError, RecursionError) as error:  # tomllib raises its own, and that of a date that is none
        raise ConfigError(f"The settings in {file} can't be read: {error}.") from error
    if misplaced := {"dir", "config_file"} & set(settings):
        raise ConfigError(f"{file} sets {', '.join(misplaced)}: a file can't say where it lies.", hint="Use --dir.")
    return settings


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """TOML reads `bootstrap.servers = …` without quotes as a table in a table."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return flat


def names_of(layer: Mapping[str, Any]) -> list[str]:
    """The dotted name of everything that a layer sets."""
    names = []
    for section, value in layer.items():
        names += [f"{section}.{key}" for key in names_of(value)] if isinstance(value, Mapping) else [section]
    return names


def text_of(setting: Any) -> str:
    """As it would stand in the environment. Raises: ValueError if it is no plain value."""
    if isinstance(setting, bool):
        return str(setting).lower()
    if isinstance(setting, str | int | float):
        return str(setting)
    raise ValueError("each must be a text, a number or true or false")
