"""`python -m ledger.embedded`: bring all that the embedded ledger needs, so that nothing waits for it later."""

from __future__ import annotations

import sys

from ledger.adapters.java.class_archives import make_archive
from ledger.adapters.java.jars import broker_classpath, spark_connector
from ledger.adapters.java.java import ensure_java
from ledger.adapters.java.provision import bring
from ledger.embedded.broker import broker_archive
from ledger.embedded.warm_up import exercise


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
