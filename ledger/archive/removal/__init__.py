"""Removal of records, or of their values, from an archive.

`retention` holds the durations per namespace, `expiring` removes superseded records, `redacting` removes values for a
recorded reason, `rewriting` replaces objects and leaves the proof. `pins` keep records in, `holds` lists which.
"""
