"""The questions to a ledger that runs: entries, jobs, claims, leaders, rejects.

`reading` reads the published entries, `replaying` folds the log itself, `explaining` joins both for one job.
`watching` waits for a job, `job_lookup` looks a job up by name, `leaders` and `presence` tell who leads and which
roles are alive, `rejects` lists rejected records. `publication_lag` compares what was published with the log,
`expiry_gaps` names jobs whose past has expired, `reasons` says in one line why an attempt ended.
"""
