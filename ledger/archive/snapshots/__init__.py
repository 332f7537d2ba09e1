"""Snapshots: the last record of each key up to an offset.

`snapshots` makes and reads them, `thinning` decides how many stay, `beginning` which of them a projector can start from.
"""
