"""Runner plug-ins as another package would ship them: installed in a folder of the test and found by PYTHONPATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ledger.app.wiring import RUNNERS
from tests.foreign.poison_runners import CALLS, DEEDS

MODULE = "poison_runners"


def value_of(call: str, deed: str) -> str:
    """The value of the entry point of the plug-in that does `deed` in `call`: import, init, or a runner's method."""
    return f"poison_import_{deed}:Runner" if call == "import" else f"{MODULE}:{call}_{deed}"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **runners: str) -> None:
    """Installs runner plug-ins for this process and its children. runners: name -> value of the entry point."""
    folder.mkdir()
    shutil.copy(Path(__file__).with_name(f"{MODULE}.py"), folder)
    for deed in DEEDS:
        (folder / f"poison_import_{deed}.py").write_text(f"import {MODULE}\n{MODULE}.DEEDS[{deed!r}]()\n")
    info = folder / "poisonous-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: poisonous\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in runners.items()]
    (info / "entry_points.txt").write_text(f"[{RUNNERS}]\n" + "\n".join(lines) + "\n")
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *([before] if before else [])]))


__all__ = ["CALLS", "DEEDS", "install", "value_of"]
