"""`python -m tests.cluster`: starts the topology as processes, prints its addresses, and stops it on Ctrl-C.

`--no-roles`: only the servers. The default folder is a temporary one, which is removed at the end.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from unittest import SkipTest

from tests.cluster.cluster import Cluster


def main() -> int:
    """The exit code: 0 after Ctrl-C or SIGTERM; 1 if this machine can't run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--no-roles", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="jlc-") as temporary:
        try:
            run(given.folder or Path(temporary), roles=not given.no_roles)
        except SkipTest as reason:
            print(reason, file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("stopped")
    return 0


def run(folder: Path, roles: bool) -> None:
    began = time.monotonic()
    with Cluster.open(folder.resolve()) as cluster:
        cluster.start()
        if roles:
            cluster.start_roles()
        print(f"up in {time.monotonic() - began:.1f} s, in {cluster.folder}")
        print(f"ZooKeeper      {cluster.zookeeper.addresses}")
        print(f"Kafka          {cluster.kafka.addresses}")
        for name, node in cluster.roles.items():
            print(f"{name:14} {' '.join(node.network.hosts[name].addresses.values())}, says {node.printed}")
        settings = [f"{name}={value}" for name, value in sorted(cluster.settings().items())]
        inside = cluster.network.hosts["client"].command(["env", *settings, "bash"])
        print(f"inside: {shlex.join(inside)}", flush=True)
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
