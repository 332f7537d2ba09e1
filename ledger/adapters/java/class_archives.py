"""Class archives: what a JVM has loaded and checked once, for later ones to map into memory (JEP 350; decision 39).

A shortcut and nothing else. The JVM itself passes over an archive that was made by another Java, of other jars, or that
was altered since; one that is not there is not missed. Made by `python -m ledger.embedded` and
`python -m ledger.adapters.spark`, beside the downloads and by the same rule: a folder has its name once all is in it.
What they save: `python -m benchmarks.jvm_options`.
"""

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

TROUBLE_MAX = 200  # characters that are told of what went wrong
#: An archive of jars that nobody has any more is deleted when a newer one is made and this has passed.
KEPT_S = 30 * 86_400.0
# Without the check of its sums an archive with one altered byte can hang the JVM. That it does not fit is no news for
# those who read what a server prints.
_SHARE = ("-Xshare:auto", "-XX:+VerifySharedSpaces", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_RECORD = ("-XX:TieredStopAtLevel=1", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # it won't live long


def class_archive(program: str, jars: Iterable[Path]) -> Path:
    """The file that is the archive of a program, made or not. program: a word of its folder's name. jars: its class path.

    The name tells Java and the jars apart, so that of several on one machine each has its own.
    Raises: ConfigError without Java."""
    java = find_java()
    release = java.parent.parent / "release"
    told = [str(java), release.read_text(errors="replace") if release.is_file() else ""]
    for jar in jars:
        seen = jar.stat()
        told.append(f"{jar} {seen.st_size} {seen.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(told).encode()).hexdigest()
    return cache_folder() / f"classes-{program}-{digest[:16]}" / "classes.jsa"


def sharing(archive: Path) -> list[str]:
    """The options of a JVM that is to map this archive; none if it has not been made, or is not whole."""
    return [f"-XX:SharedArchiveFile={archive}", *_SHARE] if is_whole(archive.parent) else []


def make_archive(archive: Path, progress: Progress, run: Callable[[list[str]], object]) -> None:
    """Make it, unless it is there. run: the program with the options it is given, from its start to its end.

    Where that fails it is said and no more: everything works without an archive."""
    folder = archive.parent
    if is_whole(folder):
        return
    program = folder.name.split("-")[1]
    progress(f"Preparing a quicker start of {program} (once)")
    try:
        _record(archive, run)
    except subprocess.TimeoutExpired as late:
        progress(f"skipped: took longer than {late.timeout:g} s; run make setup again")
    except Exception as trouble:
        told = str(trouble).partition("\n")[0][:TROUBLE_MAX]
        progress(f"{program} will start as slowly as ever: {told or type(trouble).__name__}")
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
        if folder.exists():  # damaged, or it would have been taken
            folder.rename(Path(temporary) / "damaged")
        whole.rename(folder)


def end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Waits until a JVM has ended by itself. One that takes longer is killed with all its children: it would go on for
    minutes, and then fail to write into a folder that is gone.

    Raises: TimeoutExpired: it was killed."""
    try:
        process.wait(timeout_s)
    except BaseException:
        kill(process)
        raise


def kill(process: subprocess.Popen[bytes]) -> None:
    """A program and its children. Idempotent."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()
