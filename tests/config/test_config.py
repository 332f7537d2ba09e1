"""Where settings come from, which win, and what is refused."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest

from ledger.adapters.kafka.log import OURS
from ledger.adapters.kafka.topics import TopicSettings
from ledger.config.config import MASK, REFUSED, SPARK_REFUSED, Config, load_config, mask
from ledger.config.config_sources import from_environment, kafka_name
from ledger.config.settings import PoolSection as Pool_
from ledger.config.settings import Section
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.plan.pools import Pool, Pools
from ledger.errors import ConfigError


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("LEDGER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def toml(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "ledger.toml"
    file.write_text(text)
    return file


# -- sources ---------------------------------------------------------------------------------------------------------


def test_the_folder_is_by_default_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_config().dir == tmp_path / "data" / "jobledger"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert load_config().dir == Path("/home/someone/.local/share/jobledger")
    monkeypatch.setenv("LEDGER_DIR", str(tmp_path / "named"))
    assert load_config().dir == tmp_path / "named"
    assert load_config(tmp_path / "flag").dir == tmp_path / "flag"


def test_flag_over_environment_over_file_over_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml(tmp_path, '[topics]\nprefix = "file."\npartitions = 7\nmin_insync_replicas = 2\n')
    assert load_config(tmp_path).topics.prefix == "file."
    monkeypatch.setenv("LEDGER_TOPICS__PREFIX", "environment.")
    monkeypatch.setenv("LEDGER_TOPICS__PARTITIONS", "8")
    assert load_config(tmp_path).topics.prefix == "environment."
    config = load_config(tmp_path, topics={"prefix": "flag."})
    assert config.topics.prefix == "flag."
    assert (config.topics.partitions, config.topics.min_insync_replicas) == (8, 2)
    assert config.topics.replication_factor is None
    assert config.origins() == {
        "dir": "flag",
        "topics.prefix": "flag",
        "topics.partitions": "environment",
        "topics.min_insync_replicas": f"file {tmp_path / 'ledger.toml'}",
    }


def test_a_named_file_takes_the_place_of_the_one_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml(tmp_path, "[topics]\npartitions = 1\n")
    other = toml(tmp_path / "other", "[topics]\npartitions = 2\n")
    assert load_config(tmp_path, other).topics.partitions == 2
    monkeypatch.setenv("LEDGER_CONFIG", str(other))
    monkeypatch.setenv("LEDGER_DIR", str(tmp_path))
    assert load_config().topics.partitions == 2
    with pytest.raises(ConfigError, match="no-such-file"):
        load_config(tmp_path, tmp_path / "no-such-file")


def test_only_names_with_two_underscores_are_settings() -> None:
    found = from_environment({
        "LEDGER_JOB_ID": "j", "LEDGER_CHECKPOINT_DIR": "/c", "LEDGER_OUTPUT": "json", "OTHER_KAFKA__ACKS": "0",
        "LEDGER_TOPICS__PREFIX": "p.", "LEDGER_TOPICS__PARTITIONS": "",
    })  # fmt: skip
    assert found == {"topics": {"prefix": "p."}}


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("bootstrap_servers", "bootstrap.servers"),
        ("sasl_oauthbearer_client_id", "sasl.oauthbearer.client.id"),
        ("ssl_key_password_file", "ssl.key.password.file"),
        ("log_level", "log_level"),
    ],
)
def test_underscores_are_the_dots_of_kafka(variable: str, name: str) -> None:
    assert kafka_name(variable) == name


def test_environment_overrides_the_same_kafka_setting_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml(tmp_path, '[kafka]\n"bootstrap.servers" = "file:1"\nsocket.timeout.ms = 5000\nsocket.keepalive.enable = true\n')
    assert load_config(tmp_path).client() == {
        "bootstrap.servers": "file:1", "socket.timeout.ms": "5000", "socket.keepalive.enable": "true",
    }  # fmt: skip
    monkeypatch.setenv("LEDGER_KAFKA__BOOTSTRAP_SERVERS", "environment:1")
    assert load_config(tmp_path).bootstrap == "environment:1"
    assert load_config(tmp_path, kafka={"bootstrap.servers": "flag:1"}).client()["bootstrap.servers"] == "flag:1"


def test_settings_of_spark_bear_its_names_and_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toml(tmp_path, '[spark]\ndriver.memory = "2g"\n"sql.shuffle.partitions" = 4\nssl.keyPassword = "word"\n')
    monkeypatch.setenv("LEDGER_SPARK__DRIVER_MEMORY", "3g")
    config = load_config(tmp_path)
    assert config.spark_settings() == {
        "spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "4", "spark.ssl.keyPassword": "word",
    }  # fmt: skip
    assert config.shown()["spark"]["ssl.keyPassword"] == MASK
    flagged = load_config(tmp_path, spark={"driver.memory": "4g"})
    assert flagged.environment() == {"LEDGER_SPARK__DRIVER_MEMORY": "4g"}


@pytest.mark.parametrize("name", [*SPARK_REFUSED, "spark.driver.memory"])
def test_settings_of_spark_that_the_ledger_owns_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=name.removeprefix("spark.")):
        load_config(tmp_path, spark={name: "any"})


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_safety_rests_on_cannot_be_overridden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(kafka={"bootstrap.servers": "k:1", name: "any"})
    assert name in str(raised.value)
    assert REFUSED[name] in str(raised.value)
    monkeypatch.setenv(f"LEDGER_KAFKA__{name.replace('.', '_').upper()}", "any")
    with pytest.raises(ConfigError):
        load_config(kafka={"bootstrap.servers": "k:1"})


def test_the_kafka_adapter_refuses_the_same() -> None:
    assert REFUSED == OURS


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ("LEDGER_TOPIX__PREFIX", "topix"),
        ("LEDGER_TOPICS__PREFFIX", "topics.preffix"),
        ("LEDGER_TOPICS__PARTITIONS", "topics.partitions"),
        ("LEDGER_LOG__LEVEL", "log.level"),
    ],
)
def test_a_mistake_is_told_by_name_and_source_without_its_value(
    variable: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "s3cret")
    with pytest.raises(ConfigError) as raised:
        load_config()
    assert told in str(raised.value)
    assert "environment" in str(raised.value)
    assert "s3cret" not in f"{raised.value} {raised.value.hint} {raised.value.__cause__}"
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("text", ["[topics", '[topics]\nprefixx = "a"\n', 'dir = "/elsewhere"\n', "[kafka]\nacks = 0\n"])
def test_a_bad_file_is_named(text: str, tmp_path: Path) -> None:
    file = toml(tmp_path, text)
    with pytest.raises(ConfigError, match=str(file)):
        load_config(tmp_path)


def test_settings_cannot_be_changed_afterwards() -> None:
    config = load_config()
    for target, name in ((config, "dir"), (config.topics, "prefix")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(target, name, "other")


# -- Kafka -----------------------------------------------------------------------------------------------------------


def test_without_a_broker_the_way_out_is_told(tmp_path: Path) -> None:
    config = load_config(tmp_path)
    with pytest.raises(ConfigError) as raised:
        config.client()
    assert str(tmp_path) in str(raised.value)
    assert "jobledger up" in raised.value.hint
    assert "LEDGER_KAFKA__BOOTSTRAP_SERVERS" in raised.value.hint


def test_the_embedded_broker_is_found_by_its_ports(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "ports.json").write_text('{"port": 20123, "controller_port": 20124}')
    assert load_config(tmp_path).client() == {"bootstrap.servers": "127.0.0.1:20123"}
    assert load_config(tmp_path).embedded
    assert not load_config(tmp_path, kafka={"bootstrap.servers": "k:1"}).embedded
    assert load_config(tmp_path, kafka={"bootstrap.servers": "k:1"}).bootstrap == "k:1"


def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("pass word\n")
    kafka = {"bootstrap.servers": "k:1", "sasl.password.file": str(secret)}
    assert load_config(tmp_path, kafka=kafka).client()["sasl.password"] == "pass word"
    assert "sasl.password.file" not in load_config(tmp_path, kafka=kafka).client()
    with pytest.raises(ConfigError, match=r"sasl\.password\.file"):
        load_config(tmp_path, kafka={**kafka, "sasl.password.file": str(tmp_path / "gone")}).client()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("sasl.password", MASK), ("ssl.key.pem", MASK), ("sasl.oauthbearer.client.secret", MASK),
        ("sasl.jaas.config", MASK), ("sasl.oauthbearer.token", MASK),
        ("ssl.key.location", "v"), ("sasl.password.file", "v"), ("sasl.username", "v"),
    ],
)  # fmt: skip
def test_secrets_are_masked(name: str, shown: str) -> None:
    assert mask(name, "v") == shown
    assert load_config(kafka={"bootstrap.servers": "k:1", name: "v"}).shown()["kafka"][name] == shown


# -- topics ----------------------------------------------------------------------------------------------------------


def test_the_size_of_topics_depends_on_whose_kafka_it_is(tmp_path: Path) -> None:
    def sizes(config: Config) -> tuple[int, int, int]:
        made = config.topic_settings()
        return made.partitions, made.replication_factor, made.min_insync_replicas

    yours = {"bootstrap.servers": "k:1"}
    assert sizes(load_config(tmp_path)) == (4, 1, 1)
    assert sizes(load_config(tmp_path, kafka=yours)) == (24, 3, 2)
    assert sizes(load_config(tmp_path, kafka=yours, topics={"replication_factor": 1})) == (24, 1, 1)
    assert sizes(load_config(tmp_path, topics={"partitions": 9})) == (9, 1, 1)


def test_defaults_of_topics_are_those_of_the_adapter(tmp_path: Path) -> None:
    assert load_config(tmp_path).topic_settings() == TopicSettings()
    assert load_config(tmp_path, archive={"adapter": "file"}).topic_settings() == TopicSettings(anchors=True)


def test_names_of_topics_have_the_prefix() -> None:
    topics = load_config(topics={"prefix": "test."}).topics
    assert (topics.events, topics.recovery, topics.rejects) == (
        "test.ledger.events", "test.ledger.recovery", "test.ledger.rejects",
    )  # fmt: skip


# -- pools -----------------------------------------------------------------------------------------------------------

POOLS = """
[pools.batch]
slots = 8
namespaces = ["etl", "ml"]
[pools.rest]
slots = 20
"""


def pool_of(pools: Pools, namespace: str, runner: str = "subprocess") -> Pool | None:
    return pools.of(RecoveryEntry("j", "n", namespace, runner, JobState.CREATED, "d"))


def test_pools_come_from_the_file_and_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not load_config(tmp_path).limits()
    file = toml(tmp_path, POOLS)
    monkeypatch.setenv("LEDGER_POOLS__REST__SLOTS", "30")
    monkeypatch.setenv("LEDGER_POOLS__GPU_1__SLOTS", "2")
    monkeypatch.setenv("LEDGER_POOLS__GPU_1__RUNNERS", "spark, flink")
    config = load_config(tmp_path)
    assert [(pool.name, pool.slots) for pool in config.limits()] == [("batch", 8), ("gpu_1", 2), ("rest", 30)]
    assert pool_of(config.limits(), "etl", "spark") == Pool("batch", 8, frozenset({"etl", "ml"}))
    assert pool_of(config.limits(), "other", "spark") == Pool("gpu_1", 2, runners=frozenset({"spark", "flink"}))
    assert pool_of(config.limits(), "other") == Pool("rest", 30)
    assert config.origins()["pools.rest.slots"] == "environment"
    assert config.origins()["pools.batch.slots"] == f"file {file}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[pools.a]\n", "pools.a.slots"),
        ("[pools.a]\nslots = 0\n", "pools.a.slots"),
        ("[pools.A]\nslots = 1\n", "small|a-z"),
        ("[pools.a]\nslots = 1\nlabels = []\n", "pools.a.labels"),
        ("[pools.a]\nslots = 1\n[pools.b]\nslots = 1\n", "take the same jobs"),
    ],
)
def test_pools_that_can_not_be_are_told(text: str, told: str, tmp_path: Path) -> None:
    toml(tmp_path, text)
    with pytest.raises(ConfigError, match=told):
        load_config(tmp_path)


# -- children and documentation --------------------------------------------------------------------------------------


def test_what_came_by_flag_reaches_child_processes_by_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flags = {"kafka": {"socket.timeout.ms": "5000"}, "log": {"level": "debug"}, "topics": {"partitions": 3},
             "pools": {"a": {"slots": 4, "namespaces": ["x", "y"]}}}  # fmt: skip
    config = load_config(tmp_path, **flags)
    for name, value in config.environment().items():
        monkeypatch.setenv(name, value)
    child = load_config(tmp_path)
    assert child.shown() == config.shown()
    assert set(child.origins().values()) == {"flag", "environment"}


def test_every_setting_is_explained() -> None:
    of_config = explained(Config)
    for name, field in Config.model_fields.items():
        section = field.annotation
        section = Pool_ if name == "pools" else section
        if isinstance(section, type) and issubclass(section, Section):
            of_section = explained(section)
            for key in section.model_fields:
                assert key in of_section, f"{name}.{key}"
        else:
            assert name in of_config, name


def explained(kind: type) -> set[str]:
    """The names of a class, its bases too, behind which a text stands."""
    found = set()
    for one in (base for base in kind.__mro__ if base.__module__.startswith("ledger.")):
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0].body
        for name, text in pairwise(body):
            if isinstance(name, ast.AnnAssign) and isinstance(text, ast.Expr) and str(text.value.value).strip():
                found.add(name.target.id)
    return found


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 100_000, "\0", "x = 9999-99-99", "[kafka]\n" + "a." * 5_000 + "b = 1", "x = 1_"]
)
def test_a_file_that_no_parser_takes_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load_config(config_file=toml(tmp_path, text))


@pytest.mark.parametrize(
    ("section", "settings", "told"),
    [
        ("archive", {"adaptr": "file"}, "archive.adaptr (flag): there is no such setting (did you mean archive.adapter?)."),
        ("archiv", {"adapter": "file"}, "(did you mean archive?)."),
        ("reconciler", {"commit_interval_s": 1}, "(did you mean projector.commit_interval_s?)."),
        ("log", {"zzzzzzzzzz": 1}, "log.zzzzzzzzzz (flag): there is no such setting."),
        ("pools", {"big": {"slotz": 1}}, "there is no such setting (did you mean pools.NAME.slots?)."),
    ],
)
def test_a_name_that_nobody_knows_is_told_with_the_one_that_is_most_like_it(
    section: str, settings: dict[str, object], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, **{section: settings})
    assert told in str(caught.value)
