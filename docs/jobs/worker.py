"""A worker: sums the numbers of a file, line by line, and resumes after a crash."""

import json
import sys
from pathlib import Path

import ledger


def main(numbers: str) -> None:
    with ledger.job() as job:
        state = {"line": 0, "sum": 0}
        if job.restored:
            state = json.loads((job.restored / "state.json").read_text())
        for line in Path(numbers).read_text().splitlines()[state["line"] :]:
            state = {"line": state["line"] + 1, "sum": state["sum"] + int(line)}
            job.wait(0.01)  # simulates work
            if job.checkpoint_due(every_s=5):
                with job.checkpoint() as folder:
                    (folder / "state.json").write_text(json.dumps(state))
            if job.stopping:
                return
    print(f"the sum of {state['line']} numbers is {state['sum']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
