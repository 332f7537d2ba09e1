"""Class archives (AppCDS) speed up the start of a JVM. The JVM maps an archive that fits, and starts without any other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from ledger.adapters.java.class_archives import KEPT_S, class_archive, end, make_archive, sharing
from ledger.embedded import broker as embedded
from ledger.embedded.broker import Broker
from tests.support.servers import RunningBroker
from tests.support.waiting import until

SPOILED = {
    "junk": lambda data: b"junk" * (len(data) // 4),
    "one byte": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
}


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A class path of two jars, and an empty cache."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    (java.parent.parent / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setattr("ledger.adapters.java.class_archives.find_java", lambda: java)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for path in paths:
        path.write_text("classes")
    return paths


def written(options: Sequence[str]) -> Path:
    """The path that the JVM with these options writes its archive to."""
    return Path(next(option for option in options if "ArchiveClassesAtExit" in option).partition("=")[2])


def record(options: Sequence[str]) -> None:
    written(options).write_text("archive")


def never(options: Sequence[str]) -> None:
    raise AssertionError("the archive was made twice")


def test_it_is_another_one_for_other_jars_another_program_and_another_java(jars: list[Path], tmp_path: Path) -> None:
    first = class_archive("broker", jars)
    assert class_archive("broker", jars) == first
    assert class_archive("spark", jars) != first
    assert class_archive("broker", jars[:1]) != first
    assert class_archive("broker", jars[::-1]) != first, "an archive depends on the order of the class path"
    os.utime(jars[0], (1, 1))
    touched = class_archive("broker", jars)
    assert touched != first, "the JVM would refuse an archive of older jars"
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.2"\n')
    assert class_archive("broker", jars) not in {first, touched}


def test_it_is_made_once_and_has_its_name_when_it_is_whole(jars: list[Path]) -> None:
    archive, said = class_archive("broker", jars), list[str]()
    assert sharing(archive) == []

    def run(options: Sequence[str]) -> None:
        record(options)
        assert sharing(archive) == []
        assert written(options).parents[1].parent == archive.parents[1], "same file system: a rename moves no bytes"

    make_archive(archive, said.append, run)
    assert f"-XX:SharedArchiveFile={archive}" in sharing(archive)
    assert said == ["Preparing a quicker start of broker (once)"]
    make_archive(archive, said.append, never)
    assert [path.name for path in archive.parents[1].iterdir()] == [archive.parent.name]


@pytest.mark.parametrize("run", [lambda _: None, never])
def test_where_none_can_be_made_that_is_said_and_no_more(jars: list[Path], run) -> None:
    archive, said = class_archive("broker", jars), list[str]()
    make_archive(archive, said.append, run)
    assert sharing(archive) == []
    assert said[1].startswith("skipped: broker will not start faster: ")
    assert list(archive.parents[1].iterdir()) == []


#: Stands in for Java: it starts a child process and ignores the end of its standard input.
DEAF = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_jvm_that_takes_too_long_is_killed_with_its_children_and_told_in_a_line(jars: list[Path]) -> None:
    archive, said, pids = class_archive("spark", jars), list[str](), list[int]()

    def run(_options: Sequence[str]) -> None:
        process = subprocess.Popen([sys.executable, "-c", DEAF, "x" * 2000], stdout=subprocess.PIPE)
        assert process.stdout is not None
        pids.extend((process.pid, int(process.stdout.readline())))
        process.stdout.close()
        end(process, 0.01)

    make_archive(archive, said.append, run)
    assert said[1:] == ["skipped: it took longer than 0.01 s; run make setup again"]
    assert len(pids) == 2
    until(
        lambda: not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids),
        "both processes end",
    )


def test_trouble_is_told_in_a_short_line(jars: list[Path]) -> None:
    said = list[str]()

    def run(_options: Sequence[str]) -> None:
        raise OSError("no room " * 1000 + "\nmore")

    make_archive(class_archive("spark", jars), said.append, run)
    assert len(said[1]) < 300 and "\n" not in said[1]


def test_one_that_is_cut_short_is_not_mapped_and_made_anew(jars: list[Path]) -> None:
    archive = class_archive("broker", jars)
    make_archive(archive, str, record)
    archive.write_text("arch")
    assert sharing(archive) == [], "the JVM would end with SIGBUS"
    make_archive(archive, str, record)
    assert sharing(archive)


def test_those_of_old_jars_go_when_a_month_has_passed(jars: list[Path]) -> None:
    old, other = class_archive("broker", jars[:1]), class_archive("spark", jars)
    for archive in (old, other):
        make_archive(archive, str, record)
    recent = class_archive("broker", jars[1:])
    make_archive(recent, str, record)
    for archive in (old, other):
        os.utime(archive.parent, (time.time() - KEPT_S - 60,) * 2)
    make_archive(class_archive("broker", jars), str, record)
    assert not old.parent.exists()
    assert sharing(recent)
    assert sharing(other), "an archive of another program stays"


def mapped(pid: int) -> set[str]:
    """The class archives that a process and its children have mapped, without Java's own. Read again if a process ended
    meanwhile."""

    def maps() -> str:
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        return "".join(Path(f"/proc/{process.pid}/maps").read_text() for process in processes)

    lines = until(maps, "the memory maps are readable").splitlines()
    return {line.split()[-1] for line in lines if line.endswith("classes.jsa") and "/server/" not in line}


@pytest.mark.kafka
def test_a_broker_maps_its_own(broker: RunningBroker) -> None:
    assert broker.process is not None
    assert mapped(broker.process.pid) == {str(embedded.broker_archive())}


@pytest.mark.kafka
@pytest.mark.parametrize("how", SPOILED)
def test_a_broker_starts_beside_one_that_is_spoiled(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # Java prints a message if this variable is set
    good = embedded.broker_archive()
    spoiled = shutil.copytree(good.parent, tmp_path / "spoiled") / good.name
    spoiled.chmod(0o600)
    spoiled.write_bytes(SPOILED[how](good.read_bytes()))
    assert sharing(spoiled), "its size is right, so it is taken for whole"
    monkeypatch.setattr(embedded, "broker_archive", lambda: spoiled)
    own = RunningBroker(Broker.at(tmp_path / "broker"))
    try:
        own.start()
        assert own.process is not None
        assert mapped(own.process.pid) == set()
        assert own.printed.read_text() == ""
    finally:
        own.kill()


@pytest.mark.spark
def test_a_spark_driver_maps_its_own(tmp_path: Path) -> None:
    from pyspark import SparkContext

    from ledger.adapters.spark.session import spark_archive, start_session

    session = start_session(tmp_path)
    try:
        assert mapped(SparkContext._gateway.proc.pid) == {str(spark_archive())}
    finally:
        session.stop()
