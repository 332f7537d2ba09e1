"""The mutants. Each part of the ledger has a module with a tuple MUTANTS of `Mutant`; NAME.jsonl holds its results."""
