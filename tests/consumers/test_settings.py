"""Settings of the audit consumer: accepted ones, and refused ones with the setting, its value and a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumers.settings import BadSetting, load

KAFKA = {"AUDIT_BOOTSTRAP_SERVERS": "k1:9092,k2:9092"}


def test_defaults() -> None:
    settings = load(KAFKA)
    assert (settings.events, settings.findings) == ("ledger.events", "ledger.audit.findings")
    assert (settings.replication_factor, settings.rules.restarts_max, settings.rules.actors) == (3, 5, ())


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text('actors = ["alice@*", "bob@*"]\nrestarts_max = 7\nprefix = "eu."\n')
    given = {"AUDIT_CONFIG": str(path), "AUDIT_RESTARTS_MAX": "9", "AUDIT_ACCEPTED": "eu.ledger.events[0]@17"}
    settings = load({**KAFKA, **given})
    assert (settings.rules.restarts_max, settings.rules.actors) == (9, ("alice@*", "bob@*"))
    assert (settings.rejects, settings.accepted) == ("eu.ledger.audit.rejects", ("eu.ledger.events[0]@17",))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"AUDIT_RESTARTS_MAX": "many"}, "a whole number from 2 to 1000"),
        ({"AUDIT_RESTARTS_MAX": "1"}, "a whole number from 2 to 1000"),
        ({"AUDIT_RESTARTS_WINDOW_S": "nan"}, "seconds above 0"),
        ({"AUDIT_GAP_GRACE_S": "-1"}, "seconds above 0"),
        ({"AUDIT_WEB_PORT": "70000"}, "a whole number from 1 to 65535"),
        ({"AUDIT_PREFIX": "a b"}, "text that matches"),
        ({"AUDIT_ACCEPTED": "17"}, "positions such as ledger.events[0]@17"),
        ({"AUDIT_ACTOR": "alice"}, "there is no such setting"),
        ({"AUDIT_CONFIG": "/nowhere/audit.toml"}, "Name a TOML file that can be read"),
        ({"AUDIT_BOOTSTRAP_SERVERS": ""}, "text that matches"),
    ],
)
def test_what_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadSetting) as refused:
        load({**KAFKA, **given})
    (name,) = given
    assert said in str(refused.value)
    assert name in str(refused.value).upper() or f"AUDIT_{str(refused.value).split()[0].upper()}" == name, (
        "the error names the setting"
    )


WRONG = ["restarts_max = true", "actors = 'a'\n[x]\n", "restarts_window_s = [1]", "actors = [1]", "= 1"]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_refused_in_a_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text(text)
    with pytest.raises(BadSetting, match=str(path)):
        load({**KAFKA, "AUDIT_CONFIG": str(path)})


def test_without_kafka_it_says_what_to_set() -> None:
    with pytest.raises(BadSetting, match="Set AUDIT_BOOTSTRAP_SERVERS=HOST:PORT"):
        load({})
