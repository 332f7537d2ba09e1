"""Submits a job, waits until it is over, and prints how it ended. Exit code 0: it finished."""

import sys
from pathlib import Path

from ledger import GraphRef, IntentKind, JobSubmitted, RestartKind, RestartPolicy, connect, pack

FILLED_IN = GraphRef("", "", 0)  # submit replaces it once the graph is stored


def main(timeout_s: float, *command: str) -> int:
    client = connect()  # to the ledger of LEDGER_DIR, or of LEDGER_KAFKA__BOOTSTRAP_SERVERS
    graph = pack(command, files=[Path(__file__)], environment={"COLOUR": "blue"})
    try:
        policy = RestartPolicy(RestartKind.FIXED_DELAY, attempts_max=3, delay_s=10.0)
        spec = JobSubmitted("nightly", "prod", "subprocess", FILLED_IN, policy, labels={"team": "data"})
        job_id = client.submit(spec, graph, unique=True)  # returns once the ledger has admitted it
    finally:
        graph.unlink()
    ended = client.wait(job_id, timeout_s)
    if not ended.state:  # the time ran out
        client.declare(job_id, IntentKind.CANCEL, reason=f"took longer than {timeout_s:g} s")
    print(f"{job_id} is {ended.state or 'canceled'}: {ended.reason}")
    for entry in client.entries().recovery_set().values():
        print(f"still to be brought back: {entry.namespace}/{entry.name}, {entry.state}")
    return 0 if ended.finished else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *sys.argv[2:]))
