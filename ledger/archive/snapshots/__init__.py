"""Snapshots: the last record of each key up to an offset.

`snapshots` makes and reads them, `snapshot_retention` decides how many stay, `bootstrap` finds those that a projector
can start from.
"""
