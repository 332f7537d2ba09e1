"""Class archives (CDS): classes that one JVM has loaded and verified, for later JVMs to map (JEP 350; decision 39).

Class archives only make starts faster. The JVM ignores an archive from another Java version or other jars, a changed
archive, and a missing one. `python -m ledger.embedded` and `python -m ledger.adapters.spark` create archives in the
download cache, by the cache's rule: a folder gets its final name once it is complete. `python -m
benchmarks.jvm_options` measures the gain."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from ledger.adapters.java.jars import Progress, cache_folder, is_whole, write_manifest
from ledger.adapters.java.java import find_java

TROUBLE_MAX = 200  # characters of an error that are shown
#: Creating an archive deletes the program's other archives that are older than this.
KEPT_S = 30 * 86_400.0
# Without VerifySharedSpaces, an archive with one changed byte can hang the JVM. The log options suppress messages about
# an archive that does not fit: they do not belong in a server's output.
_SHARE = ("-Xshare:auto", "-XX:+VerifySharedSpaces", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_RECORD = ("-XX:TieredStopAtLevel=1", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # a short-lived JVM


def class_archive(program: str, jars: Iterable[Path]) -> Path:
    """The path of a program's class archive, whether or not it exists. program: a word of its folder's name. jars: the
    program's class path.

    The name contains a digest of the Java version and the jars, so each combination on a machine has its own archive.
    Raises: ConfigError if there is no Java."""
    java = find_java()
    release = java.parent.parent / "release"
    lines = [str(java), release.read_text(errors="replace") if release.is_file() else ""]
    for jar in jars:
        seen = jar.stat()
        lines.append(f"{jar} {seen.st_size} {seen.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return cache_folder() / f"classes-{program}-{digest[:16]}" / "classes.jsa"


def sharing(archive: Path) -> list[str]:
    """JVM options to map this archive; [] if the archive is missing or incomplete."""
    return [f"-XX:SharedArchiveFile={archive}", *_SHARE] if is_whole(archive.parent) else []


def make_archive(archive: Path, progress: Progress, run: Callable[[list[str]], object]) -> None:
    """Creates the archive unless it exists. run: starts the program with the given JVM options, and returns when the
    program has ended.

    A failure is only reported to `progress`: everything works without an archive."""
    folder = archive.parent
    if is_whole(folder):
        return
    program = folder.name.split("-")[1]
    progress(f"Preparing a quicker start of {program} (once)")
    try:
        _record(archive, run)
    except subprocess.TimeoutExpired as late:
        progress(f"skipped: it took longer than {late.timeout:g} s; run make setup again")
    except Exception as trouble:
        lines = str(trouble).partition("\n")[0][:TROUBLE_MAX]
        progress(f"skipped: {program} will not start faster: {lines or type(trouble).__name__}")
    for other in folder.parent.glob(f"classes-{program}-*"):
        if time.time() - other.stat().st_mtime > KEPT_S:
            shutil.rmtree(other, ignore_errors=True)


def _record(archive: Path, run: Callable[[list[str]], object]) -> None:
    folder = archive.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as temporary:
        whole = Path(temporary) / "whole"
        whole.mkdir()
        written = whole / archive.name
        run([f"-XX:ArchiveClassesAtExit={written}", *_RECORD])
        with written.open("rb") as file:
            os.fsync(file)
        write_manifest(whole, [written])
        if folder.exists():  # it is damaged: a complete one is never replaced
            folder.rename(Path(temporary) / "damaged")
        whole.rename(folder)


def end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Waits until a JVM has ended by itself. After timeout_s seconds the JVM and its children are killed: otherwise
    they would run for minutes, and then fail to write into a folder that no longer exists.

    Raises: TimeoutExpired if the JVM was killed."""
    try:
        process.wait(timeout_s)
    except BaseException:
        kill(process)
        raise


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a program and its children. Idempotent."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()
