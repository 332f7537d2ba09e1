"""The bytes of an archive.

`objects` is the port to the store. `segments` and `parquet` hold records, `decoding` fills their readable columns.
`merkle` is the hash tree. `chain` holds the manifests and finds broken ones, `anchor` is a digest of a chain. `notes`
are manifests without records; `removals` and `redacted` describe the records and values that notes report as removed.
`lateness` decides whether records were archived in time.
"""
