"""Removal of records, or of their values, from an archive.

`retention` parses the durations per namespace, `expiring` removes superseded records, `redacting` removes values for a
recorded reason, `rewriting` replaces objects and keeps the proof. `pins` protect records, `holds` lists pinned jobs.
"""
