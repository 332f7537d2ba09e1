"""`python -m ledger.embedded`: downloads everything that an embedded ledger needs, and prepares a fast start."""

from __future__ import annotations

import sys

from ledger.adapters.java.class_archives import make_archive
from ledger.adapters.java.jars import broker_classpath, spark_connector
from ledger.adapters.java.java import ensure_java
from ledger.adapters.java.provision import bring
from ledger.embedded.broker import broker_archive
from ledger.embedded.warm_up import warm_up


def main() -> int:
    """Returns 0, or the exit code of the step that failed. Idempotent: the second call uses no network and starts no
    JVM."""
    return bring(
        lambda _: ensure_java(),
        broker_classpath,
        spark_connector,
        lambda progress: make_archive(broker_archive(), progress, warm_up),
    )


if __name__ == "__main__":
    sys.exit(main())
