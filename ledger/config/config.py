"""All settings of a process, by precedence: flag > environment > TOML file > default. Nothing here opens a connection.

The variables are LEDGER_DIR, LEDGER_CONFIG and `LEDGER_<SECTION>__<KEY>` (two underscores), and for a pool
`LEDGER_POOLS__<NAME>__<KEY>`. Other variables that begin with LEDGER_ belong to jobs. In the sections kafka and spark,
`_` replaces the dots of a name: `LEDGER_KAFKA__BOOTSTRAP_SERVERS` is `bootstrap.servers`. An unknown name is an error,
because it is a typo.
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

#: librdkafka settings that users must not set, with the reason. A test compares them with the Kafka adapter's table.
REFUSED = {
    "acks": "a fact counts once all in-sync replicas have it",
    "auto.offset.reset": "a reader whose offset is gone must fail, not skip records",
    "enable.auto.commit": "offsets are not stored in consumer groups",
    "enable.auto.offset.store": "offsets are not stored in consumer groups",
    "enable.idempotence": "a resend must not become a second record",
    "enable.partition.eof": "readers need it to move past control records",
    "group.id": "readers belong to no group",
    "isolation.level": "readers see committed records only",
    "partitioner": "every writer names the partition itself",
    "transaction.timeout.ms": "a paused leader's open transaction must not block its successor",
    "transactional.id": "it is derived from the role, so that a new leader fences the old one",
}


#: Spark settings that users must not set, by their names without `spark.`, with the reason.
SPARK_REFUSED = {
    "jars": "it holds the Kafka connector of this version; put others into jars.packages",
    "python.daemon.module": "the ledger's own daemon forks workers with the ledger already imported",
}


class Config(BaseSettings):
    """All settings of one process. Frozen; made by `load_config`."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    dir: Path = Field(default_factory=default_dir)
    """The folder of an embedded ledger: broker, blobs, runs, logs. With your own Kafka it holds blobs, locks and the
    agent's runs of this host. Default: $XDG_DATA_HOME/jobledger. Flag --dir, environment LEDGER_DIR."""
    config_file: Path | None = None
    """The TOML file. None: ledger.toml in `dir`, if it exists. Flag --config, environment LEDGER_CONFIG."""
    kafka: dict[str, str] = Field(default_factory=dict)
    """librdkafka settings by their dotted names, passed on unchanged. `<name>.file` reads the value from a file; use it
    for secrets. Without bootstrap.servers, the ledger uses the broker embedded in `dir`."""
    topics: TopicsSection = TopicsSection()
    projector: ProjectorSection = ProjectorSection()
    reconciler: ReconcilerSection = ReconcilerSection()
    spark: dict[str, str] = Field(default_factory=dict)
    """Settings of Spark for the reconciler and the archiver, by their names without `spark.`: `driver.memory` is
    `spark.driver.memory`. Names with capital letters can't be set in the environment."""
    pools: dict[str, PoolSection] = Field(default_factory=dict)
    """Slots that jobs share, with a section `[pools.NAME]` for each pool. Default: no pools, so nothing is limited."""
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
            raise ValueError(f"only the ledger itself sets {'; '.join(refused)}. Remove them")
        return {name: text_of(setting) for name, setting in value.items()}

    @field_validator("spark", mode="before")
    @classmethod
    def _spark(cls, value: Any) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise ValueError("must be a table of Spark's names, without `spark.`")
        if refused := [f"{name} ({SPARK_REFUSED[name]})" for name in value if name in SPARK_REFUSED]:
            raise ValueError(f"only the ledger itself sets {'; '.join(refused)}. Remove them")
        if doubled := [name for name in value if name.startswith("spark.")]:
            raise ValueError(f"write names without `spark.`: {', '.join(n.removeprefix('spark.') for n in doubled)}")
        return {name: text_of(setting) for name, setting in value.items()}

    @field_validator("pools")
    @classmethod
    def _pools(cls, value: dict[str, PoolSection]) -> dict[str, PoolSection]:
        if wrong := [name for name in value if _POOL.fullmatch(name) is None]:
            raise ValueError(
                f"a pool's name consists of a-z, 0-9, - and single _, and begins with a letter: not {', '.join(wrong)}"
            )
        _limits(value)
        return value

    def limits(self) -> core_pools.Pools:
        """The settings of the pools, as the core takes them."""
        return _limits(self.pools)

    @property
    def embedded(self) -> bool:
        """Whether the ledger's Kafka is the broker embedded in `dir`."""
        return BOOTSTRAP not in self.kafka

    @property
    def bootstrap(self) -> str:
        """The address of Kafka. Raises: ConfigError if none is set and no embedded broker exists."""
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
        """The settings of every Kafka client, by librdkafka's names. They contain secrets: never show them.

        Raises: ConfigError if no address of Kafka is known, or a file with a secret can't be read."""
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
        """The settings that the topics must have, with default sizes filled in."""
        partitions, replicas = (4, 1) if self.embedded else (24, 3)
        given = self.topics.model_dump()
        replicas = given["replication_factor"] or replicas
        sizes = {"partitions": partitions, "replication_factor": replicas, "min_insync_replicas": min(2, replicas)}
        given |= {name: given[name] or size for name, size in sizes.items()}
        return TopicSettings(**given, leaders=self.leadership.adapter == "kafka", anchors=bool(self.archive.adapter))

    @property
    def agent_folder(self) -> Path:
        """The folder that the agent of this host shares with the runner `subprocess`: socket, runs, checkpoints."""
        return self.dir / "agent"

    @property
    def waits_file(self) -> Path:
        """The file in which the reconciler of this host records why jobs wait (`ledger.app.waiting_reasons`)."""
        return self.dir / "run" / "waits.json"

    @property
    def gc_interval_s(self) -> float:
        """Seconds between two garbage collections by the reconciler; 0 means never."""
        if self.reconciler.gc_interval_s is not None:
            return self.reconciler.gc_interval_s
        return HOUR_S if self.blobs.adapter == "file" else 0.0

    @property
    def collected_file(self) -> Path:
        """The file that lists the garbage deleted on this host, with reasons (`ledger.operations.collecting`)."""
        return self.dir / "collected.jsonl"

    @property
    def notified_file(self) -> Path:
        """The file that lists the notifications delivered from this host (`ledger.app.notifying`)."""
        return self.dir / "run" / "notified.json"

    @property
    def candidates_folder(self) -> Path:
        """The folder in which the role instances on this host publish their status (`ledger.reader.presence`)."""
        return self.dir / "run" / "candidates"

    def leader_lock(self, role: str) -> Path:
        """The file whose lock makes its holder the leader of a role on this host."""
        return self.dir / "run" / f"leader-{role}.lock"

    def environment(self) -> dict[str, str]:
        """The environment variables that pass settings given by flags to a child process, because all users can read
        argv. LEDGER_DIR and LEDGER_CONFIG are not among them."""
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
        """All settings as plain values to print, with secrets masked."""
        plain = self.model_dump(mode="json")
        if self.notify.webhook:
            plain["notify"]["webhook"] = MASK
        for section, table in (("kafka", self.kafka), ("spark", self.spark)):
            plain[section] = {name: mask(name, value) for name, value in sorted(table.items())}
        return plain

    def origins(self) -> dict[str, str]:
        """Maps the dotted name of each setting that is not at its default to its source."""
        return dict(self._origins)


