"""Fuzzing: what comes from outside, drawn at random and spoiled, a million times: `python -m tests.fuzz`, `make fuzz`.

A target draws an input and checks it; what must never happen is an AssertionError, or any exception that the reader's
docstring does not name. Inputs are valid ones, spoiled: of pure noise nothing would come past the first byte.
"""
