"""Settings of the audit consumer: from the environment (AUDIT_<NAME>), else a TOML file (AUDIT_CONFIG), else the
default."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consumers.rules import Settings as Rules

_PLACE = re.compile(r"[A-Za-z0-9._-]+\[\d+\]@\d+")


class BadSetting(Exception):
    """A setting is wrong. The message names the setting, its source, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. bootstrap_servers: the Kafka brokers. prefix: of the ledger's topics. name: prefix of the names of
    this consumer's groups. replication_factor: of the topics that `topics` creates. web_port: of the readiness page, on
    loopback only. accepted: positions of rejects (`ledger.events[0]@17`) that no longer fail readiness."""

    bootstrap_servers: str
    rules: Rules
    prefix: str = ""
    name: str = "ledger-audit"
    replication_factor: int = 3
    web_port: int = 6066
    accepted: tuple[str, ...] = ()

    @property
    def events(self) -> str:
        return f"{self.prefix}ledger.events"

    @property
    def findings(self) -> str:
        return f"{self.prefix}ledger.audit.findings"

    @property
    def rejects(self) -> str:
        return f"{self.prefix}ledger.audit.rejects"


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return number

    return read


def _seconds(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number <= 0:
        raise ValueError("seconds above 0")
    return number


def _text(pattern: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise ValueError(f"text that matches {pattern}")
        return value

    return read


def _words(value: Any) -> tuple[str, ...]:
    found = [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(word, str) and word for word in found):
        raise ValueError("a list of texts; in the environment separated by commas")
    return tuple(found)


def _places(value: Any) -> tuple[str, ...]:
    found = _words(value)
    if bad := [place for place in found if _PLACE.fullmatch(place) is None]:
        raise ValueError(f"positions such as ledger.events[0]@17, not {bad[0]!r}")
    return found


_OWN: Mapping[str, Callable[[Any], Any]] = {
    "bootstrap_servers": _text(r"[^\s,;]+(,[^\s,;]+)*"),
    "prefix": _text(r"[A-Za-z0-9._-]{0,180}"),
    "name": _text(r"[A-Za-z0-9._-]{1,200}"),
    "replication_factor": _whole(1, 32),
    "web_port": _whole(1, 65_535),
    "accepted": _places,
}
_OF_RULES: Mapping[str, Callable[[Any], Any]] = {
    "actors": _words,
    "restarts_max": _whole(2, 1000),
    "restarts_window_s": _seconds,
    "gap_grace_s": _seconds,
    "gap_window_s": _seconds,
    "memory_max": _whole(100, 100_000_000),
}


KNOWN = frozenset({**_OWN, **_OF_RULES})


def load(environ: Mapping[str, str]) -> Settings:
    """The settings from environment, file and defaults. Raises: BadSetting if a setting is wrong."""
    given: dict[str, tuple[Any, str]] = {}
    if path := environ.get("AUDIT_CONFIG"):
        given |= {name: (value, f"{name} in {path}") for name, value in _file(path).items()}
    given |= {
        name[6:].lower(): (value, f"{name} in the environment")
        for name, value in environ.items()
        if name.startswith("AUDIT_") and name != "AUDIT_CONFIG"
    }
    known = {**_OWN, **_OF_RULES}
    read = {}
    for name, (value, where) in given.items():
        if name not in known:
            raise BadSetting(f"{where}: there is no such setting. Remove it, or use one of: {', '.join(sorted(known))}.")
        try:
            read[name] = known[name](value)
        except (ValueError, OverflowError) as error:
            raise BadSetting(f"{where}: {str(value)[:100]!r} is not allowed. Write {error}.") from error
    if "bootstrap_servers" not in read:
        raise BadSetting("bootstrap_servers is not set. Set AUDIT_BOOTSTRAP_SERVERS=HOST:PORT.")
    rules = Rules(**{name: read.pop(name) for name in _OF_RULES if name in read})
    return Settings(rules=rules, **read)


def _file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadSetting(f"AUDIT_CONFIG: can't read {path}: {error}. Name a TOML file that can be read.") from error
