"""The reconciler: observes runners, plans, and performs the planned actions.

Read `reconciler` (take-over, passes), then `flows`: one flow per job, step by step. `starting` and `ending` are the
flows that start and end an attempt, `flow_steps` their shared steps, `flow_runner` the flows in progress. `orphans`
stops attempts that run without an entry, `instances` tracks which instance of each runner the reconciler reaches.
"""
