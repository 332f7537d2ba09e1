"""The jars of the broker and of Spark's Kafka connector, downloaded once with the Ivy that PySpark ships, then cached.

Cache: `$XDG_CACHE_HOME/jobledger` (default `~/.cache/jobledger`). Its folder `kafka-<version>/` holds the broker's jars
and a manifest of their sizes. A folder is renamed to its final name once it is complete. It is used only while every
jar has the size that the manifest names. So neither a partial download nor a damaged cache is ever run.
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
# Kafka's artifacts include log4j-core but no binding for slf4j 1.7; without the binding the broker logs nothing.
_BROKER = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
# The jars of PySpark that a ZooKeeper member needs; Netty is for TLS. Spark's other 250 jars would only slow its start.
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
    """The folder of this user's downloads. This function does not create it."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "jobledger"


def broker_classpath(progress: Progress = print) -> str:
    """The class path of the Kafka broker. The first call downloads some 45 MB; later calls use no network.

    Idempotent, also across processes: one process downloads, the other processes wait for it.
    Raises: ConfigError without Java or PySpark, or if the download fails (then no files remain).
    """
    folder = cache_folder() / f"kafka-{KAFKA_VERSION}"
    if not is_whole(folder):
        with _locked(folder):
            if not is_whole(folder):
                progress(f"Downloading Kafka {KAFKA_VERSION} (45 MB, once) to {folder}")
                _download_broker(folder)
    return os.pathsep.join(str(folder / name) for name in sorted(_read_manifest(folder)))


def zookeeper_classpath() -> str:
    """The class path of a ZooKeeper member, made of jars that PySpark ships. Uses no network.

    Raises: ConfigError without PySpark."""
    jars = [jar for name in _ZOOKEEPER for jar in sorted(_pyspark_jar(f"{name}.jar").parent.glob(f"{name}.jar"))]
    return os.pathsep.join(str(jar) for jar in jars)


def spark_connector(progress: Progress = print) -> list[Path]:
    """The jars of Spark's Kafka connector for the installed PySpark, as a value of `spark.jars`, without those that
    PySpark ships itself. The first call makes Spark resolve them into its own Ivy folder; later calls use no network.

    Not for `spark.jars.packages`: Spark adds its jars to Python's path in every worker, and the worker then reads the
    file names in them again for each task (decision 34). Idempotent. Raises: ConfigError without Java or PySpark, or if
    the download fails."""
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
    """Downloads the broker's jars into a temporary folder and renames the result to `folder`. Everything else that Ivy
    writes is deleted with the temporary folder."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as temporary:
        work = Path(temporary)
        module = work / "ivy.xml"
        module.write_text(_ivy_module(_BROKER))
        whole = work / "jars"
        pattern = f"{whole}/[artifact]-[revision](-[classifier]).[ext]"
        # A separate Ivy cache: Ivy's default cache has no lock, and it would trust a jar that a crash left incomplete.
        ivy = ["-ivy", str(module), "-cache", str(work / "ivy"), "-confs", "default", "-retrieve", pattern]
        _run_java(["-jar", str(_pyspark_jar("ivy-*.jar")), *ivy], what=f"Kafka {KAFKA_VERSION}")
        for _, name, version in _BROKER:
            if not (whole / f"{name}-{version}.jar").is_file():
                hint = "Check that the Maven repository in use has it; then try again."
                raise ConfigError(f"Ivy did not download {name}-{version}.jar", hint=hint)
        write_manifest(whole, whole.glob("*.jar"))
        if folder.exists():  # it is damaged: a complete one is never replaced
            folder.rename(work / "damaged")
        whole.rename(folder)


def _resolve_by_spark(coordinate: str) -> list[Path]:
    """The jars of a Maven coordinate, after Spark itself has resolved it.

    Runs only Spark's launcher, with a main class that prints Ivy's version and ends. So resolver and folder are exactly
    those of a later session. No other way of calling Ivy guarantees that, since the cache is kept per resolver."""
    launcher = ["-cp", str(_pyspark_jar("ivy-*.jar").parent / "*"), "org.apache.spark.deploy.SparkSubmit"]
    harmless = ["--class", "org.apache.ivy.Main", "spark-internal", "-version"]
    said = _run_java([*launcher, "--packages", coordinate, *harmless], what=coordinate)
    stored = re.search(r"jars for the packages stored in: (.+)", said)
    if stored is None:
        raise ConfigError(f"Spark did not print the folder of {coordinate}: {_tail(said)}")
    folder = Path(stored[1].strip())
    modules = re.findall(r"found (\S+)#(\S+);(\S+) in", said)
    found = (folder / f"{group}_{name}-{version}.jar" for group, name, version in modules)
    jars = [jar for jar in found if jar.is_file()]  # a module that a newer version of itself evicted has no jar
    if not any("spark-sql-kafka" in jar.name for jar in jars):
        raise ConfigError(f"Spark resolved {coordinate}, but its jar is not in {folder}")
    return jars


def _run_java(arguments: list[str], *, what: str) -> str:
    """The output of a Java program. Raises: ConfigError, with its last lines, if it fails; ConfigError if it takes too
    long."""
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
        raise ConfigError(f"{what} was not downloaded within {_DOWNLOAD_S:.0f} s", hint=_NETWORK_HINT) from late
    if done.returncode != 0:
        raise ConfigError(f"{what} could not be downloaded: {_tail(done.stdout)}", hint=_NETWORK_HINT)
    return done.stdout


def _tail(text: str) -> str:
    """The last five lines that contain a letter or digit: progress dots are skipped."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    return " | ".join(lines[-5:])


def _ivy_module(wanted: Iterable[tuple[str, str, str]]) -> str:
    """An Ivy file that requests these artifacts and their dependencies. `default` means the jar itself and its run-time
    dependencies; Ivy's own `-dependency` with `-confs runtime` downloads only the dependencies."""
    dependencies = "".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)} conf='default->default'/>"
        for group, name, version in wanted
    )
    return (
        "<ivy-module version='2.0'><info organisation='jobledger' module='embedded-broker'/>"
        f"<configurations><conf name='default'/></configurations><dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _pyspark() -> ModuleType:
    """The module pyspark, imported late because most of the ledger must not need it. Raises: ConfigError if missing."""
    try:
        import pyspark
    except ImportError as missing:
        raise ConfigError("PySpark is not installed", hint=_PYSPARK_HINT) from missing
    return pyspark


def _pyspark_version() -> str:
    return str(_pyspark().__version__)


def spark_jars(pattern: str = "*.jar") -> list[Path]:
    """The jars of PySpark that match `pattern`. Raises: ConfigError if no jar matches."""
    folder = Path(str(_pyspark().__file__)).parent / "jars"
    jars = sorted(folder.glob(pattern))
    if not jars:
        raise ConfigError(f"there is no {pattern} in {folder}", hint=_PYSPARK_HINT)
    return jars


def _pyspark_jar(pattern: str) -> Path:
    return spark_jars(pattern)[-1]


def is_whole(folder: Path) -> bool:
    """Whether every jar of the manifest exists with its size. Paths in a manifest are relative to its folder, or
    absolute."""
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
    """Holds the lock of a cache folder, so that two processes do not download the same jars at once. The kernel frees
    the lock when the process ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
