"""The mutants, one module for each part of the ledger: a tuple MUTANTS of `Mutant`, and its results in NAME.jsonl."""
