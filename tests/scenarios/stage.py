"""A ledger on a running cluster, its roles, and outside views of it: claims, candidates, copies of topics."""

from __future__ import annotations

import itertools
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from ledger.adapters import avro, cloudevents
from ledger.adapters.kafka.topics import create_topics
from ledger.adapters.zookeeper import recipe
from ledger.app.ledger import Ledger as OpenLedger
from ledger.app.wiring import SettingsAdapters
from ledger.config.config import Config, load_config
from ledger.core.model.published import Published
from ledger.ports import MemoryRecord
from ledger.reader.claims import Claim, read_claims
from ledger.reader.reading import Source, published
from ledger.reader.replaying import Replay, replay
from ledger.util.failpoints import VARIABLE
from ledger.util.identity import instance
from tests.cluster import Cluster, Node
from tests.cluster.cluster import JOBLEDGER
from tests.cluster.network import NETWORKS, ZK
from tests.simulation import checkers, copies
from tests.support.mirror import Mirror
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
SIZES = {"partitions": 4, "replication_factor": 1, "min_insync_replicas": 1, "min_compaction_lag_s": 0.0}
T = TypeVar("T")


class Ledger:
    """One of several ledgers on a cluster with one broker, with its own topics, elections and folder. name "": the
    cluster's default ledger."""

    def __init__(self, cluster: Cluster, name: str = "", session_s: float = 10.0, election: str = "zookeeper") -> None:
        """election: zookeeper or kafka."""
        self.cluster, self.name, self.session_s, self.election = cluster, name, session_s, election
        prefix, chroot = (f"{name}.", f"/{name}") if name else ("", "")
        folder = cluster.folder / name if name else cluster.ledger
        self.environment = {
            **cluster.settings(), "LEDGER_DIR": str(folder), "LEDGER_TOPICS__PREFIX": prefix,
            "LEDGER_ZOOKEEPER__CHROOT": chroot, "LEDGER_LEADERSHIP__SESSION_TIMEOUT_S": str(session_s),
            "LEDGER_LEADERSHIP__ADAPTER": election,
        }  # fmt: skip
        self.config: Config = load_config(
            folder, kafka={"bootstrap.servers": cluster.kafka.addresses}, topics={"prefix": prefix, **SIZES},
            zookeeper={"hosts": cluster.zookeeper.addresses, "chroot": chroot},
            leadership={"adapter": election, "session_timeout_s": session_s},
        )  # fmt: skip
        self.source: Source = OpenLedger.open(self.config).source()
        self.nodes: dict[str, Node] = {}
        self.away: set[str] = set()
        """Names of ZooKeeper members that are unreachable, so clients skip them."""
        create_topics(self.config.client(), self.config.topic_settings())

    # -- roles

    def projector(self, *, failpoint: str = "", mutant: str = "") -> Node:
        """Starts a projector. mutant: the guard that is removed (`tests.support.mutants`)."""
        return self.role("projector", failpoint=failpoint, mutant=mutant)

    def reconciler(self, *, failpoint: str = "", mutant: str = "") -> Node:
        """Starts a reconciler without Spark, which is ready in a second."""
        return self.role("reconciler", failpoint=failpoint, mutant=mutant, module="tests.scenarios.without_spark")

    def role(self, kind: str, *, failpoint: str = "", mutant: str = "", module: str = "tests.support.mutants") -> Node:
        """Starts a role. module: the module that runs the command line if the role is modified."""
        name = f"{self.name}-{kind}-{1 + len(self.nodes)}".lstrip("-")
        other = mutant or module != "tests.support.mutants"
        program = [sys.executable, "-m", module, *([mutant] if mutant else []), "--"] if other else [JOBLEDGER]
        command = [*program, "serve", kind, "--name", name]
        self.cluster.network.add(name, NETWORKS)
        environment = self.environment | {VARIABLE: failpoint, "PYTHONPATH": str(ROOT)}
        node = Node(name, self.cluster.network, self.cluster.folder, lambda: command, environment=environment)
        self.nodes[name] = node
        return node.start()

    def end(self) -> None:
        for node in self.nodes.values():
            node.vanish()

    # -- leaders

    def claims(self, role: str = "projector") -> list[Claim]:
        """The claims of a role, newest first."""
        return [claim for claim in read_claims(self.source) if claim.role == role]

    def epoch(self, role: str = "projector") -> int:
        return max((claim.epoch for claim in self.claims(role)), default=0)

    def writer(self, node: Node, role: str = "projector") -> str:
        """The writer name in the claims of a node."""
        return instance(role, node.pid, node.name)

    def claimed(self, role: str = "projector", after: int = 0) -> Node | None:
        """The node with the newest claim, if its epoch is above `after`; else None."""
        claim = next(iter(self.claims(role)), None)
        if claim is None or claim.epoch <= after:
            return None
        return next(node for node in self.nodes.values() if self.writer(node, role) == claim.writer)

    def line(self, role: str = "projector") -> list[tuple[str, recipe.CandidateRecord]]:
        """(path, candidate record) of each candidate in ZooKeeper, in the order of the line. The first one leads."""
        path = SettingsAdapters(self.config)._zookeeper(role)[1]
        members = zip(self.cluster.zookeeper.nodes, self.cluster.zookeeper.addresses.split(","), strict=True)
        client = KazooClient(hosts=",".join(address for name, address in members if name not in self.away), timeout=4.0)
        try:
            client.start(timeout=10)
            line = recipe.in_line(client.get_children(path))
            return [(f"{path}/{node.name}", recipe.decode(client.get(f"{path}/{node.name}")[0])) for node in line]
        except (KazooException, client.handler.timeout_exception):
            return []
        finally:
            client.stop()
            client.close()

    def holder(self, role: str = "projector") -> Node | None:
        """The node that holds the lock, or None."""
        if self.election == "kafka":
            who = next((one.who for one in OpenLedger.open(self.config).candidates(role) if one.leads), "")
            return next((node for node in self.nodes.values() if who == self.writer(node, role)), None)
        told = next((told for _, told in self.line(role)[:1] if told.led_since is not None), None)
        return told and next((node for node in self.nodes.values() if told.who == self.writer(node, role)), None)

    def leading(self, role: str = "projector", after: int = 0, timeout_s: float = 90.0) -> Node:
        """Waits for a node that has claimed an epoch above `after` and holds the lock, and returns it."""

        def found() -> Node | None:
            claimed = self.claimed(role, after)
            return claimed if claimed is not None and claimed is self.holder(role) else None

        return self.until(found, f"a {role} leads with an epoch above {after}", timeout_s)

    def renewed_after(self, moment: float, role: str = "projector") -> bool:
        """Whether the first candidate in line has renewed its lease since that moment."""
        return any(told.renewed > moment for _, told in self.line(role)[:1])

    def member_of(self, node: Node) -> str:
        """The ZooKeeper member that a role is connected to."""
        seen = self.cluster.zookeeper.connected_to
        return self.until(lambda: seen(node.address(ZK)), f"{node.name} is connected to a member")

    # -- observation

    def mirror(self) -> Mirror:
        return Mirror(self.config.client(), [self.config.topics.events, self.config.topics.recovery])

    def until(self, holds: Callable[[], T | None], what: str, timeout_s: float = 90.0) -> T:
        return until(holds, what, timeout_s, every_s=0.1, story=self.story)

    def story(self) -> str:
        """The last log lines of each role."""
        return "\n".join(
            f"--- {name}\n" + "\n".join(node.printed.read_text(errors="replace").splitlines()[-12:])
            for name, node in self.nodes.items()
            if node.printed.exists()
        )

    def judge(self, mirror: Mirror, told: Sequence[checkers.Delivery], leases: Sequence[copies.Leased] = ()) -> list[str]:
        """Waits until the projection has caught up. Returns violations of I4 to I7, and epochs that do not rise by one."""
        topics = self.config.topics

        def quiet() -> Replay | None:
            """The result of replay if no event came meanwhile, else None. A leader may still write an admission for an
            event that it has just read."""
            before = len(mirror.to_end().committed(topics.events))
            found = replay(self.source, timeout_s=60.0)
            return found if len(mirror.to_end().committed(topics.events)) == before else None

        found = self.until(quiet, "no more events come")
        wrong = [f"replay: {one}" for one in (*found.differences, *found.behind)]
        events, recovery = mirror.committed(topics.events), mirror.committed(topics.recovery)
        taken = as_readers_take(recovery)
        wrong += checkers.acked_is_durable(told, events)
        wrong += checkers.one_writer_per_epoch(events, [])
        wrong += checkers.one_writer_per_epoch(recovery, taken, leases)
        wrong += one_effective_writer(recovery)
        wrong += checkers.no_resurrection(events, recovery, taken, [])
        wrong += checkers.projection_exact(events, recovery)
        wrong += checkers.view_exact(published(self.source).entries, events, "readers")
        epochs = [claim.epoch for claim in reversed(self.claims())]
        if epochs != list(range(1, len(epochs) + 1)):
            wrong.append(f"epochs do not follow one another: {epochs}")
        return wrong


