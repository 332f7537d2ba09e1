"""Queries of an archive: `querying` in SQL with the views of `views`, `key_scan` by key."""
