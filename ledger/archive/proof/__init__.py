"""Proofs that a record lies in an archive: `proving` for one record, `bundle_proofs` inside a bundle."""
