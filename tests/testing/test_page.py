"""The test shown in docs/TESTING.md runs unchanged."""

from __future__ import annotations

import re
from typing import Any

from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "TESTING.md"


def test_the_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)  # the code is from the project's own page
    names["test_the_nightly_job_survives_a_crash"]()
