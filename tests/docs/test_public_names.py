"""The public names exist and are documented, and `import ledger` loads no heavy module."""

from __future__ import annotations

import subprocess
import sys
from enum import Enum

import pytest

import ledger
from ledger.adapters import avro
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.sender import MemorySender
from ledger.core.model.registers import parse_key, register_name
from tests.support.pages import RECORDER_MD, example


def test_every_public_name_is_there_and_documented():
    for name in ledger.__all__:
        value = getattr(ledger, name)
        assert value.__doc__ or (isinstance(value, type) and issubclass(value, Enum)), f"{name} has no docstring"
    assert set(ledger.__all__) <= set(dir(ledger))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ledger.nothing


def test_importing_the_package_loads_nothing_else():
    heavy = ("confluent_kafka", "fastavro", "pydantic", "typer", "structlog", "rich")
    code = f"import sys, ledger; print([m for m in sys.modules if m.split('.')[0] in {heavy}])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_example_for_producers_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("LEDGER_DIR", str(tmp_path))
    log = MemoryLog({"ledger.events": 4}, ManualClock())
    monkeypatch.setattr("ledger.producer.recorder._kafka_sender", lambda *_: MemorySender(log))
    exec(compile(example(), str(RECORDER_MD), "exec"), {})
    records = [record for p in range(4) for record in log.records("ledger.events", p)]
    registers = [parse_key(record.key())[1] for record in records]
    names = {register_name(register).partition("/")[0] for register in registers}
    assert sorted(names) == ["checkpoint", "ended", "running", "spec"]
    assert all(avro.read(register, r.value()) for register, r in zip(registers, records, strict=True))


def test_the_page_for_producers_is_short():
    assert len(RECORDER_MD.read_text().splitlines()) <= 45
