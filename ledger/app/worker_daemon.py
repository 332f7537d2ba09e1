"""The process from which Spark forks its Python workers (`spark.python.daemon.module`), with their modules imported.

Otherwise each worker would import the modules itself. It would also pay more for each task: Spark puts its own jar and
zips on Python's path, and a worker reads the file names in these archives again for every task (decision 34)."""

from __future__ import annotations

import gc
import sys

ARCHIVES = (".jar", ".zip")


def leave_archives(path: list[str], cache: dict[str, object]) -> None:
    """Removes jars and zips from Python's path: PySpark is installed, so nothing is imported from them."""
    path[:] = [entry for entry in path if not entry.endswith(ARCHIVES)]
    for entry in [entry for entry in cache if entry.endswith(ARCHIVES)]:
        del cache[entry]


def main() -> None:
    leave_archives(sys.path, sys.path_importer_cache)  # type: ignore[arg-type]
    from pyspark import daemon

    import ledger.adapters.spark.executor
    import ledger.app.wiring  # noqa: F401

    gc.collect()
    gc.freeze()  # a worker runs gc after each task; the objects made so far need no scan
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
