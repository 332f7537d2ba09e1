"""The bytes of an archive.

`objects` is the port to the store, `segments` and `parquet` hold records, `decoding` their columns. `merkle` is the
hash tree, `chain` the manifests and what breaks a chain, `anchor` a signed digest of a chain. `notes` are manifests
without records; `removals` and `redacted` are what they say was removed. `lateness` tells whether records were
archived in time.
"""
