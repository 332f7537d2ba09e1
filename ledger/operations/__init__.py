"""The requests of operators and their programs.

`client` submits and reads, `declaring` declares intents, `replacing` replaces a job, `savepoints` and `disposing` request
and delete savepoints, `planning` shows what a reconciler would do, `cuts` lists the cuts of a region, `collecting`
deletes stored objects that nothing refers to.
"""
