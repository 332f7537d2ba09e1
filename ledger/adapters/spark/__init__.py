"""Spark Structured Streaming: the recovery stream and the executor of the reconciler."""
