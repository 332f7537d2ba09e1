"""Fixtures: the evidence of one random walk, for the tests of the checkers."""

from __future__ import annotations

import pytest

from tests.simulation.copies import Copied
from tests.simulation.evidence import Evidence
from tests.simulation.walk import Walk
from tests.simulation.world import EVENTS, RECOVERY, quiet


@pytest.fixture(scope="module")
def walked() -> Evidence:
    with quiet() as said:
        walk = Walk(12, said)
        assert walk.run().findings == []
    return walk.world.evidence


@pytest.fixture
def events(walked: Evidence) -> list[Copied]:
    return list(walked.copies[EVENTS])


@pytest.fixture
def recovery(walked: Evidence) -> list[Copied]:
    return list(walked.copies[RECOVERY])
