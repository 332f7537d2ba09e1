"""The library inside launchers: `recorder` records facts, `outbox` keeps them while Kafka is away, `outside` runs
a job whose process the ledger does not start (docs/RECORDER.md).
"""
