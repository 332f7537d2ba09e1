"""The fold of one job: from its registers to its entry in the recovery set.

Read `job` (the registers of one job, decoded on demand), then `fold` (the rules, restore points, pruning). `restart` is
the arithmetic of restart policies, `savepoints` decides which savepoint is requested next and which are deleted,
`failures` which failure is the newest.
"""
