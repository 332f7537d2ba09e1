"""The archive: every record of the ledger's topics, in files that outlive compaction, sealed by a chain of manifests.

`format` defines the bytes; `store` writes, seals and verifies; `anchors` and `snapshots` build on it; `removal` removes
records; `restore`, `query` and `proof` read.
"""
