"""The jars of the broker and of Spark's Kafka connector: brought once by the Ivy that PySpark carries, then kept.

Cache: `$XDG_CACHE_HOME/jobledger` (default `~/.cache/jobledger`), with `kafka-<version>/`: the broker's jars and a
manifest of their sizes. A folder gets that name only by a rename once everything is in it, and is taken only while
every jar has the size the manifest tells, so neither a half download nor a damaged cache is ever run.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from xml.sax.saxutils import quoteattr

from ledger.adapters.java.java import find_java, java_home
from ledger.errors import ConfigError

KAFKA_VERSION = "4.3.1"
# Kafka's artifacts bring log4j-core but nothing that connects it with slf4j 1.7: without it the broker is mute.
_BROKER = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
# What one ZooKeeper member needs of PySpark's jars; Netty for TLS. Spark's other 250 would only slow its start.
_ZOOKEEPER = (
    "zookeeper-[0-9]*", "zookeeper-jute-*", "slf4j-api-*", "log4j-slf4j2-impl-*", "log4j-api-*", "log4j-core-*",
    "metrics-core-4*", "snappy-java-*", "commons-io-2*", "commons-cli-*", "netty-*", "jackson-*-2*",
)  # fmt: skip
_MANIFEST = "manifest.json"
_PYSPARK_HINT = "Install it with: pip install 'jobledger[spark]'"
_NETWORK_HINT = "Check the network; then try again."
_DOWNLOAD_S = 900.0

Progress = Callable[[str], object]


def cache_folder() -> Path:
    """Where this user's downloads are kept. Not created here."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "jobledger"


def broker_classpath(progress: Progress = print) -> str:
    """The class path of the Kafka broker; the first call downloads some 45 MB, the others touch no network.

    Idempotent: also from several processes at once; one downloads, the others wait for it.
    Raises: ConfigError without Java or PySpark, or if the download fails (nothing is left behind)."""
    folder = cache_folder() / f"kafka-{KAFKA_VERSION}"
    if not is_whole(folder):
        with _locked(folder):
            if not is_whole(folder):
                progress(f"Downloading Kafka {KAFKA_VERSION} (45 MB, once) to {folder}")
                _download_broker(folder)
    return os.pathsep.join(str(folder / name) for name in sorted(_read_manifest(folder)))


def zookeeper_classpath() -> str:
    """The class path of a ZooKeeper member, of the jars that PySpark ships. No network.

    Raises: ConfigError without PySpark."""
    jars = [jar for name in _ZOOKEEPER for jar in sorted(_pyspark_jar(f"{name}.jar").parent.glob(f"{name}.jar"))]
    return os.pathsep.join(str(jar) for jar in jars)


def spark_connector(progress: Progress = print) -> list[Path]:
    """The jars of Spark's Kafka connector, of the PySpark that is installed, for `spark.jars`; those that PySpark ships
    itself are left out. The first call lets Spark resolve them into its own Ivy folder, the others touch no network.

    Not `spark.jars.packages`: what is named there is Python's path too, in every worker, which reads all the names in
    these jars anew for each task (decision 34). Idempotent.
    Raises: ConfigError without Java or PySpark, or if the download fails."""
    version = _pyspark_version()
    folder = cache_folder() / f"spark-connector-{version}"
    if not is_whole(folder):
        with _locked(folder):
            if not is_whole(folder):
                progress(f"Downloading Spark's Kafka connector {version} (60 MB, once)")
                jars = _resolve_by_spark(f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}")
                folder.mkdir(parents=True, exist_ok=True)
                write_manifest(folder, jars)
    shipped = tuple(f"_{jar.name}" for jar in spark_jars())
    return [folder / name for name in sorted(_read_manifest(folder)) if not name.endswith(shipped)]


