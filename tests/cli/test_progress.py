"""The progress that a command shows, and output of libraries that must not appear with it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from ledger.cli.session import telling

PACKAGE = Path(__file__).parents[2] / "ledger"
CLIENTS = {"AdminClient", "Consumer", "Producer"}


def test_progress_never_goes_back_though_a_verb_reads_several_times() -> None:
    told: list[str] = []
    progressed = telling(told.append)
    for what, read, total in (
        ("ledger.recovery", 0, 10), ("ledger.recovery", 10, 10), ("ledger.events", 0, 40), ("ledger.events", 40, 40),
        ("ledger.events", 0, 41), ("ledger.events", 20, 41), ("ledger.events", 41, 41),
    ):  # fmt: skip
        progressed(what, read, total)
    assert told == [f"{text} records" for text in (
        "0 of 10", "10 of 10", "10 of 50", "50 of 50", "50 of 91", "70 of 91", "91 of 91",
    )]  # fmt: skip


def test_every_client_of_kafka_writes_to_a_log_of_ours() -> None:
    """Without a logger librdkafka prints lines in its own format on stderr."""
    silent, seen = [], 0
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        imported = {
            name.asname or name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
            if (node.module or "").startswith("confluent_kafka") for name in node.names
        }  # fmt: skip
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            seen += name == "made"  # `made` requires a logger
            if name in CLIENTS & imported:
                seen += 1
                if '"logger"' not in ast.unparse(call).replace("'", '"') and "logger=" not in ast.unparse(call):
                    silent.append(f"{path.relative_to(PACKAGE)}:{call.lineno}")
    assert seen > 10
    assert silent == []


def test_a_broker_that_is_away_adds_no_line_to_a_check_of_the_settings(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "ledger", "config", "check", "--dir", str(tmp_path), "-b", "127.0.0.1:1"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
