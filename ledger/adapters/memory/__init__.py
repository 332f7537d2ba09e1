"""Adapters without a world: deterministic, single-threaded, under the same contract suites as the real ones."""
