"""Each `RUN python` of the Dockerfile works in the folder as the build has made it up to that line.

No network and no JVM: the caches that the commands would fill exist already.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest

from ledger.adapters.java.jars import write_manifest
from ledger.adapters.java.java import find_java
from ledger.adapters.spark.session import spark_archive
from ledger.errors import ConfigError

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


@dataclass(frozen=True)
class Step:
    """A command of the last stage, with the `COPY` lines and the variables before it."""

    command: str
    copies: tuple[tuple[str, ...], ...]
    variables: dict[str, str] = field(hash=False)


def steps(text: str) -> list[Step]:
    """The `RUN python` commands of the last stage, in order."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    found: list[Step] = []
    copies: list[tuple[str, ...]] = []
    variables: dict[str, str] = {}
    for line in joined.splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found, copies, variables = [], [], {}
        elif word == "COPY" and not rest.startswith("--from"):
            copies.append(tuple(rest.split()))
        elif word == "ARG":
            name, _, value = rest.partition("=")
            variables[name] = value.strip('"')
        elif word == "RUN" and rest.startswith("python"):
            found.append(Step(rest, tuple(copies), dict(variables)))
    return found


def run(step: Step, work: Path, caches: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command unchanged, but with a `pip` that only prints its arguments."""
    for *sources, target in step.copies:
        for source in sources:
            place = work / target / Path(source).name if target.endswith("/") else work / target
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / source, place)
    programs = work / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "pip").write_text('#!/bin/sh\necho pip "$@"\n')
    (programs / "pip").chmod(0o755)
    if not (programs / "python").exists():
        # No symlink: Python would derive its home from it. No -P: the copied folder must come first on the path.
        (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (programs / "python").chmod(0o755)
    environment = {
        **os.environ, **step.variables, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(work),
        "XDG_CACHE_HOME": str(caches), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    return subprocess.run(
        ["/bin/sh", "-c", step.command], cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a complete connector and class archive."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    wanted = [folder / "jobledger" / f"spark-connector-{pyspark.__version__}" / "spark-sql-kafka.jar"]
    try:
        find_java()
        wanted.append(spark_archive())
    except ConfigError:
        pytest.skip("there is no Java, on which the name of the class archive depends")
    for file in wanted:
        file.parent.mkdir(parents=True)
        file.write_text("whole")
        write_manifest(file.parent, [file])
    return folder


def test_every_python_command_of_the_image_runs_as_it_stands(tmp_path: Path, caches: Path):
    found = steps(DOCKERFILE.read_text())
    assert len(found) == 3
    for step in found:
        done = run(step, tmp_path / "src", caches)
        assert (done.returncode, done.stderr) == (0, ""), f"{step.command}\n{done.stderr}"


def test_the_image_installs_what_the_package_and_the_extras_of_the_roles_need(tmp_path: Path, caches: Path):
    (step, *_) = steps(DOCKERFILE.read_text())
    done = run(step, tmp_path, caches)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["spark"], *extras["zookeeper"]]
    assert (tmp_path / "requirements.txt").read_text().splitlines() == wanted
    assert done.stdout == "pip install --no-cache-dir -r requirements.txt -c constraints.txt\n"


@pytest.mark.parametrize(
    ("sound", "broken", "complaint"),
    [
        ("import spark_connector; spark_connector()", "import ensure_spark_connector; 1", "ensure_spark_connector"),
        ("ledger/errors.py ledger/", "ledger/", "ledger.errors"),
        ("-m ledger.adapters.spark", "-m ledger.adapters.sparks", "sparks"),
    ],
)
def test_a_name_or_a_file_that_is_not_there_fails(tmp_path: Path, caches: Path, sound: str, broken: str, complaint: str):
    text = DOCKERFILE.read_text()
    assert sound in text
    done = [run(step, tmp_path / "src", caches) for step in steps(text.replace(sound, broken))]
    failed = [one.stderr for one in done if one.returncode != 0]
    assert failed and complaint in failed[0]
