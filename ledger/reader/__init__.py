"""Queries of a running ledger: entries, jobs, claims, leaders, rejects.

`reading` reads the published entries, `replaying` folds the log itself, `explaining` joins both for one job.
`watching` waits for a job, `job_lookup` looks a job up by name, `leaders` and `presence` list leaders and live
instances, `rejects` lists rejected records. `publication_lag` compares published entries with the log, `expiry_gaps`
names jobs whose past has expired, `reasons` gives the reason of an attempt's end in one line.
"""
