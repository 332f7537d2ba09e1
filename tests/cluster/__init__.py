"""A whole ledger as processes: ZooKeeper members, brokers and roles, each in a network namespace of its own.

`Cluster` is what tests use; `python -m tests.cluster` brings one up to be looked at.
"""

from tests.cluster.cluster import Cluster
from tests.cluster.network import Network, why_no_networks
from tests.cluster.node import Node

__all__ = ["Cluster", "Network", "Node", "why_no_networks"]
