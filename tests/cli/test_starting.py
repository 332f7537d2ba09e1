"""The imports of a command before it answers: they take half of its time.

The test compares names, as a time would measure the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

INCIDENT = Path(__file__).parents[2] / "docs" / "incidents" / "000.zip"
#: Modules that a reading verb does not need, whatever it reads.
NEVER = ("boto3", "duckdb", "numpy", "pandas", "psutil", "pyarrow.compute", "pyspark", "rich", "structlog", "tarfile")
#: A bundle contains its settings, and needs no Kafka. A running ledger needs no archive.
NOT_OF_A_BUNDLE = (
    *(*NEVER, "asyncio", "confluent_kafka", "pydantic_settings"),
    *("ledger.archive.proof.bundle_proofs", "ledger.config.config"),
)
NOT_OF_A_LEDGER = (*NEVER, "ledger.archive.format.segments", "ledger.archive.store", "pyarrow")
#: Runs the command as in its own process, and prints the modules that are imported at the end.
COMMAND = """
import json, sys
from ledger.cli import main
sys.argv[0] = "jobledger"
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def imported(*arguments: str) -> tuple[int, set[str]]:
    """The exit code, and the names of all imported modules."""
    run = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return run.returncode, set(json.loads(run.stderr.splitlines()[-1]))


def test_a_bundle_is_read_without_what_only_a_ledger_needs() -> None:
    code, modules = imported("list", "--bundle", str(INCIDENT))
    assert code == 0
    assert "pyarrow" in modules
    assert modules.isdisjoint(NOT_OF_A_BUNDLE), modules & set(NOT_OF_A_BUNDLE)


def test_a_ledger_is_read_without_its_archive(tmp_path: Path) -> None:
    """No ledger runs there, but the clients are imported before the command notices."""
    code, modules = imported("list", "--dir", str(tmp_path))
    assert code == 2
    assert "confluent_kafka" in modules
    assert modules.isdisjoint(NOT_OF_A_LEDGER), modules & set(NOT_OF_A_LEDGER)
