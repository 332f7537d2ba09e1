"""`python -m ledger.adapters.embedded`: bring all that the embedded ledger needs, so that nothing waits for it later."""

from __future__ import annotations

import sys

from ledger.adapters.embedded.broker import broker_archive
from ledger.adapters.embedded.class_archives import make_archive
from ledger.adapters.embedded.exercise import exercise
from ledger.adapters.embedded.jars import broker_classpath, spark_connector
from ledger.adapters.embedded.java import ensure_java
from ledger.errors import LedgerError


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> int:
    """0, or the exit code of what failed. Idempotent: the second time it takes no network and no JVM."""
    try:
        ensure_java()
        broker_classpath(_say)
        spark_connector(_say)
        make_archive(broker_archive(), _say, exercise)
    except LedgerError as error:
        _say(f"{error} {error.hint}".rstrip())
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
