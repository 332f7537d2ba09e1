"""Find Java, or install it where that can be done without asking. Kafka 4.3 and Spark 4.0 both run on 17 and 21."""

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

#: For JVMs that live some minutes on few cores, as JDK_JAVA_OPTIONS: no second, slower compiler, and a collector without
#: threads of its own. What that saves: `python -m benchmarks.jvm_options`.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_JVM_FOLDER = Path("/usr/lib/jvm")


def find_java() -> Path:
    """The `java` program to run: of JAVA_HOME, of the PATH, then the newest accepted one in /usr/lib/jvm.

    An unfit Java is passed over, wherever it was named; it is listed in the error if nothing fits.
    Raises: ConfigError if there is no Java 17 or 21."""
    unfit: list[str] = []
    for java in _candidates():
        major = java_major(java)
        if major in MAJORS:
            return java
        unfit.append(f"{java} is {f'Java {major}' if major else 'of no version it would tell'}")
    seen = f" ({'; '.join(unfit)})" if unfit else ""
    raise ConfigError(f"no Java 17 or 21 in JAVA_HOME, on the PATH or in {_JVM_FOLDER}{seen}", hint=INSTALL_HINT)


def java_home() -> Path:
    """What JAVA_HOME has to be for programs that look there first, such as Spark. Raises: as `find_java`."""
    return find_java().parent.parent


def ensure_java() -> Path:
    """`find_java`, after installing a headless JRE if there is none: only as root and only with apt-get.

    Raises: ConfigError if there is none and none can be installed."""
    try:
        return find_java()
    except ConfigError:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise
    _apt_get("update")
    # Each Debian release carries only one of the two.
    for major in MAJORS:
        if _apt_get("install", "--yes", "--no-install-recommends", f"openjdk-{major}-jre-headless"):
            return find_java()
    raise ConfigError("apt-get could install neither Java 17 nor Java 21", hint=INSTALL_HINT)


def java_major(java: Path) -> int | None:
    """The major version of a `java` program; None if it does not tell.

    The file `release` beside it is asked first: starting a JVM only to hear its version costs a few tenths of a second."""
    release = java.parent.parent / "release"
    if release.is_file():
        text = release.read_text(errors="replace")
    else:
        try:
            told = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = told.stderr + told.stdout
    found = re.search(r'(?:^JAVA_VERSION=| version )"(\d+)', text, re.MULTILINE)
    return int(found[1]) if found else None


def _candidates() -> Iterator[Path]:
    """Existing `java` programs in order of preference, links followed so that their home is two folders up."""
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
    """Run apt-get with its output on stderr (stdout may be someone's JSON); whether it went well."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", "-q", *arguments], stdout=sys.stderr, env=environment, check=False)
    return done.returncode == 0
