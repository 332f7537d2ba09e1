"""Content digests of checkpoints, computed and verified in the background.

One thread reads all new checkpoints in turn, one block of each, within a limit of bytes per second. So a large
checkpoint delays neither its job nor the digests of other checkpoints. Verification reads without a limit, because a
job waits for the result."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ledger.adapters.runners.subprocess import content
from ledger.adapters.runners.subprocess.content import ContentManifest, Identity, Unsteady
from ledger.adapters.runners.subprocess.restore import RestoreCheck
from ledger.core.model.facts import RestorePoint
from ledger.ports import Verification

log = logging.getLogger(__name__)

BYTES_PER_S = 100 << 20
WAIT_S = 5.0
ACTIVE_MAX = 16  # checkpoints that are read at the same time, in turn
KNOWN_MAX = 200_000  # files whose digests are remembered
SEEDED_MAX = 10_000
PAUSE_MIN_S = 0.02
IDLE_S = 0.5


class Limits(NamedTuple):
    """Limits for computing digests. bytes_per_s: how fast checkpoints are read, 0 = no digests. wait_s: how many
    seconds the record of a checkpoint waits for its digest at most."""

    bytes_per_s: int = BYTES_PER_S
    wait_s: float = WAIT_S


class Digests:
    """Computes the content digests of checkpoints while `run` runs. One thread calls `run`; all other methods are
    thread-safe."""

    def __init__(self, limits: Limits = Limits(), now: Callable[[], float] = time.monotonic) -> None:  # noqa: B008
        self.limits, self._now = limits, now
        self._guard = threading.Lock()  # guards `_under_way`
        self._under_way: set[Path] = set()
        self._new: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._known: OrderedDict[Identity, str] = OrderedDict()
        self._seeded: set[Path] = set()  # folders whose manifests were read
        self._running = False
        self._free_at = 0.0

    def take(self, checkpoint: Path) -> bool:
        """Requests the digest of a checkpoint, unless it is stored already. Returns whether the digest is being
        computed now."""
        if not self._running or content.manifest_path(checkpoint).exists():
            return False
        with self._guard:
            if checkpoint not in self._under_way:
                self._under_way.add(checkpoint)
                self._new.put(checkpoint)
        return True

    def under_way(self, checkpoint: Path) -> bool:
        with self._guard:
            return checkpoint in self._under_way

    def begin(self) -> None:
        """Lets `take` accept checkpoints. Called shortly before `run`."""
        self._running = self.limits.bytes_per_s > 0

    def run(self, stop: threading.Event, wait: Callable[[float], object] | None = None) -> None:
        """Computes the requested digests until `stop` is set. wait: pauses for a number of seconds (tests)."""
        if not self._running:
            return
        active: deque[tuple[Path, Generator[int, None, ContentManifest]]] = deque()
        block = min(content.BLOCK, max(4096, self.limits.bytes_per_s // 20))
        while not stop.is_set():
            while len(active) < ACTIVE_MAX and (path := self._next(IDLE_S if not active else 0.0)) is not None:
                self._seed(path)
                active.append((path, content.reading(path, self._known, block)))
            if not active:
                continue
            path, reading = active.popleft()
            if self._advance(path, reading, wait or stop.wait):
                active.append((path, reading))

    def _next(self, timeout_s: float) -> Path | None:
        try:
            return self._new.get(timeout=timeout_s) if timeout_s else self._new.get_nowait()
        except queue.Empty:
            return None

    def _advance(
        self, path: Path, reading: Generator[int, None, ContentManifest], wait: Callable[[float], object]
    ) -> bool:  # fmt: skip
        """Reads one block and returns whether there may be more. After any error, this checkpoint gets no content
        digest."""
        try:
            self._pause(next(reading), wait)
            return True
        except StopIteration as finished:
            self._store(path, finished.value)
        except FileNotFoundError:
            pass  # deleted meanwhile
        except (OSError, Unsteady) as error:
            log.warning("content_digest_failed", extra={"path": str(path), "reason": str(error)})
        self._forget_old_files()
        with self._guard:
            self._under_way.discard(path)
        return False

    def _pause(self, read: int, wait: Callable[[float], object]) -> None:
        now = self._now()
        self._free_at = max(now, self._free_at) + read / self.limits.bytes_per_s
        if self._free_at - now >= PAUSE_MIN_S:
            wait(self._free_at - now)

    def _store(self, path: Path, manifest: ContentManifest) -> None:
        try:
            if not content.save(path, manifest):
                reason = f"too many files: {len(manifest.files)}"
                log.warning("content_digest_failed", extra={"path": str(path), "reason": reason})
        except FileNotFoundError:
            pass  # its attempt is forgotten
        except OSError as error:
            log.warning("content_digest_not_stored", extra={"path": str(path), "reason": str(error)})

    def _seed(self, path: Path) -> None:
        """Remembers the files that an earlier agent has read, from the manifests of the attempt."""
        folder = content.manifest_path(path).parent
        if folder in self._seeded:
            return
        if len(self._seeded) >= SEEDED_MAX:
            self._seeded.clear()
        self._seeded.add(folder)
        for stored in sorted(folder.glob("*.json")):
            if (manifest := content.load(path.with_name(stored.name.removesuffix(".json")))) is not None:
                manifest.remember(self._known)

    def _forget_old_files(self) -> None:
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)


# -- checking before a start -------------------------------------------------------------------------------------------

ANSWER_S = 4.0  # a caller waits ten seconds for the agent
CHECKS_MAX = 4
STALE_S = 60.0
REASONS_MAX = 1000


@dataclass
class _Check:
    done: threading.Event = field(default_factory=threading.Event)
    judged: RestoreCheck | None = None
    at: float = 0.0


class Checks:
    """Verifies restore points, each in a separate thread. Thread-safe.

    If a check takes longer than answer_s seconds, `verify` returns UNKNOWN; a later call returns the result."""

    def __init__(self, judge: Callable[[RestorePoint], RestoreCheck], answer_s: float = ANSWER_S) -> None:
        self._judge, self._answer_s = judge, answer_s
        self._guard = threading.Lock()
        self._checks: dict[RestorePoint, _Check] = {}
        self._reasons: OrderedDict[RestorePoint, str] = OrderedDict()

    def verify(self, point: RestorePoint) -> Verification:
        judged = self._judged(point)
        with self._guard:
            self._reasons[point] = judged.reason
            self._reasons.move_to_end(point)
            while len(self._reasons) > REASONS_MAX:
                self._reasons.popitem(last=False)
        return judged.verification

    def why_refused(self, point: RestorePoint) -> str:
        """The reason of the last `verify` of this restore point; "" if it was valid or was never verified."""
        with self._guard:
            return self._reasons.get(point, "")

    def _judged(self, point: RestorePoint) -> RestoreCheck:
        with self._guard:
            now = time.monotonic()
            for old, check in list(self._checks.items()):
                if check.done.is_set() and now - check.at > STALE_S:
                    del self._checks[old]  # no caller fetched it, and the files may be damaged since
            found = self._checks.get(point)
            if found is None:
                if sum(not check.done.is_set() for check in self._checks.values()) >= CHECKS_MAX:
                    return RestoreCheck(Verification.UNKNOWN, "other restore points are being read first")
                found = self._checks[point] = _Check()
                threading.Thread(target=self._run, args=(point, found), name="agent-check", daemon=True).start()
        if not found.done.wait(self._answer_s):
            return RestoreCheck(Verification.UNKNOWN, "its content is being read")
        with self._guard:
            if self._checks.get(point) is found:
                del self._checks[point]
        return found.judged or RestoreCheck(Verification.UNKNOWN, "its check failed, see the agent's log")

    def _run(self, point: RestorePoint, check: _Check) -> None:
        try:
            check.judged = self._judge(point)
        except Exception:  # the result is UNKNOWN then
            log.exception("content_check_failed", extra={"path": point.location})
        finally:
            check.at = time.monotonic()
            check.done.set()
