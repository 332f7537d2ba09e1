"""Counts the words of many files, with checkpoints. The program uses only three environment variables of the ledger.

usage: wordcount.py FILE_LIST OUTPUT [--checkpoint-every N] [--seconds S]

FILE_LIST names one file per line; OUTPUT gets a JSON object of word -> count. A checkpoint is a JSON file `chk-<id>`,
renamed into $LEDGER_CHECKPOINT_DIR when it is complete. $LEDGER_RESTORE_FROM, if set, is the checkpoint to resume from.
--seconds: count for at least so many seconds, so that people can watch.
"""

import argparse
import json
import os
import re
import time
from collections import Counter
from pathlib import Path

WORD = re.compile(rb"[A-Za-z]+")


def count(path: Path) -> Counter[str]:
    return Counter(word.decode().lower() for word in WORD.findall(path.read_bytes()))


def write_whole(path: Path, text: str) -> None:
    """Writes a file atomically: under another name, then renamed."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    part.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--checkpoint-every", type=int, default=50, metavar="FILES")
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    files = [Path(line) for line in options.files.read_text().splitlines()]
    begin, counts = 0, Counter[str]()
    if restore_from := os.environ.get("LEDGER_RESTORE_FROM"):
        state = json.loads(Path(restore_from).read_text())
        begin, counts = state["files"], Counter(state["counts"])
    attempt = os.environ.get("LEDGER_ATTEMPT", "1")
    print(f"attempt {attempt} begins at file {begin} of {len(files)}", flush=True)
    checkpoints = Path(os.environ["LEDGER_CHECKPOINT_DIR"])
    pace_s = options.seconds / max(1, len(files))
    for done, path in enumerate(files[begin:], start=begin + 1):
        began = time.monotonic()
        counts.update(count(path))
        print(f"counted {done}", flush=True)
        if done % options.checkpoint_every == 0:
            state = {"files": done, "counts": counts}
            write_whole(checkpoints / f"chk-{done}", json.dumps(state))
        time.sleep(max(0.0, pace_s - (time.monotonic() - began)))
    write_whole(options.output, json.dumps(counts))
    print(f"{sum(counts.values())} words, {len(counts)} different", flush=True)


if __name__ == "__main__":
    main()
