"""The archive: every record of the ledger's topics, in files that outlive compaction, sealed by a chain of manifests."""
