"""Settings, as data: flag > environment > TOML file > default. Nothing here opens a connection.

The environment holds settings as `LEDGER_<SECTION>__<KEY>` (two underscores; other names that begin with LEDGER_ belong
to jobs), besides LEDGER_DIR and LEDGER_CONFIG; of a pool as `LEDGER_POOLS__<NAME>__<KEY>`. In the sections kafka and
spark `_` stands for the dot of a name: `LEDGER_KAFKA__BOOTSTRAP_SERVERS` is `bootstrap.servers`. A name that nobody knows
is an error: it is a typo.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ledger.archive.removal.retention import FOREVER
from ledger.config.broker_ports import HOST, read_ports
from ledger.config.config_sources import default_dir, file_of, from_environment, from_file, names_of, text_of
from ledger.config.settings import (
    HOUR_S,
    AgentSection,
    ArchiveSection,
    BlobsSection,
    LeadershipSection,
    LogSection,
    NotifySection,
    PluginsSection,
    PoolSection,
    ProjectorSection,
    ReconcilerSection,
    TopicsSection,
    ZooKeeperSection,
)  # fmt: skip
from ledger.config.topics import TopicSettings
from ledger.core.plan import pools as core_pools
from ledger.errors import ConfigError

BOOTSTRAP = "bootstrap.servers"
MASK = "********"
_SECRET = ("password", "secret", "token", "key", "pem", "jaas")
_FILE = ".file"
_A_POOL = re.compile(r"\Apools\.[^.]*\.")
_POOL = re.compile(r"[a-z](_?[a-z0-9-])*")

#: librdkafka settings that nobody may set, with the reason. The Kafka adapter has the same table: a test compares them.
REFUSED = {
    "acks": "a fact counts once all in-sync replicas have it",
    "auto.offset.reset": "a reader that has lost its place must say so, not jump",
    "enable.auto.commit": "positions are not kept in groups",
    "enable.auto.offset.store": "positions are not kept in groups",
    "enable.idempotence": "a resend must not become a second record",
    "enable.partition.eof": "positions must pass control records",
    "group.id": "readers belong to no group",
    "isolation.level": "readers see committed records only",
    "partitioner": "every writer names the partition itself",
    "transaction.timeout.ms": "a paused leader's open transaction must not block its successor",
    "transactional.id": "it names the role, and so who fences whom",
}


#: Spark settings that nobody may set, by their names without the first word, with the reason.
SPARK_REFUSED = {
    "jars": "it holds the Kafka connector of this version; name others in jars.packages",
    "python.daemon.module": "workers are forked with the ledger imported",
}


class Config(BaseSettings):
    """All settings of one process. Frozen; made by `load_config`."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    dir: Path = Field(default_factory=default_dir)
    """The folder of an embedded ledger: broker, blobs, runs, logs. Default: $XDG_DATA_HOME/jobledger. Flag --dir,
    environment LEDGER_DIR. With a Kafka of your own: blobs, locks and the agent's runs of this host."""
    config_file: Path | None = None
    """The TOML file. None: ledger.toml in `dir`, if it is there. Flag --config, environment LEDGER_CONFIG."""
    kafka: dict[str, str] = Field(default_factory=dict)
    """librdkafka settings by their dotted names, passed on as they are. `<name>.file` reads the value from a file, which
    is how secrets should come. Without bootstrap.servers the broker embedded in `dir` is meant."""
    topics: TopicsSection = TopicsSection()
    projector: ProjectorSection = ProjectorSection()
    reconciler: ReconcilerSection = ReconcilerSection()
    spark: dict[str, str] = Field(default_factory=dict)
    """Settings of Spark for the reconciler and the archiver, by their names without the first word: `driver.memory` is
    `spark.driver.memory`. Names with capital letters can't come from the environment."""
    pools: dict[str, PoolSection] = Field(default_factory=dict)
    """Which jobs share how many slots: a section for each pool, `[pools.NAME]`. None by default: nothing is limited."""
    agent: AgentSection = AgentSection()
    plugins: PluginsSection = PluginsSection()
    blobs: BlobsSection = BlobsSection()
    archive: ArchiveSection = ArchiveSection()
    leadership: LeadershipSection = LeadershipSection()
    zookeeper: ZooKeeperSection = ZooKeeperSection()
    notify: NotifySection = NotifySection()
    log: LogSection = LogSection()

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _Environment(settings_cls), _File(settings_cls)

    @field_validator("dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("kafka", mode="before")
    @classmethod
    def _kafka(cls, value: Any) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise ValueError("must be a table of librdkafka names")
        names = {name.removesuffix(_FILE): name for name in value}
        if refused := [f"{name} ({REFUSED[name]})" for name in names if name in REFUSED]:
            raise ValueError(f"these are the ledger's own: {'; '.join(refused)}. Remove them")
        return {name: text_of(setting) for name, setting in value.items()}

    @field_validator("spark", mode="before")
    @classmethod
    def _spark(cls, value: Any) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise ValueError("must be a table of Spark's names, without `spark.`")
        if refused := [f"{name} ({SPARK_REFUSED[name]})" for name in value if name in SPARK_REFUSED]:
            raise ValueError(f"these are the ledger's own: {'; '.join(refused)}. Remove them")
        if doubled := [name for name in value if name.startswith("spark.")]:
            raise ValueError(f"the section is the first word: {', '.join(n.removeprefix('spark.') for n in doubled)}")
        return {name: text_of(setting) for name, setting in value.items()}

    @field_validator("pools")
    @classmethod
    def _pools(cls, value: dict[str, PoolSection]) -> dict[str, PoolSection]:
        if wrong := [name for name in value if _POOL.fullmatch(name) is None]:
            raise ValueError(f"a name is of a-z, 0-9, - and single _, and begins with a letter: not {', '.join(wrong)}")
        _limits(value)
        return value

    def limits(self) -> core_pools.Pools:
        """The pools as the core takes them."""
        return _limits(self.pools)

    @property
    def embedded(self) -> bool:
        """Whether the ledger's Kafka is the broker embedded in `dir`."""
        return BOOTSTRAP not in self.kafka

    @property
    def bootstrap(self) -> str:
        """Raises: ConfigError if nothing says where Kafka is."""
        if not self.embedded:
            return self.kafka[BOOTSTRAP]
        ports = read_ports(self.dir / "broker")
        if ports is None:
            raise ConfigError(
                f"No ledger runs in {self.dir}.",
                hint="Run: jobledger up. Or name your Kafka: LEDGER_KAFKA__BOOTSTRAP_SERVERS=host:port",
            )
        return f"{HOST}:{ports.port}"

    def client(self) -> dict[str, str]:
        """The settings of every Kafka client, by librdkafka's names, secrets included: never show them.

        Raises: ConfigError if nothing says where Kafka is, or a file with a secret can't be read."""
        client = {BOOTSTRAP: self.bootstrap}
        for name, value in self.kafka.items():
            if name.endswith(_FILE):
                client[name.removesuffix(_FILE)] = read_secret(f"kafka setting {name}", Path(value))
            else:
                client[name] = value
        return client

    def spark_settings(self) -> dict[str, str]:
        """The settings of section spark by Spark's own names, secrets included."""
        return {f"spark.{name}": value for name, value in self.spark.items()}

    def topic_settings(self) -> TopicSettings:
        """What the topics must be, the unset sizes filled in."""
        partitions, replicas = (4, 1) if self.embedded else (24, 3)
        given = self.topics.model_dump()
        replicas = given["replication_factor"] or replicas
        sizes = {"partitions": partitions, "replication_factor": replicas, "min_insync_replicas": min(2, replicas)}
        given |= {name: given[name] or size for name, size in sizes.items()}
        return TopicSettings(**given, leaders=self.leadership.adapter == "kafka", anchors=bool(self.archive.adapter))

    @property
    def agent_folder(self) -> Path:
        """What the runner agent of this host and the runner `subprocess` share: socket, runs, checkpoints."""
        return self.dir / "agent"

    @property
    def waits_file(self) -> Path:
        """What the reconciler of this host says that jobs wait for (`ledger.app.waiting`)."""
        return self.dir / "run" / "waits.json"

    @property
    def gc_interval_s(self) -> float:
        """Seconds between two collections of garbage by the reconciler; 0 = none."""
        if self.reconciler.gc_interval_s is not None:
            return self.reconciler.gc_interval_s
        return HOUR_S if self.blobs.adapter == "file" else 0.0

    @property
    def collected_file(self) -> Path:
        """What was deleted as garbage from this host, and why (`ledger.operations.collecting`)."""
        return self.dir / "collected.jsonl"

    @property
    def notified_file(self) -> Path:
        """Which notifications instances on this host have delivered (`ledger.app.notifying`)."""
        return self.dir / "run" / "notified.json"

    @property
    def candidates_folder(self) -> Path:
        """Where the instances of roles on this host say how they stand (`ledger.reader.presence`)."""
        return self.dir / "run" / "candidates"

    def leader_lock(self, role: str) -> Path:
        """The file whose lock says who leads a role on this host."""
        return self.dir / "run" / f"leader-{role}.lock"

    def environment(self) -> dict[str, str]:
        """The variables that give a child process what came by flag, the paths apart: argv is no place for settings."""
        found = {}
        for name, origin in self._origins.items():
            section, separator, key = name.partition(".")
            if origin == "flag" and separator:
                if section == "pools":
                    pool, _, key_of_pool = key.partition(".")
                    value, key = getattr(self.pools[pool], key_of_pool), f"{pool}__{key_of_pool}"
                elif section == "archive" and key.startswith("retention"):
                    key = "retention"
                    value = tuple(f"{n}={FOREVER if t is None else t}" for n, t in self.archive.retention.items())
                else:
                    table = getattr(self, section)
                    value = table[key] if isinstance(table, dict) else getattr(table, key)
                if value is not None:
                    text = ",".join(value) if isinstance(value, tuple) else text_of(value)
                    found[f"LEDGER_{section}__{key.replace('.', '_')}".upper()] = text
        return found

    def shown(self) -> dict[str, Any]:
        """All settings as plain values for people, secrets masked."""
        plain = self.model_dump(mode="json")
        if self.notify.webhook:
            plain["notify"]["webhook"] = MASK
        for section, table in (("kafka", self.kafka), ("spark", self.spark)):
            plain[section] = {name: mask(name, value) for name, value in sorted(table.items())}
        return plain

    def origins(self) -> dict[str, str]:
        """Dotted name of each setting that is not at its default -> where it comes from."""
        return dict(self._origins)


def load_config(dir: Path | None = None, config_file: Path | None = None, **overrides: Any) -> Config:  # noqa: A002
    """The settings in force. `overrides` are sections: `load_config(topics={"prefix": "test."})`; they and the two paths
    rank above environment and file.

    Raises: ConfigError that names the setting and where it came from, never its value.
    """
    paths = {"dir": dir, "config_file": config_file}
    flags = {name: value for name, value in paths.items() if value is not None} | overrides
    environment = from_environment(os.environ)
    file = file_of(environment | flags)
    layers = {"flag": flags, "environment": environment, f"file {file}": from_file(file)}
    origins = {name: origin for origin, layer in reversed(layers.items()) for name in names_of(layer)}
    try:
        config = Config(**flags)
    except ValidationError as error:
        raise ConfigError(_explained(error, origins), hint="See: jobledger config show --sources") from None
    config._origins.update(origins)
    return config


def mask(name: str, value: str) -> str:
    """The value, or MASK if the name tells of a secret. Names of files are no secret."""
    secret = any(word in name.lower() for word in _SECRET)
    return MASK if secret and not name.endswith((_FILE, ".location", "_file")) else value


class _Source(PydanticBaseSettingsSource):
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError("the source is read as a whole")


class _Environment(_Source):
    def __call__(self) -> dict[str, Any]:
        return from_environment(os.environ)


class _File(_Source):
    def __call__(self) -> dict[str, Any]:
        return from_file(file_of(self.current_state))


def _limits(given: Mapping[str, PoolSection]) -> core_pools.Pools:
    return core_pools.Pools(
        core_pools.Pool(name, pool.slots, frozenset(pool.namespaces), frozenset(pool.runners))
        for name, pool in given.items()
    )


def read_secret(name: str, file: Path) -> str:
    """What stands in a file that a setting names. Raises: ConfigError if it can't be read."""
    try:
        return file.expanduser().read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The file that {name} names can't be read: {error}.") from error


def _explained(error: ValidationError, origins: Mapping[str, str]) -> str:
    """Without the values: one of them may be a secret."""
    told = []
    for one in error.errors(include_input=False, include_url=False, include_context=False):
        name = ".".join(str(part) for part in one["loc"])
        what = _unknown(name) if one["type"] == "extra_forbidden" else one["msg"].removeprefix("Value error, ")
        own = {origin for setting, origin in origins.items() if setting == name or setting.startswith(f"{name}.")}
        told.append(f"{name} ({' and '.join(sorted(own)) or 'default'}): {what}.")
    return "Settings that can't be: " + " ".join(told)


def _unknown(name: str) -> str:
    """What is said of a setting or a section that there is none of, with the known name that is most like it."""
    asked = _A_POOL.sub("pools.NAME.", name)
    section, _, key = asked.rpartition(".")
    names = {known: known.rpartition(".") for known in _names()}
    like = [known for known, (its, _, its_key) in names.items() if its and its_key == key]  # in another section
    like = like or get_close_matches(asked, [known for known, (its, _, _) in names.items() if its == section], n=1)
    like = like or get_close_matches(asked, names, n=1)
    return f"there is no such setting{f' (did you mean {like[0]}?)' if like else ''}"


def _names() -> list[str]:
    """Dotted names of all sections and settings."""
    found = [f"pools.NAME.{name}" for name in PoolSection.model_fields]
    for section, field in Config.model_fields.items():
        found += [section, *(f"{section}.{name}" for name in getattr(field.annotation, "model_fields", {}))]
    return found
