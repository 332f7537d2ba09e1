"""Tools for tests of programs that use a ledger: a whole ledger in one process, without Kafka, ZooKeeper or Spark.

`mini_cluster` runs the roles on the adapters in memory. docs/TESTING.md shows a test.
"""

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.runner import MemoryRunner
from ledger.app.in_memory import RUNNER
from ledger.testing.mini_cluster import MiniCluster

__all__ = ["RUNNER", "ManualClock", "MemoryRunner", "MiniCluster"]
