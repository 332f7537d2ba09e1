"""Mutants: mistakes that somebody could make in the source, each with the tests that must then fail.

    python -m tests.mutation --list s3               run the mutants of tests/mutation/lists/s3.py
    python -m tests.mutation NAME …                  these mutants
    python -m tests.mutation --record                all of them; also record which test killed each, and how soon
    python -m tests.mutation --page                  regenerate docs/MUTANTS.md from the recorded results

A mutant is an edit of one source file (`mutant.Mutant`). The runner (`runner`) makes the edit in a copy of the tree, never
in the tree itself. It runs the tests that the mutant names and expects one of them to fail. Guards that a patch can remove
from a running program, also on real servers, are in `tests/support/mutants.py`. Weaker variants of the fold are in
`tests/laws/mutants.py`.
"""