L = TypeVar("L", bound=Ledger)


@contextmanager
def ledger(
    cluster: Cluster, name: str, session_s: float, election: str = "zookeeper", kind: type[L] | None = None
) -> Iterator[L]:
    """A ledger for one try of one test. The servers keep running. kind: the class of the ledger."""
    made = (kind or Ledger)(cluster, f"{name}-{uuid.uuid4().hex[:4]}", session_s, election)
    try:
        yield made
    except BaseException:
        print(made.story())
        raise
    finally:
        made.end()


# -- checks on copies --------------------------------------------------------------------------------------------------


def as_readers_take(recovery: Sequence[copies.Copied]) -> list[copies.Taken]:
    """The entries that the ledger's own reader accepts from the records."""
    view, taken = Published(avro.decode), []
    for one in recovery:
        record = MemoryRecord(
            one.topic, one.partition, one.offset, one.key, one.value, one.headers, round(one.time_s * 1000)
        )
        if (change := view.apply(record)) is not None:
            taken.append(copies.Taken(change.job_id, one.partition, one.offset, copies.epoch_of(one), change.after))
    return taken


def one_effective_writer(recovery: Sequence[copies.Copied]) -> list[str]:
    """Violations of the rule that all effective records of an epoch are from the one instance that claimed it."""
    writers: dict[int, set[str]] = {}
    for record in copies.effective(recovery):
        writers.setdefault(copies.epoch_of(record), set()).add(copies.header(record, cloudevents.ACTOR))
    claimed: dict[int, set[str]] = {}
    for record in recovery:
        if (claim := copies.claim_of(record)) is not None and claim[0] == "projector":
            claimed.setdefault(claim[1], set()).add(copies.header(record, cloudevents.ACTOR))
    return [f"epoch {epoch} has writers {who}" for epoch, who in writers.items() if len(who) != 1 or who != claimed[epoch]]


