"""What a command imports before it answers: half of the time that it takes.

Names are compared; a time would measure the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

INCIDENT = Path(__file__).parents[2] / "docs" / "incidents" / "000.zip"
#: What a verb that reads does not need, wherever it reads.
NEVER = ("boto3", "duckdb", "numpy", "pandas", "psutil", "pyarrow.compute", "pyspark", "rich", "structlog", "tarfile")
#: A bundle says itself how it was set up, and needs no Kafka; a ledger that runs needs no archive.
NOT_OF_A_BUNDLE = (
    *(*NEVER, "asyncio", "confluent_kafka", "pydantic_settings"),
    *("ledger.archive.proof.bundle_proofs", "ledger.config.config"),
)
NOT_OF_A_LEDGER = (*NEVER, "ledger.archive.format.segments", "ledger.archive.store", "pyarrow")
#: Runs the command as a process of its own does, and says which of the modules are there then.
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
    """The exit code, and all modules that were imported by then."""
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
    """Nothing runs there; the clients are imported before that is found."""
    code, modules = imported("list", "--dir", str(tmp_path))
    assert code == 2
    assert "confluent_kafka" in modules
    assert modules.isdisjoint(NOT_OF_A_LEDGER), modules & set(NOT_OF_A_LEDGER)
