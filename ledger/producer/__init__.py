"""The library for programs that write facts: `recorder` writes them, `outbox` keeps them on disk until they are
durable, `outside` records a job whose process the ledger does not start (docs/RECORDER.md).
"""
