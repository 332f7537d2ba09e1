"""The pure core: what the records of the log mean. Standard library only.

Nothing here reads a clock, does I/O, logs, or keeps state between calls; what varies comes in as an argument.
Read in this order: `model`, `fold`, `plan`. `explain` says why a job is in its state, `failures` what went wrong last,
`garbage` finds stored objects that no fold refers to.
"""
