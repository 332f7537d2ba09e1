"""A new driver removes the files of killed drivers, and no file of a living one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.adapters.spark.scratch import claim_scratch

DRIVER = """
import sys
from pathlib import Path
from ledger.adapters.spark.scratch import claim_scratch
own = claim_scratch(Path(sys.argv[1]))
(own / "blocks").mkdir()
(own / "blocks" / "jar").write_bytes(b"x" * 1000)
print(own, flush=True)
sys.stdin.read()
"""


@contextmanager
def driver(folder: Path) -> Iterator[Path]:
    """The scratch folder of a driver process, which is killed at the end."""
    command = [sys.executable, "-c", DRIVER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Path(process.stdout.readline().strip())
        process.kill()


def test_the_folder_of_a_killed_driver_goes_with_the_next_start_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    with driver(tmp_path) as killed:
        pass
    assert (killed / "blocks" / "jar").exists()
    with driver(tmp_path) as living:
        own = claim_scratch(tmp_path)
        assert not killed.exists()
        assert (living / "blocks" / "jar").exists() and own.is_dir() and own not in (living, killed)


def test_what_has_no_lock_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "spark-1234" / "userFiles").mkdir(parents=True)
    own = claim_scratch(tmp_path)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [own]


def test_a_process_keeps_its_own_folders(tmp_path: Path) -> None:
    first = claim_scratch(tmp_path)
    assert claim_scratch(tmp_path) != first and first.is_dir()
