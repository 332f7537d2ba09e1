"""Proofs that a record is in an archive: `proving` for one record, `bundle_proofs` inside a bundle."""
