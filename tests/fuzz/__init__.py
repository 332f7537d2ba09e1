"""Fuzzing: a million random, corrupted inputs for every reader of outside data: `python -m tests.fuzz`, `make fuzz`.

A target draws an input and checks it. It fails on an AssertionError and on any exception that the reader's docstring
does not name. Inputs are corrupted valid ones: readers would reject pure noise at the first byte.
"""
