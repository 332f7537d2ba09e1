"""Adapters in memory, for tests and simulation: deterministic, and under the same contract suites as the real ones."""
