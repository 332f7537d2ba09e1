"""The supervisor of one attempt: a separate process that starts the job, watches it and writes facts as files.

It uses the standard library only, and nothing of the ledger outside this folder. There is one supervisor per running
attempt, so it must be small, and it must keep working while the rest of the ledger is upgraded. The agent also uses its
`checkpoints`, `files`, `logs`, `procs` and `verdicts`."""
