"""A sample of the listed mutants, different with each commit. The recorded killer of each must still kill it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.mutation.mutant import ROOT, listed
from tests.mutation.results import read
from tests.mutation.runner import run
from tests.support import seeds
from tests.support.repetitions import count

#: Mutants with slower killers, which start servers or real processes, are left to `make mutants`.
QUICK_S = 4.0


@pytest.mark.slow
@pytest.mark.timeout(3600)  # as many as REPETITIONS asks for
def test_a_sample_still_dies() -> None:
    quick = [
        replace(mutant, killers=(known[mutant.name].killer,))
        for name, mutants in listed().items()
        for known in [read(name)]
        for mutant in mutants
        if known[mutant.name].seconds <= QUICK_S
    ]
    with seeds.told():
        sample = Random(seeds.of("mutants")).sample(quick, min(count(16), len(quick)))
        survived = [result.name for result in run(sample, ROOT, jobs=1) if not result.killer]
        assert survived == []
