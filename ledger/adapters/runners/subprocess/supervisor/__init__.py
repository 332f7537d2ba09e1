"""The supervisor of one attempt: a process of its own that starts the job, watches it and writes facts as files.

Standard library only, and nothing of the ledger outside this folder: there is one supervisor per running attempt, so it
must be small, and it must not break when the rest is replaced under it. The agent uses `files`, `procs` and
`checkpoints` of it too.
"""
