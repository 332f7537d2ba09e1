"""The sections of the settings: names, units, bounds and defaults. `config` loads them."""

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
    """The topics and their Kafka settings. The default sizes depend on the cluster: the embedded broker, or your
    Kafka."""

    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,180}$")
    """Prefix of all topic names, so that several ledgers can share a cluster. Empty: no prefix."""
    partitions: int | None = Field(default=None, ge=1, le=10_000)
    """Partitions of ledger.events and of ledger.recovery, the same for both. Fixed once the topics are created. None: 4
    with the embedded broker, 24 elsewhere."""
    replication_factor: int | None = Field(default=None, ge=1, le=32)
    """Replicas of each partition. None: 1 with the embedded broker, 3 elsewhere."""
    min_insync_replicas: int | None = Field(default=None, ge=1, le=32)
    """Replicas that must acknowledge a write. None: 1 with the embedded broker. 2 elsewhere, so one broker may fail."""
    delete_retention_s: float = Field(default=7 * DAY_S, gt=0)
    """How long tombstones stay after compaction, in seconds. Set it longer than any reader or replica is ever down. A
    reader that was down for half of this time reads the topic again from the beginning."""
    min_compaction_lag_s: float = Field(default=DAY_S, ge=0)
    """Age in seconds before compaction may remove a record of ledger.events. The archive must copy it within this
    time."""
    recovery_min_compaction_lag_s: float = Field(default=HOUR_S, ge=0)
    """The same for ledger.recovery. Set it longer than the longest failover, so that a leader can still see and
    overwrite records of a stale predecessor."""
    max_message_bytes: int = Field(default=1_048_576, ge=65_536)
    """Largest record, in bytes. The default is about Kafka's own: facts are small, and graphs are in the blob store."""
    rejects_retention_s: float = Field(default=30 * DAY_S, gt=0)
    """How long copies of rejected records are kept, in seconds. 30 days leave time to find out who sends them."""

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

    @property
    def lags_s(self) -> dict[str, float]:
        """Topic -> how long compaction leaves its records, in seconds, for the topics that an archive covers."""
        return {self.events: self.min_compaction_lag_s, self.recovery: self.recovery_min_compaction_lag_s}


class ProjectorSection(Section):
    """The role that folds ledger.events into ledger.recovery."""

    commit_interval_s: float = Field(default=0.05, gt=0, le=1)
    """Seconds to collect records before their effect is published. Less: lower latency. More: fewer transactions."""
    restore_points: int = Field(default=3, ge=1, le=100)
    """How many of the newest restore points an entry offers. With 3, two may be damaged and the job still comes
    back."""
    history: int = Field(default=10, ge=1, le=1000)
    """Attempts per job whose facts stay in the topic. Facts of older attempts are in the archive only."""
    collect_unadmitted_after_s: float = Field(default=DAY_S, gt=0)
    """Seconds after which the registers of a job id are removed if no job was submitted under it."""
    cold_start: str = Field(default="log", pattern="^(log|snapshot)$")
    """Where a projector starts to read. log: at the beginning of the topics. snapshot: at the archive's newest
    snapshots. A partition is still read from the beginning if it has no snapshot, or if its snapshot covers no record
    younger than half of `topics.delete_retention_s`. If the archive does not answer, all partitions are."""
    result_retention_s: float | None = Field(default=None, gt=0)
    """Seconds that the result of a retired job is kept. The result takes some 200 bytes, and makes the ledger refuse a
    second use of the job's id. None: for ever."""


