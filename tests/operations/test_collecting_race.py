"""A submitter and a garbage collector race for one abandoned graph, in every order of their steps. The job keeps its graph.

They are two threads, and only one runs at a time. At each of its points a thread hands the baton back, and the schedule
chooses the next thread. The points are the steps named in docs/decisions/0019, where the other thread matters.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.operations import collecting
from ledger.operations.collecting import DeletionLog, collect
from ledger.util import failpoints
from tests.support.operated import Operated, spec

pytestmark = pytest.mark.slow

DAY_S = 86_400.0
SUBMITTER, COLLECTOR = 4, 6  # turns: one more than the points of each


class Turns:
    """Runs the two threads by a schedule: 0 = the submitter's turn, 1 = the collector's."""

    def __init__(self, *works: Callable[[Callable[[], None]], object]) -> None:
        self._go = [threading.Semaphore(0) for _ in works]
        self._back = threading.Semaphore(0)
        self.failed: list[BaseException] = []
        self.left = set(range(len(works)))
        self._threads = [threading.Thread(target=self._run, args=(i, w), daemon=True) for i, w in enumerate(works)]

    def _run(self, who: int, work: Callable[[Callable[[], None]], object]) -> None:
        self._go[who].acquire()
        try:
            work(lambda: (self._back.release(), self._go[who].acquire()))  # type: ignore[arg-type, return-value]
        except BaseException as error:
            self.failed.append(error)
        self.left.discard(who)
        self._back.release()

    def run(self, schedule: Sequence[int]) -> None:
        for thread in self._threads:
            thread.start()
        for who in itertools.chain(schedule, itertools.cycle((0, 1))):
            if not self.left:
                break
            if who in self.left:
                self._go[who].release()
                assert self._back.acquire(timeout=60)
        for thread in self._threads:
            thread.join(60)


def schedules() -> Iterator[tuple[int, ...]]:
    for places in itertools.combinations(range(SUBMITTER + COLLECTOR), SUBMITTER):
        yield tuple(0 if at in places else 1 for at in range(SUBMITTER + COLLECTOR))


@pytest.mark.parametrize("stopped_s", [0.0, 2 * DAY_S], ids=["at once", "stopped for two days after its put"])
def test_in_every_order_the_job_has_its_graph(stopped_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deletions = reunions = 0
    for number, schedule in enumerate(schedules()):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = Operated(folder)
        blobs = world.blobs = MemoryBlobs(world.clock.time)  # type: ignore[assignment]
        world.clock.advance(60.0)
        graph = world.graph()
        uri = blobs.put("job-1", graph).uri  # left by a submitter that was killed two days ago
        world.clock.advance(2 * DAY_S)

        def submit(pause: Callable[[], None], world: Operated = world, graph: Path = graph) -> None:
            record = world.recorder.record

            def recording(*given: Any) -> Any:
                pause()  # stored, but not recorded
                recorded = record(*given)
                pause()  # recorded, but not checked again
                return recorded

            def hit(name: str) -> None:
                if name == "submit.unstored":
                    pause()
                elif name == "submit.stored":
                    world.clock.advance(stopped_s)

            monkeypatch.setattr(failpoints, "hit", hit)
            world.recorder.record = recording  # type: ignore[method-assign]
            world.client().submit(spec(), graph, job_id="job-1")

        def sweep(pause: Callable[[], None], world: Operated = world, blobs: MemoryBlobs = blobs) -> None:
            class Reading(collecting_read):  # type: ignore[misc, valid-type]
                def __init__(self, *given: Any) -> None:
                    pause()  # listed, but the log is not read; or judged, but the log is not read again
                    super().__init__(*given)
                    pause()

            class Slow(DeletionLog):
                def tell(self, *given: Any) -> None:
                    super().tell(*given)
                    pause()  # the deletion is recorded, but not done

            monkeypatch.setattr(collecting, "_Read", Reading)
            collect(world.source(), {}, blobs, Slow(world.folder / "collected", "ann", world.clock.time))

        turns = Turns(submit, sweep)
        turns.run(schedule)
        assert turns.failed == [], schedule
        assert uri in blobs.stored, schedule
        entry = world.now("job-1")
        assert entry.graph is not None and entry.graph.uri == uri
        told = (world.folder / "collected").read_text() if (world.folder / "collected").exists() else ""
        deletions += '"does": "delete"' in told
        reunions += '"does": "left"' in told
    assert deletions > reunions > 0, "the collector deleted graphs, and was also stopped in time"


collecting_read = collecting._Read
