"""The parts that both roles share.

`candidacy` takes and releases leadership, `catching_up` reads the log to its true end, `standstill` notices that the
log can no longer be read, `leaderless` raises the alarm that no instance leads. `events` makes the events of a leader,
`own_claims` restores its claims, `role_parts` are settings and ports of a role, `rejecting` is the port for rejects.
"""
