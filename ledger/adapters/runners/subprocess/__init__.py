"""The runner of one host: jobs as processes, a supervisor each, and one agent that speaks for them."""

from ledger.adapters.runners.subprocess.client import SubprocessRunner
from ledger.adapters.runners.subprocess.folders import log_paths
from ledger.adapters.runners.subprocess.graph import pack

__all__ = ["SubprocessRunner", "log_paths", "pack"]
