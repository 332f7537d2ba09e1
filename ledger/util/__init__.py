"""Small modules without a theme of their own.

`failpoints` names the places at which a test can kill, stop or delay a process. `identity` and `ids` name processes and
events, `files` writes files that are whole or absent, `processes` finds processes that outlive their starter, `metrics`
is the catalogue of metrics, `loggers` gives a module its logger, `plain` makes text safe for a terminal.
"""
