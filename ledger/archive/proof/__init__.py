"""Proofs that a record lies in an archive: `proving` for one record, `carrying` inside a bundle."""
