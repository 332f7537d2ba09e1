"""The pure core: registers, facts, fold, recovery set, restart policies, plan. Standard library only.

Nothing here reads a clock, does I/O, logs, or keeps state between calls; what varies comes in as an argument.
Read in this order: `registers`, `facts`, `job`, `fold`, `restart`, `recovery`, `plan`.
"""