def load_config(dir: Path | None = None, config_file: Path | None = None, **overrides: Any) -> Config:  # noqa: A002
    """The settings in force. `overrides` are sections: `load_config(topics={"prefix": "test."})`. The overrides, `dir`
    and `config_file` override environment and file.

    Raises: ConfigError that names the setting and its source, never its value.
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
    """The value of a setting, or MASK if the setting's name indicates a secret. File names are not secret."""
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
    """The content of a file that a setting names, without the final newline. Raises: ConfigError if it can't be
    read."""
    try:
        return file.expanduser().read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The file that {name} names can't be read: {error}.") from error


def _explained(error: ValidationError, origins: Mapping[str, str]) -> str:
    """The text of the error, without values, because a value may be a secret."""
    problems = []
    for one in error.errors(include_input=False, include_url=False, include_context=False):
        name = ".".join(str(part) for part in one["loc"])
        what = _unknown(name) if one["type"] == "extra_forbidden" else one["msg"].removeprefix("Value error, ")
        own = {origin for setting, origin in origins.items() if setting == name or setting.startswith(f"{name}.")}
        problems.append(f"{name} ({' and '.join(sorted(own)) or 'default'}): {what}.")
    return "Invalid settings: " + " ".join(problems)


def _unknown(name: str) -> str:
    """The error text for an unknown setting or section, with the most similar known name."""
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
