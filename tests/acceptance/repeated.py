"""A pytest plug-in: runs each collected test EPISODES times. Shared fixtures keep the same servers for all of them.

EPISODES=60 python -m pytest -p tests.acceptance.repeated tests/scenarios/test_one_writer.py
"""

from __future__ import annotations

import os

import pytest

EPISODES = int(os.environ.get("EPISODES", "1"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.fixturenames.append("episode")
    metafunc.parametrize("episode", range(EPISODES), ids=lambda number: f"episode-{number + 1}")
