"""The decisions of a reconciler: from entries and from what runners report to actions.

`plan` decides about one job, `reconcile` about all jobs at once. `pools` admits starts to slots, `regions` restarts
connected jobs together from one cut, `replacing` and `replacements` order a job and its replacement. `runner_report` judges
whether a runner instance can speak for a job, `outside` handles jobs that their producer runs.
"""
