"""The projector: folds `ledger.events` into `ledger.recovery`, under one leader at a time.

Read `projector` (standby, take-over, step-down), then `term` (one term of a leader: claim, publish, follow, repair).
`admission` decides which spec is admitted, `cold_start` where reading begins. The leader is the clock of the log:
`due`, `stalls` and `savepoint_times` stamp restarts, stalled jobs and savepoints, `alarms` is what they share.
"""
