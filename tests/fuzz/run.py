"""Runs targets. The same seed draws the same inputs on any machine."""

from __future__ import annotations

import logging
import resource
import time
from dataclasses import dataclass
from random import Random

from tests.fuzz import outside, record  # noqa: F401  (they register their targets)
from tests.fuzz.targets import TARGETS

BLOCK = 1_000  # number of inputs from one generator
INPUT_S_MAX = 10.0  # time limit for a single input: no role may spend longer on one record
GROWTH_MAX_KB = 300_000  # growth of the process's memory in a whole run


@dataclass(frozen=True)
class Ran:
    """The result of a run. seconds: total. taken: number of accepted inputs. slowest_s: the time of the slowest input.
    grown_kb: growth of the process's peak memory."""

    name: str
    seed: int
    inputs: int
    taken: int
    seconds: float
    slowest_s: float
    grown_kb: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.inputs} inputs, {self.taken} taken, {self.seconds:.0f} s, slowest "
            f"{self.slowest_s * 1000:.0f} ms, {self.grown_kb >> 10} MB more, seed {self.seed}"
        )


class Found(AssertionError):
    """A target failed on an input. The message holds the input and the command that repeats it."""


def fuzz(name: str, inputs: int, seed: int, first_block: int = 0) -> Ran:
    """Raises: Found."""
    logging.disable(logging.CRITICAL)  # the agent logs each bad request
    target, taken, slowest_s = TARGETS[name], 0, 0.0
    before_kb, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    last = began
    try:
        for n in range(inputs):
            if n % BLOCK == 0:
                rng = Random(f"{seed} {name} {first_block + n // BLOCK}")
            drawn = target.draw(rng)
            try:
                taken += target.check(drawn)
            except Exception as error:
                block = first_block + n // BLOCK
                again = f"python -m tests.fuzz --target {name} --seed {seed} --block {block} --inputs {BLOCK}"
                raise Found(f"{name}: {drawn!r}\n{type(error).__name__}: {error}\nagain: {again}") from error
            took_s = (now := time.monotonic()) - last
            if took_s > INPUT_S_MAX:  # or the machine paused: a slow input is slow again
                target.check(drawn)
                took_s = min(took_s, time.monotonic() - now)
            last, slowest_s = time.monotonic(), max(slowest_s, took_s)
    finally:
        logging.disable(logging.NOTSET)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    ran = Ran(name, seed, inputs, taken, time.monotonic() - began, slowest_s, grown_kb)
    if slowest_s > INPUT_S_MAX or grown_kb > GROWTH_MAX_KB:
        raise Found(f"too slow, or too large: {ran}")
    return ran
