"""Small modules that all packages use.

`failpoints` names the places at which a test can kill, stop or delay a process. `identity` and `ids` name processes and
events, `times` formats times as RFC 3339, `files` writes files atomically, `processes` starts and finds daemon
processes, `metrics` is the catalogue of metrics, `loggers` gives a module its logger, and `plain` converts values to plain
dicts and lists for JSON.
"""
