"""`python -m ledger.adapters.embedded`: bring all that the embedded ledger needs, so that nothing waits for it later."""

from __future__ import annotations

import sys

from ledger.adapters.embedded.bringing import bring
from ledger.adapters.embedded.broker import broker_archive
from ledger.adapters.embedded.class_archives import make_archive
from ledger.adapters.embedded.exercise import exercise
from ledger.adapters.embedded.jars import broker_classpath, spark_connector
from ledger.adapters.embedded.java import ensure_java


def main() -> int:
    """0, or the exit code of what failed. Idempotent: the second time it takes no network and no JVM."""
    return bring(
        lambda _: ensure_java(),
        broker_classpath,
        spark_connector,
        lambda progress: make_archive(broker_archive(), progress, exercise),
    )


if __name__ == "__main__":
    sys.exit(main())
