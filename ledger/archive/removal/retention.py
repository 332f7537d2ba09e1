"""Parses how long the archive keeps superseded records: `prod=365d,*=90d`, or the same as a table."""

from __future__ import annotations

import re
from collections.abc import Mapping

FOREVER = "forever"
#: Stands for every namespace that is not named.
ALL = "*"
_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d)?\Z")
_UNIT_S = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse(given: object) -> dict[str, float | None]:
    """How long to keep superseded records: namespace, or ALL -> seconds; None = forever. Raises: ValueError for any
    other text or table."""
    if isinstance(given, str):
        pairs = [part.partition("=") for part in given.split(",") if part.strip()]
        if wrong := [name for name, separator, _ in pairs if not separator]:
            raise ValueError(f"{wrong[0].strip()!r} is not NAMESPACE=DURATION")
        names = [name.strip() for name, _, _ in pairs]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"{min(twice)} is named twice")
        given = {name: value.strip() for name, (_, _, value) in zip(names, pairs, strict=True)}
    if not isinstance(given, Mapping):
        raise ValueError("the retention must be a table of NAMESPACE = duration, or a text NAMESPACE=DURATION,…")
    return {_namespace(name): _seconds(name, value) for name, value in given.items()}


def _namespace(name: object) -> str:
    if not isinstance(name, str) or (name != ALL and _NAMESPACE.match(name) is None):
        raise ValueError(f"{name!r} is neither a namespace nor {ALL}")
    return name


def _seconds(name: str, value: object) -> float | None:
    if value is None or value == FOREVER:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{name}: a duration is a number of seconds, or a text such as 90d")
    match = _DURATION.match(str(value))
    seconds = float(match[1]) * _UNIT_S[match[2]] if match else 0.0
    if not 0 < seconds < 1e11:
        raise ValueError(f"{name}: {value!r} is no duration. Write seconds, 12h, 90d, or {FOREVER}")
    return seconds
