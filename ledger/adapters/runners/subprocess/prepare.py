"""Prepares the start of an attempt. If the preparation fails, nothing was started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ledger.adapters.runners.plain import point_to_json, rule_to_json
from ledger.adapters.runners.subprocess import graph as graphs
from ledger.adapters.runners.subprocess import supervisor
from ledger.adapters.runners.subprocess.folders import MarkedAttempt
from ledger.adapters.runners.subprocess.orphan_processes import MARK
from ledger.adapters.runners.subprocess.restore import path_of
from ledger.adapters.runners.subprocess.supervisor.files import to_json, write_durably
from ledger.core.model.facts import FailureRule, GraphRef
from ledger.errors import PermanentError
from ledger.ports import BlobStore
from ledger.util.files import make_folder

#: Variables that a job inherits from the agent's environment; all others come with the job.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
SAVEPOINT_GRACE_S = 60.0
LOG_BYTES_MAX = 4 << 20
LOG_FILES = 4
#: Files that may exist in a run folder before the attempt is started.
KEPT = ("order.json",)
_OWN = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}


def prepare(
    attempt: MarkedAttempt, graph: GraphRef, blobs: BlobStore, environment: Mapping[str, str], inherited: Mapping[str, str],
    failure_rules: Sequence[FailureRule] = (),
) -> None:  # fmt: skip
    """Fills the run folder of an attempt: graph, `attempt.json`, empty folders. Leftovers of an earlier try are deleted
    first.

    Raises: PermanentError if this graph can't be started. Unreachable if the blob store does not answer. OSError."""
    _clean(attempt)
    for name in ("checkpoints", "logs", "facts", "asks"):
        (attempt.folder / name).mkdir(mode=0o700)
    blob = attempt.folder / "graph.tar"
    blobs.fetch(graph, blob)
    # Unpack under a unique name first: a killed agent may have left a process behind that is still unpacking.
    unpacked = Path(tempfile.mkdtemp(prefix="unpacking-", dir=attempt.folder)) / "graph"
    parsed = graphs.unpack(blob, unpacked)
    unpacked.rename(attempt.folder / "graph")
    unpacked.parent.rmdir()
    blob.unlink()
    merged = {**{name: inherited[name] for name in INHERITED if name in inherited}, **parsed.environment, **environment}
    merged.pop("LEDGER_RESTORE_FROM", None)
    merged |= {
        "LEDGER_JOB_ID": attempt.job_id,
        "LEDGER_ATTEMPT": str(attempt.n),
        "LEDGER_GRAPH_DIR": attempt.file("graph"),
        MARK: attempt.file("checkpoints"),
    }
    if attempt.base is not None:
        merged["LEDGER_RESTORE_FROM"] = str(path_of(attempt.base) or attempt.base.location)
    if why := graphs.problem(graphs.Graph(parsed.command, merged)):
        raise PermanentError(f"attempt {attempt.n} of {attempt.job_id} can't be started: {why}")
    write_durably(attempt.file("attempt.json"), to_json({
        "job_id": attempt.job_id, "n": attempt.n, "command": list(parsed.command), "environment": merged,
        "graph_dir": attempt.file("graph"), "memory_bytes": parsed.memory_bytes, "stop_grace_s": parsed.stop_grace_s,
        "savepoint_grace_s": SAVEPOINT_GRACE_S, "log_bytes_max": LOG_BYTES_MAX, "log_files": LOG_FILES,
        "failure_rules": [rule_to_json(rule) for rule in failure_rules], "base": point_to_json(attempt.base),
    }))  # fmt: skip


def _clean(attempt: MarkedAttempt) -> None:
    make_folder(attempt.folder, 0o700)
    if attempt.checkpoints.is_dir() and any(attempt.checkpoints.iterdir()):
        raise PermanentError(
            f"{attempt.checkpoints} holds checkpoints that were kept from an earlier job with this id",
            hint="Submit the job under a new id.",
        )
    for path in attempt.folder.iterdir():
        if path.name in KEPT:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def spawn(attempt: MarkedAttempt) -> subprocess.Popen[bytes]:
    """Starts the supervisor of an attempt in a separate session, and returns its process. Raises: OSError."""
    main = Path(supervisor.__file__).with_name("__main__.py")
    command = [sys.executable, "-I", "-S", "-E", "-X", "utf8", str(main), str(attempt.folder)]
    with open(attempt.logs / "supervisor.log", "ab") as log:  # noqa: PTH123
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=_OWN, start_new_session=True
        )
