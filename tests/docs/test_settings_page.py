"""docs/SETTINGS.md is up to date with the settings' code."""

from __future__ import annotations

import pytest

from ledger.cli.settings_reference import matching, sections
from ledger.config.config import Config, load_config
from tests.docs.settings_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "regenerate the page: python -m tests.docs.settings_page"


def test_every_setting_is_described() -> None:
    described = {section.name: section for section in sections()}
    assert set(described) == set(Config.model_fields) - {"dir", "config_file"}
    for section in described.values():
        assert section.meaning
        assert [one.name for one in section.settings if not one.meaning] == []
    fields = Config.model_fields["archive"].annotation.model_fields  # type: ignore[union-attr]
    assert [one.name for one in described["archive"].settings] == [f"archive.{key}" for key in fields]


@pytest.mark.parametrize("name", ["log.level", "archive.interval_s", "topics.replication_factor"])
def test_the_variable_sets_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (setting,) = matching(name)
    value = {"log.level": "debug", "archive.interval_s": "7", "topics.replication_factor": "2"}[name]
    monkeypatch.setenv(setting.variable, value)
    section, _, key = name.partition(".")
    assert str(getattr(getattr(load_config(), section), key)).removesuffix(".0") == value


def test_a_section_or_one_setting_can_be_asked_for() -> None:
    assert {one.name.partition(".")[0] for one in matching("zookeeper")} == {"zookeeper"}
    assert [one.default for one in matching("log.level")] == ['"info"']
    assert matching("log.lev") == []
