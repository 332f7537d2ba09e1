"""The requests of operators and their programs.

`client` submits and reads, `intents` declares intents, `replacing` replaces a job, `savepoints` and
`savepoint_disposal` request and delete savepoints, `planning` shows what a reconciler would do, `region_cuts` lists
the cuts of a region, `collecting` deletes stored objects that nothing refers to.
"""
