"""Adapters in memory, for tests and simulation: deterministic, and checked by the same contract suites as the other
adapters."""
