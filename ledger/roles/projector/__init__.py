"""The projector: folds `ledger.events` into `ledger.recovery`, under one leader at a time.

Read `projector` (standby, take-over, step-down), then `term` (one term of a leader: claim, publish, follow, repair).
`admission` decides which spec is admitted, `cold_start` where the projector starts to read. The leader is the clock
of the log: `due`, `stalls` and `savepoint_times` set the times of restarts, stalled jobs and savepoints, `alarms`
holds their shared code.
"""
