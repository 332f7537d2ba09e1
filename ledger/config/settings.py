"""The sections of the settings: names, units, bounds and defaults. How they are found is `config`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ledger.archive.removal import retention
from ledger.core.model.recovery import JobState

HOUR_S, DAY_S = 3600.0, 86_400.0


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TopicsSection(Section):
    """The topics and how they are made. Sizes that are None depend on whose Kafka it is: one embedded broker, or yours."""

    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,180}$")
    """Put before the names of all topics, for several ledgers in one cluster. Empty: none, as one ledger is the rule."""
    partitions: int | None = Field(default=None, ge=1, le=10_000)
    """Of events and of recovery, the same for both, fixed when they are made. None: 4 embedded, 24 elsewhere."""
    replication_factor: int | None = Field(default=None, ge=1, le=32)
    """Copies of each partition. None: 1 embedded (there is one broker), 3 elsewhere."""
    min_insync_replicas: int | None = Field(default=None, ge=1, le=32)
    """Copies that a write waits for. None: 1 embedded, 2 elsewhere, so that one broker may be away."""
    delete_retention_s: float = Field(default=7 * DAY_S, gt=0)
    """How long tombstones stay after compaction, in seconds: longer than any reader or replica is ever away. A reader
    that was away for half of it reads anew."""
    min_compaction_lag_s: float = Field(default=DAY_S, ge=0)
    """Age in seconds up to which ledger.events keeps every record: the time that the archive has to copy it."""
    recovery_min_compaction_lag_s: float = Field(default=HOUR_S, ge=0)
    """The same for ledger.recovery. It exceeds the longest failover, so that a leader can still see and mend what a
    stale predecessor wrote."""
    max_message_bytes: int = Field(default=1_048_576, ge=65_536)
    """Of one record, in bytes. About Kafka's own default: facts are small, graphs lie in the blob store."""
    rejects_retention_s: float = Field(default=30 * DAY_S, gt=0)
    """How long refused records are kept, in seconds. 30 days: time to find out who sends them."""

    @property
    def events(self) -> str:
        return f"{self.prefix}ledger.events"

    @property
    def recovery(self) -> str:
        return f"{self.prefix}ledger.recovery"

    @property
    def rejects(self) -> str:
        return f"{self.prefix}ledger.rejects"

    @property
    def anchors(self) -> str:
        return f"{self.prefix}ledger.anchors"


class ProjectorSection(Section):
    """The role that folds ledger.events into ledger.recovery."""

    commit_interval_s: float = Field(default=0.05, gt=0, le=1)
    """Seconds of waiting for records before what has come is published: latency against transactions per second."""
    restore_points: int = Field(default=3, ge=1, le=100)
    """How many of the newest restore points an entry offers. 3: two may be damaged and the job still comes back."""
    history: int = Field(default=10, ge=1, le=1000)
    """Attempts per job whose facts are kept in the topic. Older ones are in the archive only."""
    collect_unadmitted_after_s: float = Field(default=DAY_S, gt=0)
    """Seconds after which registers of an id that nobody submitted are removed."""
    cold_start: str = Field(default="log", pattern="^(log|snapshot)$")
    """What a projector reads itself up from. log: the topics, from their beginning. snapshot: the newest snapshots of the
    archive, and the topics from there on; what has none, or one that covers nothing younger than half of
    `topics.delete_retention_s`, is read from the beginning, and so is everything if the archive does not answer."""
    result_retention_s: float | None = Field(default=None, gt=0)
    """Seconds that the result of a retired job is kept. None: for ever, which takes some 200 bytes a job and refuses
    an id that is used again."""