class ReconcilerSection(Section):
    """The role that starts and stops attempts."""

    observe_interval_s: float = Field(default=1.0, gt=0)
    """Seconds between two queries of the runners while the log is quiet. It bounds how late a dead attempt is
    noticed."""
    action_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds that one call to a runner or blob store may take before it counts as crashed."""
    observe_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds that a pass waits for the runners, which are all queried at once. A runner that has not answered by then
    counts as silent. Later passes do not wait for it until it has answered. The default equals the timeout of the
    agent's client."""
    starts_max: int = Field(default=20, ge=1)
    """Most attempts started in one pass. Further starts wait for the next pass ("start rate"), so that a cold start
    does not overload a host. To limit how many run at the same time, use pools."""
    replaced_after_s: float = Field(default=10.0, ge=0)
    """When a job replaces another: seconds that its attempt must run before the old job is canceled for good. A
    checkpoint of the attempt ends the wait earlier. Until then the old job can be resumed, in case the new code fails
    at once."""
    gc_interval_s: float | None = Field(default=None, ge=0)
    """Seconds between two garbage collections (`jobledger gc --apply`) by the leading reconciler. Each reads the log
    from its beginning, in a process of its own. 0: never. None: every hour if graphs are in this ledger's folder, never
    if they are in a bucket. Another ledger may store its graphs in the same bucket: set an interval only if none
    does."""
    gc_grace_s: float = Field(default=DAY_S, ge=HOUR_S)
    """Age in seconds before a garbage collection may delete an orphan. A day leaves time to notice a mistake. At least
    an hour, because the graph of a job that is being submitted is not in the log yet."""
    trigger_interval_s: float = Field(default=0.0, ge=0)
    """Least time in seconds between two micro-batches of the Spark stream. 0: each starts once there are records."""
    batch_offsets_max: int = Field(default=50_000, ge=100)
    """Most offsets of ledger.recovery in one micro-batch. A new leader reads the whole topic in such batches, so this
    bounds its memory. Less: more batches, and a longer take-over."""