def written_since(records: Sequence[copies.Copied], node: Node, moment: float) -> list[str]:
    """Records of an instance that were appended after a moment (seconds since the Unix epoch)."""
    return [
        f"{node.name} wrote {record.key!r} {record.time_s - moment:.2f} s too late"
        for record in records
        if copies.header(record, cloudevents.ACTOR).endswith(f"@{node.name}") and record.time_s > moment
    ]


# -- sessions ----------------------------------------------------------------------------------------------------------


def expire(ledger: Ledger, role: str = "projector") -> None:
    """Ends the leader's ZooKeeper session from outside: another client connects with the same session and closes it.

    The server derives a session's password from its id, with java.util.Random and a constant."""

    def expired() -> bool:
        """Whether the session was ended from here; False if it had ended by itself."""
        line = ledger.line(role)
        if not line:
            return False
        with ledger.cluster.zookeeper.client() as client:
            try:
                session = client.get(line[0][0])[1].ephemeralOwner
            except KazooException:
                return False
        known = (session, session_password(session))
        other = KazooClient(hosts=ledger.cluster.zookeeper.addresses, timeout=4.0, client_id=known)
        with suppress(KazooException, other.handler.timeout_exception):
            other.start(timeout=10)
        taken = other.client_id is not None and other.client_id[0] == session
        other.stop()
        other.close()
        return taken

    ledger.until(expired, f"the session of the {role} that leads is ended")


def session_password(session: int) -> bytes:
    state = ((session & (2**64 - 1)) ^ 0xB3415C00 ^ 0x5DEECE66D) & (2**48 - 1)
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & (2**48 - 1)
        password += (state >> 16).to_bytes(4, "little")
    return password


# -- jobs --------------------------------------------------------------------------------------------------------------

#: A job that writes ten heartbeats a second until a given file exists.
BEATING = """
import os, sys, time
with open(sys.argv[2], "a", buffering=1) as beats:
    while not os.path.exists(sys.argv[1]):
        beats.write("%d %.3f\\n" % (os.getpid(), time.time()))
        time.sleep(0.1)
"""


class Beats:
    """Jobs that run until the file `enough` exists, and write heartbeats."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.names, self.enough = folder, names, folder / "enough"

    def command(self, name: str) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", BEATING, str(self.enough), str(self.folder / name)]

    def since(self, name: str, moment: float) -> list[tuple[int, float]]:
        """(process id, time) of each heartbeat since a moment."""
        path = self.folder / name
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(pid), float(at)) for pid, at in (line for line in lines if len(line) == 2) if float(at) >= moment]

    def longest_pause_s(self, moment: float) -> float:
        """The longest time without a heartbeat of any job since that moment."""
        pauses = [0.0]
        for name in self.names:
            times = [moment, *(at for _, at in self.since(name, moment)), time.time()]
            pauses += [later - before for before, later in itertools.pairwise(times)]
        return max(pauses)


def alive(config: Config, names: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Job -> (attempt, process id) of the running attempts, as the agent reports them."""
    observed: dict[str, tuple[int, str]] = {}
    for attempt in OpenLedger.open(config).runners["subprocess"].observe():
        if attempt.alive and attempt.engine_id and attempt.job_id in names:
            assert attempt.job_id not in observed, f"two attempts of {attempt.job_id} run"
            observed[attempt.job_id] = (attempt.n, attempt.engine_id)
    return observed
