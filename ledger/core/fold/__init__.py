"""The fold of one job: from its registers to its entry in the recovery set.

Read `job` (the registers of one job, decoded on demand), then `rules` (the table that decides its state) and `fold` (the
entry, and pruning). `restore_points` decides where the next attempt may begin, `restart` is the arithmetic of restart
policies, `savepoints` decides which savepoint is requested next and which are deleted.
"""
