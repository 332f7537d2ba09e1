"""Mistakes that somebody could make in the source, each with the tests that must then go red.

    python -m tests.mutation --list s3               run the mutants of tests/mutation/lists/s3.py
    python -m tests.mutation NAME …                  these mutants
    python -m tests.mutation --record                all of them, and write down what killed each, and how soon
    python -m tests.mutation --page                  docs/MUTANTS.md anew, of what was written down

A mutant is an edit of one source file (`mutant.Mutant`). The runner (`runner`) makes the edit in a copy of the tree, never
in the tree itself, runs the tests that the mutant names, and expects one of them to fail. Guards that a patch of a running
program can take out, also on real servers, are in `tests/support/mutants.py`; weaker variants of the fold in
`tests/laws/mutants.py`.
"""
