"""The fold of one job: from its registers to its entry in the recovery set.

Read `job` (the registers of one job, decoded on demand), then `rules` (the table that decides its state) and `fold`
(the entry, and pruning). `restore_points` lists the restore points of the next attempt, `restart` is the arithmetic
of restart policies, `savepoints` decides which savepoint is requested next and which are deleted.
"""
