"""A whole ledger as processes: ZooKeeper members, brokers and roles, each in a separate network namespace.

Tests use `Cluster`; `python -m tests.cluster` starts one for inspection.
"""

from tests.cluster.cluster import Cluster
from tests.cluster.network import Network, why_no_networks
from tests.cluster.node import Node

__all__ = ["Cluster", "Network", "Node", "why_no_networks"]
