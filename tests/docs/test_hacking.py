"""The commands on the page for contributors exist."""

from __future__ import annotations

import importlib.util
import re

from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "HACKING.md").read_text()
TARGETS = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.M)) | {"lint"}


def test_each_target_of_make_exists() -> None:
    named = set(re.findall(r"`make ([a-z]+)", PAGE))
    assert {"check", "test", "mutants", "bench"} <= named <= TARGETS


def test_each_module_that_is_run_exists() -> None:
    modules = set(re.findall(r"python -m ([a-z_.]+)", PAGE)) - {"pytest"}
    assert modules and all(importlib.util.find_spec(module) is not None for module in modules)


def test_the_modules_to_read_first_lie_in_their_order() -> None:
    """The order is that of the layers contract, from the bottom of the core to its top."""
    first = re.findall(r"`ledger/core/(\w+)/", PAGE[PAGE.index("## Where to begin") : PAGE.index("Then the two roles")])
    order = ["model", "fold", "plan"]
    assert first == sorted(first, key=order.index) and set(first) == set(order)
