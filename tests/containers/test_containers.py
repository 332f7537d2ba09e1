"""The compose file in a container engine, if there is one. `make acceptance` runs this; `make test` does not."""

from __future__ import annotations

import pytest

from tests.containers.__main__ import main
from tests.containers.compose import COMMAND_S, UP_S, why_no_engine
from tests.containers.drill import DEADLINE_S

#: Each step has a time limit; this one is longer than all of them together.
pytestmark = [
    pytest.mark.acceptance, pytest.mark.slow, pytest.mark.containers,
    pytest.mark.timeout(UP_S + 8 * DEADLINE_S + COMMAND_S),
]  # fmt: skip


def test_a_job_in_containers_runs_on_through_the_end_of_leaders_and_of_its_agent():
    if (reason := why_no_engine()) is not None:
        pytest.skip(f"needs a container engine with compose: {reason}")
    assert main([]) == 0
