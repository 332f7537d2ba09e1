"""An installed jobledger contains all schemas and reads them from its own folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.schemas.versions import EVERY, FOLDER, ROOT

CODE = """
from ledger.adapters import avro, schemas
from ledger.core.model.facts import JobAdmitted
assert avro.decode(JobAdmitted, avro.encode(JobAdmitted("d"))) == JobAdmitted("d")
print(schemas.schema_folder())
"""


@pytest.mark.acceptance
@pytest.mark.timeout(400)
def test_a_wheel_contains_every_schema_and_reads_them(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, timeout=300, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("ledger/schemas/")}
        archive.extractall(installed)
    assert found == {f"ledger/schemas/{v.fact}/{v.number:04}.avsc" for v in EVERY}
    for path in FOLDER.rglob("*.avsc"):
        assert (installed / "ledger" / "schemas" / path.relative_to(FOLDER)).read_bytes() == path.read_bytes()
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    said = subprocess.run(
        [sys.executable, "-c", CODE], check=True, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment
    )
    assert Path(said.stdout.strip()) == (installed / "ledger" / "schemas").resolve()
