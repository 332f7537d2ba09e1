"""Third-party runners (entry points of `jobledger.runners`), each in a process of its own."""

from ledger.adapters.runners.contained.runner import ContainedRunner

__all__ = ["ContainedRunner"]
