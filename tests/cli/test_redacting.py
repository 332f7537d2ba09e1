"""`archive redact`: what it redacts, what it refuses, and what remains visible."""

from __future__ import annotations

import json

import pytest

from tests.support.jobs_world import Shell, seal


@pytest.fixture
def paused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> tuple[Shell, dict[str, object]]:
    """A job that was suspended for a reason that names a person, and resumed; the record with that reason."""
    job = shell.submit("first")
    shell.good("suspend", job, "--reason", "somebody's secret")
    shell.good("resume", job, "--reason", "on we go")
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    shell._environment["LEDGER_ARCHIVE__ADAPTER"] = "file"
    seal(shell)
    record = next(one for one in shell.json("history", job) if (one["fact"] or {}).get("reason") == "somebody's secret")
    return shell, record


def test_the_value_is_gone_and_the_proof_holds(paused: tuple[Shell, dict[str, object]]) -> None:
    shell, record = paused
    told = shell.run("archive", "redact", str(record["event_id"]), "--reason", "ticket 1", "--force")
    assert told.exit_code == 0, told.output
    assert "jobledger audit anchor" in told.stderr and "the live topic" in told.stderr
    proof = json.loads(shell.good("audit", "prove", str(record["event_id"])))
    assert "value_sha256" in proof["record"] and "secret" not in json.dumps(proof)
    assert shell.run("audit", "verify", "--no-topic").exit_code == 0


@pytest.mark.parametrize("what", ["events[0]@x", "events[0"])
def test_what_is_no_place_is_not_looked_for(paused: tuple[Shell, dict[str, object]], what: str) -> None:
    shell, _ = paused
    refused = shell.run("archive", "redact", what, "--reason", "ticket 1")
    assert refused.exit_code == 2 and "events[P]@OFFSET" in refused.stderr
    assert shell.run("archive", "redact", "no-such-event", "--reason", "ticket 1").exit_code == 1
    assert shell.run("archive", "redact", "no-such-event", "--reason", " ").exit_code == 2