class ReconcilerSection(Section):
    """The role that starts and stops attempts."""

    observe_interval_s: float = Field(default=1.0, gt=0)
    """Seconds between two looks at the runners while nothing happens in the log. A dead attempt is seen this late."""
    action_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds that one call to a runner or blob store may take before it counts as crashed."""
    observe_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds that a pass waits for the runners, all of which are asked at once. Who did not answer then is silent, and is
    not waited for until an answer of it has come. As long as the agent's client waits."""
    starts_max: int = Field(default=20, ge=1)
    """Attempts started in one pass over the set. More wait for the next ("start rate"), so that a cold start does not flood
    a host. What may run at the same time is limited by pools."""
    replaced_after_s: float = Field(default=10.0, ge=0)
    """Seconds that an attempt of a job that replaces another must have run, without a checkpoint of its own, before the old
    one is canceled for good. Until then it can be resumed: new code that does not work mostly says so at once."""
    gc_interval_s: float | None = Field(default=None, ge=0)
    """Seconds between two collections of garbage (`jobledger gc --apply`) by the reconciler that leads; each reads the log
    from its beginning, in a process of its own. 0: none. None: an hour where graphs lie in the folder of this ledger, none
    where they lie in a bucket, as another ledger may put its own there: set it once you know that none does."""
    gc_grace_s: float = Field(default=DAY_S, ge=HOUR_S)
    """Age in seconds up to which it leaves alone what nobody refers to. A day: time to see what is being lost. Never below
    an hour: what is being submitted is not in the log yet."""
    trigger_interval_s: float = Field(default=0.0, ge=0)
    """Least time in seconds between two micro-batches of the Spark stream. 0: as soon as there are records."""
    batch_offsets_max: int = Field(default=50_000, ge=100)
    """Offsets of ledger.recovery that one micro-batch covers at most. A new leader reads the whole topic in such batches,
    so this bounds its memory. Less: more batches, and a longer take-over."""


