"""The composition root: the only package that chooses adapters and runs roles.

`wiring` and its companions turn settings into adapters, `connecting` makes the public client, `roles_main` runs a role
as a process, `worker_daemon` is the process that Spark forks workers from. `electing` and `storing` choose leadership
and object store, `sparing` protects pinned checkpoints from deletion, `notifying` tells people, `logs` configures
logging, `worker` is the library inside jobs written in Python.
"""
