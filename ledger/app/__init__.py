"""The composition root: the only package that chooses adapters and runs roles.

`ledger` holds one ledger as one object, on adapters that `wiring` makes by the settings, or that `in_memory` makes
for tests. `archives`, `anchors` and `pinning` open the archive for each use. `roles_main` runs a role as a process,
`worker_daemon` is the process that Spark forks workers from. `zookeeper_settings` and `s3_settings` derive the settings
of these adapters, `pin_guard` protects files of pinned jobs from deletion, `notifying` delivers notifications, `logs`
configures logging, `worker` is the library for jobs written in Python.
"""