class PoolSection(Section):
    """Slots that jobs share: of those that are alive at one time, the slots together are never more than this. Which jobs:
    those of the namespaces and runners named here. Of several pools the one that names a job's namespace counts, then the
    one that names its runner; a job of no pool is not limited. Only what starts waits: nothing that runs is stopped."""

    slots: int = Field(ge=1, le=1_000_000)
    """How many there are. A job takes as many as it was submitted with (`submit --slots`), 1 by default."""
    namespaces: tuple[str, ...] = ()
    """Of the jobs that belong to the pool. Empty: any. In the environment separated by commas."""
    runners: tuple[str, ...] = ()
    """Of the jobs that belong to the pool. Empty: any. In the environment separated by commas."""

    @field_validator("namespaces", "runners", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


class PluginsSection(Section):
    """Runners that other packages bring (entry points of `jobledger.runners`). Each lives in processes of its own."""

    call_timeout_s: float = Field(default=20.0, gt=0)
    """Seconds that one call may take, loading included; then its process is killed. Below `reconciler.action_timeout_s`, so
    that it is the plug-in that is named."""
    memory_mb: int = Field(default=1024, ge=0, le=1 << 20)
    """Addresses that such a process may have, in MiB (RLIMIT_AS). 0: as many as there are."""


class AgentSection(Section):
    """The runner agent of this host (runner subprocess)."""

    send_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds that one sending of facts may wait for Kafka. After that they wait on disk and are sent again."""
    digest_bytes_per_s: int = Field(default=100 << 20, ge=0)
    """Bytes per second that the agent reads at most to take digests of new checkpoints, so that the disk stays the jobs'.
    Files that did not change since are not read again. 0: no digests are taken, and a start compares sizes only."""
    digest_wait_s: float = Field(default=5.0, ge=0, le=60)
    """Seconds that the record of a checkpoint waits at most for the digest of its content. A digest that takes longer is
    kept by the agent alone, which checks it before a start all the same."""


class LeadershipSection(Section):
    """How projectors and reconcilers agree on who leads. The epoch in the log keeps two leaders apart whatever it says."""

    adapter: str = Field(default="file", pattern="^(file|zookeeper|kafka)$")
    """file: a lock in `dir`, for one host. zookeeper, kafka: for several hosts (section zookeeper; or nothing more)."""
    session_timeout_s: float = Field(default=10.0, ge=1, le=600)
    """Seconds after which a leader that was not heard of is replaced; its own lease ends at two thirds of that. The
    servers have bounds for it, and what they grant is what counts. Less: quicker failover, and more of it."""
    leaderless_after_s: float | None = Field(default=None, gt=0)
    """Seconds without a leader after which each instance raises an alarm. None: one and a half sessions, as nobody can lead
    before the session of a dead leader is over."""


class ZooKeeperSection(Section):
    """Where ZooKeeper is and who we are to it. Used if `leadership.adapter` is zookeeper."""

    hosts: str = ""
    """`zk1:2181,zk2:2181`, by name where addresses change. Members that the ensemble gets later are found without it."""
    chroot: str = Field(default="", pattern=r"^(/[^/\s]+)*$")
    """A path before all of ours, such as /ledger. Empty: none. Made if it is not there."""
    auth: str = Field(default="", pattern="^(|digest|sasl)$")
    """digest, or sasl (DIGEST-MD5): what we make can be read and changed by this user only. Empty: by anybody."""
    username: str = ""
    """Of `auth`."""
    password_file: Path | None = None
    """The file that holds the password of `auth`."""
    tls: bool = False
    """Whether members are spoken to by TLS, at their secure port."""
    tls_ca_file: Path | None = None
    """Who may sign members' certificates (PEM), and nobody else. None: whom the system trusts."""
    tls_cert_file: Path | None = None
    """Our own certificate (PEM), for members that ask for one."""
    tls_key_file: Path | None = None
    """Its key (PEM)."""
    tls_key_password_file: Path | None = None
    """The file that holds the key's password. None: it has none."""
    tls_verify_hostname: bool = True
    """Whether the name in `hosts` must be in the member's certificate."""


class BucketSection(Section):
    """Of S3's credentials nothing stands here: boto3 finds them where it always does (environment, ~/.aws, the role of the
    machine)."""

    bucket: str = Field(default="", pattern=r"^[A-Za-z0-9:/._-]{0,255}$")
    """The bucket, which must exist; or the ARN of an access point."""
    prefix: str = Field(default="", pattern=r"^(([A-Za-z0-9_-][A-Za-z0-9._-]*)(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?)?$")
    """A path before all of ours, such as ledger/prod, where the bucket holds more. Empty: none."""
    endpoint_url: str | None = None
    """Of a store other than Amazon's: http(s)://host:port. None: as boto3 finds it."""
    region: str | None = None
    """The bucket's. None: as boto3 finds it (AWS_REGION, ~/.aws/config)."""
    path_style: bool | None = None
    """Whether the bucket stands in the path (true) or in the host's name (false). None: in the path where `endpoint_url` is
    given, as most stores other than Amazon's want it, else in the host's name."""
    sse: str = Field(default="", pattern="^(|AES256|aws:kms|aws:kms:dsse)$")
    """How the store encrypts what it is given. Empty: as the bucket does by itself."""
    sse_kms_key_id: str = Field(default="", max_length=2048)
    """The key of KMS, for aws:kms and aws:kms:dsse. Empty: the one of the account."""
    part_bytes: int = Field(default=16 << 20, ge=5 << 20, le=1 << 30)
    """Graphs from this size on are uploaded in parts of it, in bytes. One part is held in memory."""
    connect_timeout_s: float = Field(default=3.0, gt=0, le=60)
    """Seconds that one connection may take."""
    read_timeout_s: float = Field(default=8.0, gt=0, le=600)
    """Seconds of silence after which an answer is given up. Times `attempts_max` it should stay below
    `reconciler.action_timeout_s`, or a slow store looks like a crash."""
    attempts_max: int = Field(default=3, ge=1, le=20)
    """Of one request, the first included, where the store did not answer or was busy."""


class BlobsSection(BucketSection):
    """Where job graphs lie. Submitters, agents and reconcilers must name the same place."""

    adapter: str = Field(default="file", pattern="^(file|s3)$")
    """file: the folder `blobs` in `dir`. s3: a bucket, which the settings of the section name."""


class ArchiveSection(BucketSection):
    """Where every record is kept when compaction has removed it from its topic."""

    adapter: str = Field(default="", pattern="^(|file|s3)$")
    """Empty: there is no archive. file: the folder `archive` in `dir`. s3: a bucket, which the settings of the section
    name; with a prefix of its own if graphs lie in the same one."""
    interval_s: float = Field(default=10.0, gt=0, le=3600)
    """The least seconds between two batches. Each makes three objects for each partition in which something was written, so
    a longer one makes fewer and larger; and what is written since the last is not archived yet."""
    compact_interval_s: float | None = Field(default=None, gt=0)
    """Seconds between two times at which the archiver joins the days that are over. None: it never does, and needs no
    right to delete objects; `jobledger archive compact` does it when it is called."""
    retention: dict[str, float | None] = Field(default_factory=dict)
    """Namespace -> for how long the archive keeps what was superseded in its jobs, in seconds or as 90d; `*`: all others.
    `forever`: without an end, as where nothing is said. As a table, or in one text: prod=365d,*=90d. Only `archive expire`
    takes anything out."""
    expire_interval_s: float | None = Field(default=None, gt=0)
    """Seconds between two times at which the archiver takes out what has expired. None: it never does, and needs no right
    to delete objects; `jobledger archive expire` does it when it is called."""
    snapshot_interval_s: float | None = Field(default=None, gt=0)
    """Seconds between two times at which the archiver makes snapshots, each from the one before it, and thins out old ones:
    all of the last day stay, one of each day of a month, one of each month before. None: it makes none, and needs no right
    to delete objects; `jobledger archive snapshot` makes them when it is called."""
    headroom_min: float = Field(default=0.5, ge=0, le=1)
    """The least headroom that is no reason to worry, as a part of the topic's min.compaction.lag: with less left
    the archiver, `archive status` and `topics check` say so loudly, and with none the verbs fail."""
    headroom_interval_s: float = Field(default=30.0, gt=0)
    """Seconds between two times at which the archiver reckons the headroom, for its alarm and its metrics."""
    anchor_interval_s: float = Field(default=60.0, ge=0)
    """Seconds between two times at which the archiver anchors what has grown, in the topic of anchors. What was sealed
    since is not proved yet. 0: it never does."""
    anchor_key_file: Path | None = None
    """The private key (Ed25519, PEM) that signs anchors; its owner alone should be able to read it. None: they are not
    signed."""
    anchor_public_key_file: Path | None = None
    """The public keys (PEM, one after the other) whose anchors count for `audit verify`, `archive restore` and an
    archiver that signs, and no others. None: all count, signed or not."""
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    """Where the archiver answers GET /metrics (Prometheus). None: nowhere."""
    metrics_address: str = "127.0.0.1"
    """The address of it. By default only this host can ask; there is no password."""

    @field_validator("retention", mode="before")
    @classmethod
    def _retention(cls, value: Any) -> Any:
        return retention.parse(value)


class NotifySection(Section):
    """Who is told that a job has come into a state in which people are needed. The leading projector tells, at least once
    for each id (`id` in the body: job, attempt and state). Nothing is told unless command or webhook is set."""

    command: tuple[str, ...] = ()
    """A program and its arguments; it gets the JSON body on stdin, and 0 as its exit code says that it took it. It never
    passes through a shell. In the environment as words a shell would split. No secrets: argv can be seen by all."""
    webhook: str = ""
    """An http(s) url to which the JSON body is posted; a status of 2xx says that it was taken. Taken for a secret: only its
    host is ever shown."""
    webhook_file: Path | None = None
    """The file that holds the url, in place of `webhook`."""
    states: tuple[JobState, ...] = (JobState.QUARANTINED,)
    """Of which jobs. In the environment separated by commas."""
    timeout_s: float = Field(default=10.0, gt=0, le=300)
    """Seconds that one telling may take. After that it has failed; it is tried again, ever more rarely, 8 times in all."""

    @field_validator("command", mode="before")
    @classmethod
    def _command(cls, value: Any) -> Any:
        return shlex.split(value) if isinstance(value, str) else value

    @field_validator("states", mode="before")
    @classmethod
    def _states(cls, value: Any) -> Any:
        words = value.split(",") if isinstance(value, str) else value
        return [word.strip().upper() if isinstance(word, str) else word for word in words]


class LogSection(Section):
    """What the processes say on stderr."""

    level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    """The least that is told: debug, info, warning or error."""
    format: str = Field(default="auto", pattern="^(auto|console|json)$")
    """auto: lines for people on a terminal, JSON (one object a line) elsewhere. console, json: always that."""
