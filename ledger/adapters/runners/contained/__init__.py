"""Third-party runners (entry points of `jobledger.runners`), each in a separate process."""

from ledger.adapters.runners.contained.runner import ContainedRunner

__all__ = ["ContainedRunner"]
