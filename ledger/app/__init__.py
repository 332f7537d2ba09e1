"""The composition root: the only package that chooses adapters and runs roles.

`wiring` and its companions turn settings into adapters, `connecting` makes the public client, `roles_main` runs a
role as a process, `worker_daemon` is the process that Spark forks workers from. `zookeeper_settings` and
`s3_settings` choose leadership and object store, `pin_guard` protects pinned checkpoints from deletion, `notifying`
tells people, `logs` configures logging, `worker` is the library inside jobs written in Python.
"""
