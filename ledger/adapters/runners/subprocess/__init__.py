"""The runner of one host: jobs are processes, each with its own supervisor, and one agent reports for all of them."""

from ledger.adapters.runners.subprocess.client import SubprocessRunner
from ledger.adapters.runners.subprocess.folders import log_paths
from ledger.adapters.runners.subprocess.graph import pack

__all__ = ["SubprocessRunner", "log_paths", "pack"]
