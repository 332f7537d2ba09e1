"""`python -m tests.containers`: builds the image, starts docker-compose.yml, kills leaders and the agent, and checks
that a job runs on.

It uses the engine that `docker` reaches (DOCKER_HOST, contexts), with a unique project name and no published ports. The
containers, networks and volumes are removed at the end; the image stays, so that the next build is short.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.containers.compose import Compose, Failed, why_no_engine
from tests.containers.drill import Drill, Row


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 if all checks held, 1 if one did not, 2 without an engine, 130 after Ctrl-C."""
    argparse.ArgumentParser(prog="python -m tests.containers", description=__doc__).parse_args(arguments)
    if (reason := why_no_engine()) is not None:
        print(f"make containers needs a container engine with compose: {reason}.", file=sys.stderr)
        return 2
    compose = Compose(f"jobledger-containers-{os.getpid()}")
    drill = Drill(compose, lambda row: print(shown(row), file=sys.stderr, flush=True))
    code = 0
    try:
        drill.run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except (Failed, AssertionError, subprocess.TimeoutExpired) as error:
        drill.wrong.append(str(error))
        print(_logs(compose), file=sys.stderr)
    began = time.monotonic()
    try:
        left = compose.down()
    except (Failed, subprocess.TimeoutExpired) as error:
        left = [f"all of {compose.project}: {error}"]
    drill.wrong += [f"docker compose down -v left {one}" for one in left]
    seen = "nothing left" if not left else f"{len(left)} left"
    drill.rows.append(Row(began - drill.began, time.monotonic() - began, "docker compose down -v", seen))
    print("\n".join(["   at s  took s  what", *(shown(row) for row in drill.rows)]))
    for one in drill.wrong:
        print(f"WRONG {one}")
    if not code:
        print("all held" if not drill.wrong else f"{len(drill.wrong)} did not hold")
    return code or bool(drill.wrong)


def shown(row: Row) -> str:
    return f"{row.at_s:7.1f} {row.took_s:7.1f}  {row.what}: {row.seen}"


def _logs(compose: Compose) -> str:
    try:
        return compose.logs()
    except (Failed, subprocess.TimeoutExpired) as error:
        return f"no logs: {error}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes everything, as after Ctrl-C
    sys.exit(main())
