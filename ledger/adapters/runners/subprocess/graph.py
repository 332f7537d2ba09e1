"""A job graph of the subprocess runner: files and a command in one blob, a tar archive.

The same input gives the same bytes: names are sorted, and there are no times or owners. `ledger-graph.json` holds the
command and its settings.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger.adapters.runners.subprocess import unpacking
from ledger.adapters.runners.subprocess.unpacking import MANIFEST, MANIFEST_BYTES_MAX, MEMBERS_MAX, NAME_BYTES_MAX
from ledger.errors import PermanentError, UsageError

STOP_GRACE_S = 10.0
STOP_GRACE_MAX_S = 3600.0
UNPACK_S = 120.0
MEMORY_BYTES_MIN = 1 << 20


@dataclass(frozen=True, slots=True)
class Graph:
    """How to start a job. command: program and arguments, run in the folder of the files. memory_bytes: limit of the
    address space, None = no limit. stop_grace_s: time from SIGTERM to SIGKILL after a stop order."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int | None = None
    stop_grace_s: float = STOP_GRACE_S


def problem(graph: Graph) -> str:
    """Why this graph can't be started; "" if it can be started."""
    if not graph.command or not graph.command[0]:
        return "there is no command"
    if any("\0" in word for word in graph.command):
        return "the command holds a zero byte"
    for name, value in graph.environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            return f"the environment variable {name!r} can't be set"
    if graph.memory_bytes is not None and graph.memory_bytes < MEMORY_BYTES_MIN:
        return f"a memory limit of {graph.memory_bytes} bytes is less than {MEMORY_BYTES_MIN}"
    if not (math.isfinite(graph.stop_grace_s) and 0 <= graph.stop_grace_s <= STOP_GRACE_MAX_S):
        return f"stop_grace_s is {graph.stop_grace_s}; it must be between 0 and {STOP_GRACE_MAX_S:g}"
    return ""


def pack(
    command: Sequence[str], files: Sequence[Path] = (), environment: Mapping[str, str] | None = None,
    memory_bytes: int | None = None, stop_grace_s: float = STOP_GRACE_S, folder: Path | None = None,
) -> Path:  # fmt: skip
    """Writes the blob into `folder` (None: the folder for temporary files) and returns its path. The caller deletes the
    blob. Each of `files`, a file or a folder, appears in the working directory under its own name.

    Raises: UsageError if something can't be packed, or is more than an agent unpacks."""
    graph = Graph(tuple(command), dict(environment or {}), memory_bytes, stop_grace_s)
    if why := problem(graph):
        raise UsageError(f"this job can't be packed: {why}")
    members: dict[str, Path] = {}
    try:
        for name, path in _members(files):
            if name == MANIFEST or name in members:
                raise UsageError(f"two files would be called {name} in the job's working directory")
            members[name] = path
    except OSError as error:
        raise _unpacked(error) from error
    manifest = {
        "version": 1, "command": list(graph.command), "environment": dict(graph.environment),
        "memory_bytes": memory_bytes, "stop_grace_s": stop_grace_s,
    }  # fmt: skip
    start = json.dumps(manifest, sort_keys=True, indent=1).encode()
    if too_much := _too_much(start, members):
        raise UsageError(f"this job can't be packed: {too_much[0]}", hint=too_much[1])
    fd, blob = tempfile.mkstemp(prefix="jobledger-graph-", suffix=".tar", dir=folder)
    try:
        with os.fdopen(fd, "wb") as out, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add(tar, MANIFEST, start)
            for name in sorted(members):
                _add(tar, name, members[name])
    except OSError as error:
        Path(blob).unlink(missing_ok=True)
        raise _unpacked(error) from error
    except BaseException:  # interrupts too: nobody else would delete the file
        Path(blob).unlink(missing_ok=True)
        raise
    return Path(blob)


def _unpacked(error: OSError) -> UsageError:
    """The error in plain words. It names the file that caused it."""
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        hint = "A relative path counts from the current folder; in a file of jobs, from the folder of that file."
        return UsageError(f"this job can't be packed: there is no file or folder {error.filename}.", hint=hint)
    where = f"{error.filename}: " if error.filename is not None else ""
    return UsageError(f"this job can't be packed: {where}{error.strerror or error}.")