class PoolSection(Section):
    """Slots that jobs share. The jobs of a pool that are alive at one time never use more slots than it has. A pool
    takes a job whose namespace and runner are listed here. If several pools match, one that lists namespaces wins over
    one that lists only runners. A job without a pool is not limited. Only starts wait: a pool never stops a running
    job."""

    slots: int = Field(ge=1, le=1_000_000)
    """Number of slots. A job takes the number that it was submitted with (`submit --slots`), 1 by default."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose jobs belong to the pool. Empty: any. In the environment separated by commas."""
    runners: tuple[str, ...] = ()
    """Runners whose jobs belong to the pool. Empty: any. In the environment separated by commas."""

    @field_validator("namespaces", "runners", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


class PluginsSection(Section):
    """Runners from other packages (entry points of `jobledger.runners`). Each runs in processes of its own."""

    call_timeout_s: float = Field(default=20.0, gt=0)
    """Seconds that one call of a plug-in may take, including its loading. Then its process is killed. Keep it below
    `reconciler.action_timeout_s`, so that the error names the plug-in."""
    memory_mb: int = Field(default=1024, ge=0, le=1 << 20)
    """Address space of such a process, in MiB (RLIMIT_AS). 0: no limit."""


class AgentSection(Section):
    """The runner agent of this host (runner subprocess)."""

    send_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds that one attempt to send facts may wait for Kafka. After that the facts stay on disk and are sent
    again."""
    digest_bytes_per_s: int = Field(default=100 << 20, ge=0)
    """Most bytes per second that the agent reads to compute digests of new checkpoints. The limit leaves the disk to
    the jobs. Unchanged files are not read again. 0: no digests are computed, and a start compares sizes only."""
    digest_wait_s: float = Field(default=5.0, ge=0, le=60)
    """Most seconds that the record of a checkpoint waits for the digest of its content. If the digest takes longer,
    only the agent keeps it, and still checks it before a start."""


class LeadershipSection(Section):
    """How projectors and reconcilers elect their leaders. If two of them lead at once, the epoch in the log
    still separates their records."""

    adapter: str = Field(default="file", pattern="^(file|zookeeper|kafka)$")
    """file: a lock in `dir`, for one host. zookeeper, kafka: for several hosts. zookeeper needs the section zookeeper;
    kafka needs no further settings."""
    session_timeout_s: float = Field(default=10.0, ge=1, le=600)
    """Seconds after which a leader without a heartbeat is replaced. Its own lease expires after two thirds of that. The
    servers limit the value; the one that they grant is used. Less: faster, but more frequent failovers."""
    leaderless_after_s: float | None = Field(default=None, gt=0)
    """Seconds without a leader after which each instance logs an alarm. None: one and a half sessions, because no
    candidate can lead before the session of a dead leader has expired."""


class ZooKeeperSection(Section):
    """The ZooKeeper ensemble and its credentials. Used if `leadership.adapter` is zookeeper."""

    hosts: str = ""
    """The members, as in `zk1:2181,zk2:2181`. Use host names if addresses may change. Members that join the ensemble
    later are discovered and need not be listed."""
    chroot: str = Field(default="", pattern=r"^(/[^/\s]+)*$")
    """The path below which the ledger creates all its nodes, such as /ledger. It is created if missing. Empty: the
    root."""
    auth: str = Field(default="", pattern="^(|digest|sasl)$")
    """digest or sasl (DIGEST-MD5): only this user can read and change the ledger's nodes. Empty: everybody can."""
    username: str = ""
    """The user name for `auth`."""
    password_file: Path | None = None
    """The file that holds the password for `auth`."""
    tls: bool = False
    """Whether to connect to the members with TLS, at their secure port."""
    tls_ca_file: Path | None = None
    """The only certificate authorities (PEM) that are trusted to sign members' certificates. None: those of the
    system."""
    tls_cert_file: Path | None = None
    """The ledger's own certificate (PEM), for members that require client certificates."""
    tls_key_file: Path | None = None
    """The private key (PEM) of `tls_cert_file`."""
    tls_key_password_file: Path | None = None
    """The file that holds the password of `tls_key_file`. None: the key has no password."""
    tls_verify_hostname: bool = True
    """Whether a member's certificate must contain its name in `hosts`."""


class BucketSection(Section):
    """A bucket of S3. Credentials are not settings: boto3 finds them in its usual places (environment, ~/.aws, the role
    of the machine)."""

    bucket: str = Field(default="", pattern=r"^[A-Za-z0-9:/._-]{0,255}$")
    """The name of an existing bucket, or the ARN of an access point."""
    prefix: str = Field(default="", pattern=r"^(([A-Za-z0-9_-][A-Za-z0-9._-]*)(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?)?$")
    """Prefix of all object names, such as ledger/prod, if the bucket holds other data too. Empty: no prefix."""
    endpoint_url: str | None = None
    """The address of a store other than Amazon's: http(s)://host:port. None: boto3's own setting."""
    region: str | None = None
    """The region of the bucket. None: boto3's own setting (AWS_REGION, ~/.aws/config)."""
    path_style: bool | None = None
    """Whether URLs hold the bucket in the path (true) or in the host name (false). None: true if `endpoint_url` is set,
    as most stores other than Amazon's need it, else false."""
    sse: str = Field(default="", pattern="^(|AES256|aws:kms|aws:kms:dsse)$")
    """The server-side encryption of objects. Empty: the default of the bucket."""
    sse_kms_key_id: str = Field(default="", max_length=2048)
    """The KMS key for aws:kms and aws:kms:dsse. Empty: the account's default key."""
    part_bytes: int = Field(default=16 << 20, ge=5 << 20, le=1 << 30)
    """Size of an upload part, in bytes. Files of this size or larger are uploaded in parts. One part is held in
    memory."""
    connect_timeout_s: float = Field(default=3.0, gt=0, le=60)
    """Seconds that one connection attempt may take."""
    read_timeout_s: float = Field(default=8.0, gt=0, le=600)
    """Seconds without data after which a response is abandoned. `read_timeout_s` times `attempts_max` should stay below
    `reconciler.action_timeout_s`. Otherwise a slow store looks like a crash."""
    attempts_max: int = Field(default=3, ge=1, le=20)
    """Attempts for one request, including the first, if the store does not answer or is busy."""


class BlobsSection(BucketSection):
    """Where job graphs are stored. Submitters, agents and reconcilers must use the same store."""

    adapter: str = Field(default="file", pattern="^(file|s3)$")
    """file: the folder `blobs` in `dir`. s3: the bucket that the other settings of this section name."""


class ArchiveSection(BucketSection):
    """Where all records are kept, including those that compaction has removed from their topic."""

    adapter: str = Field(default="", pattern="^(|file|s3)$")
    """Empty: there is no archive. file: the folder `archive` in `dir`. s3: the bucket that the other settings of this
    section name. If graphs are in the same bucket, give the archive a prefix of its own."""
    interval_s: float = Field(default=10.0, gt=0, le=3600)
    """Least seconds between two batches. Each batch makes three objects for each partition with new records. So a
    longer interval makes fewer and larger objects, but archives records later."""
    compact_interval_s: float | None = Field(default=None, gt=0)
    """Seconds between two compactions by the archiver, which merge the objects of past days. None: it never compacts,
    and needs no permission to delete objects. Use `jobledger archive compact` instead."""
    retention: dict[str, float | None] = Field(default_factory=dict)
    """How long the archive keeps superseded records of jobs, by namespace, in seconds or as 90d. `*` names all other
    namespaces. `forever`, the default, sets no limit. Write a table, or one text: prod=365d,*=90d. Only an expiry run
    deletes records (`archive expire`)."""
    expire_interval_s: float | None = Field(default=None, gt=0)
    """Seconds between two expiry runs by the archiver. None: it never deletes expired records, and needs no permission
    to delete objects. Use `jobledger archive expire` instead."""
    snapshot_interval_s: float | None = Field(default=None, gt=0)
    """Seconds between two snapshot runs by the archiver. Each snapshot is made from the one before. Old ones are
    thinned out: all of the last day stay, one for each day of the last month, and one for each earlier month. None: the
    archiver makes no snapshots, and needs no permission to delete objects. Use `jobledger archive snapshot` instead."""
    headroom_min: float = Field(default=0.5, ge=0, le=1)
    """The headroom below which the archiver, `archive status` and `topics check` warn, as a fraction of the topic's
    min.compaction.lag. Without any headroom the two commands fail."""
    headroom_interval_s: float = Field(default=30.0, gt=0)
    """Seconds between two computations of the headroom by the archiver, for its alarm and its metrics."""
    anchor_interval_s: float = Field(default=60.0, ge=0)
    """Seconds between two anchors of the chains that have grown, which the archiver writes to the anchor topic. Records
    sealed since the last anchor are not proved yet. 0: the archiver writes no anchors."""
    anchor_key_file: Path | None = None
    """The private key (Ed25519, PEM) that signs anchors. Only its owner should be able to read it. None: anchors are
    not signed."""
    anchor_public_key_file: Path | None = None
    """The public keys (PEM, one after the other) that `audit verify`, `archive restore` and a signing archiver trust.
    They ignore all other anchors. None: all anchors count, signed or not."""
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    """The port at which the archiver serves GET /metrics (Prometheus). None: it serves no metrics."""
    metrics_address: str = "127.0.0.1"
    """The address at which the archiver serves metrics, without a password. The default admits this host only."""

    @field_validator("retention", mode="before")
    @classmethod
    def _retention(cls, value: Any) -> Any:
        return retention.parse(value)


class NotifySection(Section):
    """Notifications that a job has reached a state in which it needs an operator. The leading projector sends each at
    least once. Deduplicate by `id` in the body (job, attempt and state). Nothing is sent unless command or webhook is
    set."""

    command: tuple[str, ...] = ()
    """A program and its arguments. It reads the JSON body from stdin, and exits with 0 if it accepted the notification.
    No shell is used. In the environment, write words as for a shell. Pass no secrets: every user can see the
    arguments."""
    webhook: str = ""
    """An http(s) URL to which the JSON body is posted. A status of 2xx means that it was accepted. The URL is treated
    as a secret: only its host is ever shown."""
    webhook_file: Path | None = None
    """The file that holds the URL, in place of `webhook`."""
    states: tuple[JobState, ...] = (JobState.QUARANTINED,)
    """The states of a job that are notified. In the environment separated by commas."""
    timeout_s: float = Field(default=10.0, gt=0, le=300)
    """Seconds that one delivery may take before it counts as failed. It is repeated with backoff, 8 times in all."""

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
    """The log that each process writes to stderr."""

    level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    """The lowest level that is logged: debug, info, warning or error."""
    format: str = Field(default="auto", pattern="^(auto|console|json)$")
    """auto: readable lines on a terminal, JSON (one object per line) elsewhere. console, json: always that format."""
