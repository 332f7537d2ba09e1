"""The pure core: the meaning of the log's records. Standard library only.

Nothing here reads a clock, does I/O, logs, or keeps state between calls; every varying input is an argument.
Read in this order: `model`, `fold`, `plan`. `explain` says why a job is in its state, `failures` what went wrong last,
`garbage` finds stored objects that no fold refers to.
"""