def _too_much(start: bytes, members: Mapping[str, Path]) -> tuple[str, str] | None:
    """Why an agent would refuse to unpack this graph, and what to do; None if it would not."""
    if len(start) > MANIFEST_BYTES_MAX:
        what = f"its command and environment take {len(start)} bytes, more than {MANIFEST_BYTES_MAX}"
        return what, "Put large values into a file, and pass the file with --graph."
    if len(members) >= MEMBERS_MAX:
        return f"it has {len(members)} files, more than {MEMBERS_MAX - 1}", "Put them into an archive, and pass that."
    long = next((name for name in members if len(os.fsencode(name)) > NAME_BYTES_MAX), "")
    return (f"the path {long[:80]}… has more than {NAME_BYTES_MAX} bytes", "Use a shorter path.") if long else None


def _members(files: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    for given in files:
        path = Path(given)
        if path.is_dir():
            # "." and "x/.." get the name of the folder that they mean.
            root = path.resolve()
            for found in sorted(root.rglob("*")):
                if found.is_dir() and not found.is_symlink():
                    continue
                yield f"{root.name}/{found.relative_to(root).as_posix()}", found
        else:
            yield path.name, path


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    member = tarfile.TarInfo(name)
    member.mode = 0o644
    if isinstance(content, bytes):
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
        return
    if content.is_symlink() and content.is_dir():
        raise UsageError(
            f"this job can't be packed: {content} is a symbolic link to a folder. Links to files are followed, links to "
            "folders are not",
            hint="Replace the link by the folder, or pass the folder with its own --graph.",
        )
    # Non-blocking: to open a pipe would wait for a writer, for ever if there is none.
    with open(os.open(content, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 -- flags
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"this job can't be packed: {content} is not a regular file")
        member.size = status.st_size
        member.mode = 0o755 if status.st_mode & 0o100 else 0o644
        tar.addfile(member, file)


def unpack(blob: Path, folder: Path, timeout_s: float = UNPACK_S) -> Graph:
    """Unpacks a blob into the new folder `folder` and returns its graph. Unpacking runs in a separate process with
    limits, because a graph may be hostile.

    Raises: PermanentError if the blob can't be read, or holds something that no graph may hold. Then do not use the
    folder."""
    command = [sys.executable, "-I", "-S", "-E", unpacking.__file__, str(blob), str(folder), str(math.ceil(timeout_s))]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s,
            check=False, env={}, cwd="/",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PermanentError(f"the job graph could not be unpacked within {timeout_s:g} s") from None
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace").strip().splitlines()
        raise PermanentError(f"the job graph can't be read: {said[-1] if said else f'exit code {done.returncode}'}")
    try:
        return parse((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise PermanentError(f"the job graph can't be read: {MANIFEST}: {error}") from error


def parse(manifest: bytes) -> Graph:
    """The graph that a manifest describes. Raises: ValueError if the manifest is invalid or of a later version;
    RecursionError if it is nested absurdly deep."""
    plain = json.loads(manifest)
    if not isinstance(plain, dict) or plain.get("version") != 1:
        raise ValueError("it is not of version 1")
    command, environment = plain.get("command"), plain.get("environment")
    memory_bytes, stop_grace_s = plain.get("memory_bytes"), plain.get("stop_grace_s", STOP_GRACE_S)
    if not isinstance(command, list) or not _texts(command):
        raise ValueError("command must be a list of texts")
    if not isinstance(environment, dict) or not _texts(list(environment.values())):
        raise ValueError("environment must map names to texts")
    if not isinstance(memory_bytes, int | None) or not isinstance(stop_grace_s, int | float):
        raise ValueError("memory_bytes and stop_grace_s must be numbers")
    graph = Graph(tuple(command), environment, memory_bytes, float(stop_grace_s))
    if why := problem(graph):
        raise ValueError(why)
    return graph


def _texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
