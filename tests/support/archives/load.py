"""A program that writes events with the recorder, and the id of each acknowledged event to a file:

    python -m tests.support.archives.load EVENTS ACKNOWLEDGED [EVENTS_PER_S]

The settings (LEDGER_…) hold the address of Kafka. If the broker is down, the program waits and sends the same bytes again.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from pathlib import Path

from ledger import Checkpoint, CheckpointCompleted, Recorder

THREADS = 16
JOBS = 50


def main(events: int, path: Path, events_per_s: float = 0.0) -> None:
    """events_per_s: the maximum rate, 0: no limit."""
    numbers, lock, begun = itertools.count(), threading.Lock(), time.monotonic()
    trouble: list[BaseException] = []
    with Recorder("load", when_away="block") as recorder, path.open("a", encoding="ascii") as acknowledged:

        def write() -> None:
            try:
                while (number := next(numbers)) < events and not trouble:
                    if events_per_s:
                        time.sleep(max(0.0, begun + number / events_per_s - time.monotonic()))
                    register, fact = Checkpoint(1, number), CheckpointCompleted(f"s3://bucket/chk-{number}", number)
                    done = recorder.record(f"job-{number % JOBS}", register, fact)
                    with lock:
                        acknowledged.write(done.event_id + "\n")
                        acknowledged.flush()
            except BaseException as error:
                trouble.append(error)

        threads = [threading.Thread(target=write) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if trouble:
        raise trouble[0]


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)
