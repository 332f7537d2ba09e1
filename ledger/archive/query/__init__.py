"""Questions to an archive: `querying` in SQL with the views of `views`, `picking` by key."""
