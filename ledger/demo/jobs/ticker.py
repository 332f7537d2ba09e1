"""A long job: counts ticks and writes a checkpoint each second, until the given file appears.

usage: ticker.py UNTIL_FILE
"""

import os
import sys
import time
from pathlib import Path

ticks = 0
if restore_from := os.environ.get("LEDGER_RESTORE_FROM"):
    ticks = int(Path(restore_from).read_text())
checkpoints = Path(os.environ["LEDGER_CHECKPOINT_DIR"])
while not Path(sys.argv[1]).exists():
    time.sleep(0.2)
    ticks += 1
    if ticks % 5 == 0:
        part = checkpoints / ".part"
        part.write_text(str(ticks))
        part.rename(checkpoints / f"chk-{ticks}")
        print(f"tick {ticks}", flush=True)
