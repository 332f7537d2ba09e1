"""Finds Java, or installs it if no confirmation is needed. Kafka 4.3 and Spark 4.0 both run on Java 17 and 21."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ledger.errors import ConfigError

MAJORS = (17, 21)
INSTALL_HINT = "Install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one."

#: JDK_JAVA_OPTIONS for JVMs that run for minutes on few cores: no C2 compiler, and a garbage collector without threads
#: of its own. `python -m benchmarks.jvm_options` measures the gain.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_JVM_FOLDER = Path("/usr/lib/jvm")


def find_java() -> Path:
    """The path of the `java` program to run: the first of version 17 or 21 in JAVA_HOME, on the PATH, in /usr/lib/jvm
    (newest first).

    Raises: ConfigError if there is no Java 17 or 21. The error lists the programs of other versions."""
    unfit: list[str] = []
    for java in _candidates():
        major = java_major(java)
        if major in MAJORS:
            return java
        unfit.append(f"{java} is {f'Java {major}' if major else 'of unknown version'}")
    seen = f" ({'; '.join(unfit)})" if unfit else ""
    raise ConfigError(f"no Java 17 or 21 in JAVA_HOME, on the PATH or in {_JVM_FOLDER}{seen}", hint=INSTALL_HINT)


def java_home() -> Path:
    """The value of JAVA_HOME for programs that read it, such as Spark. Raises: ConfigError as `find_java`."""
    return find_java().parent.parent


def ensure_java() -> Path:
    """The path of the `java` program to run, as `find_java`. Without Java, a headless JRE is installed with apt-get,
    which needs root.

    Raises: ConfigError if there is no Java and none can be installed."""
    try:
        return find_java()
    except ConfigError:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise
    _apt_get("update")
    # Each Debian release has only one of the two versions.
    for major in MAJORS:
        if _apt_get("install", "--yes", "--no-install-recommends", f"openjdk-{major}-jre-headless"):
            return find_java()
    raise ConfigError("apt-get could install neither Java 17 nor Java 21", hint=INSTALL_HINT)


def java_major(java: Path) -> int | None:
    """The major version of a `java` program, such as 17; None if the version is unknown.

    Reads the JDK's file `release` if the JDK has one, because starting a JVM takes a few tenths of a second."""
    release = java.parent.parent / "release"
    if release.is_file():
        text = release.read_text(errors="replace")
    else:
        try:
            answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = answer.stderr + answer.stdout
    found = re.search(r'(?:^JAVA_VERSION=| version )"(\d+)', text, re.MULTILINE)
    return int(found[1]) if found else None


def _candidates() -> Iterator[Path]:
    """Existing `java` programs in order of preference. Links are resolved, so that the Java home is two folders up."""
    home = os.environ.get("JAVA_HOME")
    named = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    if on_path:
        named.append(Path(on_path))
    seen: set[Path] = set()
    installed = sorted(_JVM_FOLDER.glob("*/bin/java"), key=lambda java: java_major(java) or 0, reverse=True)
    for java in [*named, *installed]:
        real = java.resolve()
        if real not in seen and os.access(real, os.X_OK) and real.is_file():
            seen.add(real)
            yield real


def _apt_get(*arguments: str) -> bool:
    """Whether apt-get succeeded. Its output goes to stderr, because a caller's stdout may be JSON."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", "-q", *arguments], stdout=sys.stderr, env=environment, check=False)
    return done.returncode == 0
