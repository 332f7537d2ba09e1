"""Writes the configuration files of Java servers: properties files and the log4j2 configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

LOG_PROPERTY = "ledger.broker.log"
"""The system property that `LOG4J` reads the path of the log from."""

LOG4J = """\
status = error
shutdownHook = disable
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:ledger.broker.log}
appender.file.filePattern = ${sys:ledger.broker.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


def properties(settings: Mapping[str, str]) -> str:
    """The text of a Java properties file. Java reads the file as Latin-1, so non-ASCII characters are escaped."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in sorted(settings.items()))


def _escaped(text: str) -> str:
    plain = {"\n": "\\n", "\r": "\\r", "\t": "\\t"} | {one: f"\\{one}" for one in "\\ =:#!"}
    units = text.encode("utf-16-be")
    characters = (chr(int.from_bytes(units[at : at + 2])) for at in range(0, len(units), 2))
    return "".join(plain.get(one) or (one if one.isascii() else f"\\u{ord(one):04x}") for one in characters)


def unescaped(value: str) -> str:
    """The value of a line that `properties` wrote. Escapes of control characters are not resolved: no path has any."""
    units = re.sub(r"\\u([0-9a-f]{4})", lambda unit: chr(int(unit[1], 16)), value)
    whole = units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    return re.sub(r"\\([\\ =:#!])", r"\1", whole)


def write_whole(path: Path, text: str) -> None:
    """Writes a file atomically: it exists in full or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
