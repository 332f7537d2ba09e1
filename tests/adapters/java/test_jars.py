"""The jar cache: one process downloads each jar once, and an incomplete jar is never used.

A fake Java stands in for Ivy and for Spark's launcher. It writes jars slowly to the given path, and counts its calls.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ledger.adapters.java import jars
from ledger.adapters.java.provision import bring
from ledger.errors import ConfigError
from tests.support.waiting import until

pytestmark = pytest.mark.slow

IVY = """\
#!/bin/sh
echo call >> '{tally}'
for last in "$@"; do :; done
case "$*" in *SparkSubmit*)
    mkdir -p '{store}'
    echo 'The jars for the packages stored in: {store}'
    for jar in org.apache.spark_spark-sql-kafka-0-10_2.13-4.0.0 org.lz4_lz4-java-1.8.0; do
        printf connector > '{store}'/$jar.jar
    done
    echo '    found org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.0 in central'
    echo '    found org.lz4#lz4-java;1.8.0 in central'
    echo '    found org.lz4#lz4-java;1.7.0 in central'
    exit {code};;
esac
folder=$(dirname "$last")
mkdir -p "$folder"
printf half > "$folder/kafka_2.13-4.3.1.jar"
sleep 0.5
while [ -e '{held}' ]; do sleep 0.05; done
[ {code} = 0 ] || {{ echo '.....'; echo 'UNRESOLVED DEPENDENCIES'; exit {code}; }}
printf 'the whole jar' > "$folder/kafka_2.13-4.3.1.jar"
printf binding > "$folder/log4j-slf4j-impl-2.25.4.jar"
"""


CONNECTOR = "org.apache.spark_spark-sql-kafka-0-10_2.13-4.0.0.jar"


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = root / "cache" / "jobledger"
        self.java = root / "java" / "bin" / "java"
        self.tally = root / "tally"
        self.held = root / "held"
        """While it is there, a download stays half."""
        self.java.parent.mkdir(parents=True)
        (root / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
        self.answer(0)

    def answer(self, code: int) -> None:
        self.java.write_text(IVY.format(tally=self.tally, held=self.held, store=self.root / "ivy" / "jars", code=code))
        self.java.chmod(0o755)

    @property
    def calls(self) -> int:
        return len(self.tally.read_text().splitlines()) if self.tally.exists() else 0

    @property
    def folder(self) -> Path:
        return self.cache / f"kafka-{jars.KAFKA_VERSION}"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return World(tmp_path)


def test_the_broker_is_downloaded_once(world: World):
    said: list[str] = []
    classpath = jars.broker_classpath(said.append)
    assert [Path(one).name for one in classpath.split(":")] == ["kafka_2.13-4.3.1.jar", "log4j-slf4j-impl-2.25.4.jar"]
    assert all(Path(one).parent == world.folder for one in classpath.split(":"))
    assert jars.broker_classpath(said.append) == classpath
    assert world.calls == 1
    assert len(said) == 1


def test_nothing_else_is_left_in_the_cache(world: World):
    jars.broker_classpath(lambda _: None)
    assert {path.name for path in world.cache.iterdir()} == {world.folder.name, f"{world.folder.name}.lock"}


def test_two_processes_at_once_download_once(world: World):
    script = "from ledger.adapters.java.jars import broker_classpath; print(broker_classpath(lambda _: None))"
    command = [sys.executable, "-c", script]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = {process.communicate(timeout=60)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(told) == 1
    assert world.calls == 1


def test_a_failed_download_tells_why_and_leaves_nothing(world: World):
    world.answer(1)
    with pytest.raises(ConfigError, match="UNRESOLVED DEPENDENCIES") as raised:
        jars.broker_classpath(lambda _: None)
    assert "network" in raised.value.hint
    assert not world.folder.exists()
    world.answer(0)
    assert "kafka_2.13" in jars.broker_classpath(lambda _: None)


def test_what_a_killed_download_left_is_not_taken(world: World):
    script = "from ledger.adapters.java.jars import broker_classpath; broker_classpath(lambda _: None)"
    world.held.touch()
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        until(lambda: list(world.cache.glob("*/jars/*.jar")), "half of the download is there")
    finally:
        process.kill()
        process.wait()
        world.held.unlink()
    assert not world.folder.exists()
    jars.broker_classpath(lambda _: None)
    assert (world.folder / "kafka_2.13-4.3.1.jar").read_text() == "the whole jar"


@pytest.mark.parametrize("damage", ["truncate", "remove", "manifest"])
def test_a_damaged_cache_is_downloaded_again(world: World, damage: str):
    jars.broker_classpath(lambda _: None)
    jar = world.folder / "kafka_2.13-4.3.1.jar"
    if damage == "truncate":
        jar.write_text("the")
    elif damage == "remove":
        jar.unlink()
    else:
        (world.folder / "manifest.json").write_text("{")
    jars.broker_classpath(lambda _: None)
    assert jar.read_text() == "the whole jar"
    assert world.calls == 2


def test_a_relative_cache_home_is_ignored_as_its_standard_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / ".cache" / "jobledger"


def test_the_connector_is_that_of_the_installed_pyspark_less_what_that_ships(world: World):
    assert [jar.name for jar in jars.spark_connector(lambda _: None)] == [CONNECTOR], "PySpark ships lz4 itself"
    import pyspark

    assert pyspark.__version__ in CONNECTOR


def test_the_connector_is_resolved_once_and_again_if_sparks_folder_lost_it(world: World):
    first = jars.spark_connector(lambda _: None)
    assert jars.spark_connector(lambda _: None) == first
    assert world.calls == 1
    (world.root / "ivy" / "jars" / "org.lz4_lz4-java-1.8.0.jar").unlink()
    assert jars.spark_connector(lambda _: None) == first
    assert world.calls == 2


def test_a_connector_that_can_not_be_resolved_is_an_error(world: World):
    world.answer(1)
    with pytest.raises(ConfigError, match="spark-sql-kafka"):
        jars.spark_connector(lambda _: None)
    world.answer(0)
    jars.spark_connector(lambda _: None)


def test_setting_up_ends_with_the_first_step_that_fails(capsys: pytest.CaptureFixture[str]):
    def fail(progress: jars.Progress) -> None:
        progress("it begins")
        raise ConfigError("no such Java", hint="Install it.")

    begun: list[str] = []
    assert bring(lambda _: begun.append("first"), fail, lambda _: begun.append("last")) == ConfigError.exit_code
    assert begun == ["first"]
    out, err = capsys.readouterr()
    assert (out, err) == ("", "it begins\nno such Java Install it.\n")
    assert bring(lambda _: None) == 0