def _download_broker(folder: Path) -> None:
    """Fill a new folder beside the final one and rename it there. Everything Ivy writes is inside and goes with it."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as temporary:
        work = Path(temporary)
        module = work / "ivy.xml"
        module.write_text(_ivy_module(_BROKER))
        whole = work / "jars"
        pattern = f"{whole}/[artifact]-[revision](-[classifier]).[ext]"
        # An Ivy cache of its own: Ivy's default one takes no lock, and a jar torn by a crash would be trusted.
        ivy = ["-ivy", str(module), "-cache", str(work / "ivy"), "-confs", "default", "-retrieve", pattern]
        _run_java(["-jar", str(_pyspark_jar("ivy-*.jar")), *ivy], what=f"Kafka {KAFKA_VERSION}")
        for _, name, version in _BROKER:
            if not (whole / f"{name}-{version}.jar").is_file():
                hint = "See that the repository in use carries it; then try again."
                raise ConfigError(f"Ivy brought no {name}-{version}.jar", hint=hint)
        write_manifest(whole, whole.glob("*.jar"))
        if folder.exists():  # damaged, or it would have been taken
            folder.rename(work / "damaged")
        whole.rename(folder)


def _resolve_by_spark(coordinate: str) -> list[Path]:
    """The jars of a coordinate, after Spark itself has resolved it.

    Only Spark's launcher is run, with a main class that prints Ivy's version and ends: its resolver and its folder are
    then exactly those of a later session, which no other way of calling Ivy promises (the cache is kept per resolver)."""
    launcher = ["-cp", str(_pyspark_jar("ivy-*.jar").parent / "*"), "org.apache.spark.deploy.SparkSubmit"]
    harmless = ["--class", "org.apache.ivy.Main", "spark-internal", "-version"]
    said = _run_java([*launcher, "--packages", coordinate, *harmless], what=coordinate)
    stored = re.search(r"jars for the packages stored in: (.+)", said)
    if stored is None:
        raise ConfigError(f"Spark did not say where it put {coordinate}: {_tail(said)}")
    folder = Path(stored[1].strip())
    modules = re.findall(r"found (\S+)#(\S+);(\S+) in", said)
    found = (folder / f"{group}_{name}-{version}.jar" for group, name, version in modules)
    jars = [jar for jar in found if jar.is_file()]  # a module that lost to a newer version of itself has no jar
    if not any("spark-sql-kafka" in jar.name for jar in jars):
        raise ConfigError(f"Spark resolved {coordinate}, but its jar is not in {folder}")
    return jars


def _run_java(arguments: list[str], *, what: str) -> str:
    """All that a Java program printed. Raises: ConfigError with its last words if it fails or takes too long."""
    environment = {**os.environ, "JAVA_HOME": str(java_home())}
    try:
        done = subprocess.run(
            [str(find_java()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise ConfigError(f"{what} was not there within {_DOWNLOAD_S:.0f} s", hint=_NETWORK_HINT) from late
    if done.returncode != 0:
        raise ConfigError(f"{what} could not be brought: {_tail(done.stdout)}", hint=_NETWORK_HINT)
    return done.stdout


def _tail(text: str) -> str:
    """The last lines that say something; progress dots do not."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    return " | ".join(lines[-5:])


def _ivy_module(wanted: Iterable[tuple[str, str, str]]) -> str:
    """An Ivy file that asks for these and what they need. `default` means the jar itself and its run-time dependencies;
    Ivy's own `-dependency` with `-confs runtime` brings only the latter."""
    dependencies = "".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} conf='default->default'/>"
        for group, name, version in wanted
    )
    return (
        "<ivy-module version='2.0'><info organisation='jobledger' module='embedded-broker'/>"
        f"<configurations><conf name='default'/></configurations><dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _pyspark() -> ModuleType:
    """PySpark, imported late: most of the ledger must not need it."""
    try:
        import pyspark
    except ImportError as missing:
        raise ConfigError("PySpark is not installed", hint=_PYSPARK_HINT) from missing
    return pyspark


def _pyspark_version() -> str:
    return str(_pyspark().__version__)


def spark_jars(pattern: str = "*.jar") -> list[Path]:
    """The jars that PySpark ships. Raises: ConfigError if there is none."""
    folder = Path(str(_pyspark().__file__)).parent / "jars"
    jars = sorted(folder.glob(pattern))
    if not jars:
        raise ConfigError(f"there is no {pattern} in {folder}", hint=_PYSPARK_HINT)
    return jars


def _pyspark_jar(pattern: str) -> Path:
    return spark_jars(pattern)[-1]


def is_whole(folder: Path) -> bool:
    """Whether every jar of the manifest is there in full. Paths in a manifest are relative to its folder, or absolute."""
    try:
        return all((folder / name).stat().st_size == size for name, size in _read_manifest(folder).items())
    except (OSError, ValueError):
        return False


def _read_manifest(folder: Path) -> Mapping[str, int]:
    sizes: Mapping[str, int] = json.loads((folder / _MANIFEST).read_text())
    return sizes


def write_manifest(folder: Path, jars: Iterable[Path]) -> None:
    sizes = {jar.name if jar.parent == folder else str(jar): jar.stat().st_size for jar in jars}
    temporary = folder / f"{_MANIFEST}.{os.getpid()}"
    temporary.write_text(json.dumps(sizes, indent=1, sort_keys=True))
    temporary.replace(folder / _MANIFEST)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a cache folder, so that the same is not downloaded twice at once. The lock ends with the process."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
