"""An agent in a separate process: `<root> [<point at which it kills itself>]`."""

import os
import signal
import sys
import threading
from pathlib import Path

from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.runners.subprocess.server import run_agent
from tests.support.host import LogFile, SystemClock


def main(root: Path, crash_at: str) -> None:
    def at(point: str) -> None:
        if point == crash_at:
            os.kill(os.getpid(), signal.SIGKILL)

    run_agent(root / "agent", FileBlobs(root / "blobs"), LogFile(root / "log"), SystemClock(), threading.Event(), at=at)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
