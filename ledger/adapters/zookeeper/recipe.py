"""The decisions of the election as pure functions: which candidate is first, which nodes are orphans, when a lease ends.

A candidate's node is called `<owner>-<try>-<sequence>`. owner: a token of one `Leadership` object; try: the number of its
create request; sequence: the rising number that ZooKeeper appends. A name is never used twice, so a late request for a node
cannot touch another candidate's node. No function reads a clock or does I/O. Times are in seconds of the caller's clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledger.ports import Candidate

_NAME = re.compile(r"([0-9a-f]{8,64})-(\d+)-(-?\d{10,})")
_PORT = 2181
_ANYWHERE = ("", "0.0.0.0", "::", "[::]", "0:0:0:0:0:0:0:0")  # noqa: S104 # addresses to listen on, which no client can dial


class Node(NamedTuple):
    """The parts of the name of a candidate's node."""

    owner: str
    attempt: int
    sequence: int
    name: str


class CandidateRecord(NamedTuple):
    """The data of a candidate's node, for people; no decision depends on it.

    since: when the process became a candidate; led_since: when it began to lead, None = it does not lead; renewed: when
    this record was written. All three are seconds since the epoch by the candidate's clock. lease_s: how many seconds a
    renewal counts."""

    who: str
    pid: int
    since: float
    led_since: float | None = None
    waits_for: str = ""
    renewed: float = 0.0
    lease_s: float = 0.0


# -- who is first ------------------------------------------------------------------------------------------------------


def prefix(owner: str, attempt: int) -> str:
    """The beginning of a node's name; ZooKeeper appends the sequence."""
    return f"{owner}-{attempt}-"


def in_line(children: Iterable[str]) -> list[Node]:
    """The candidates' nodes in the order in which they would lead. Other children of the path are ignored."""
    found = [Node(match[1], int(match[2]), int(match[3]), name) for name in children if (match := _NAME.fullmatch(name))]
    return sorted(found, key=lambda node: (node.sequence, node.name))


def position(line: Sequence[Node], name: str) -> int | None:
    """The index of a node in line: 0 = it is first and may lead; None = there is no such node."""
    return next((at for at, node in enumerate(line) if node.name == name), None)


def created(line: Sequence[Node], owner: str, attempt: int) -> Node | None:
    """The node that a create request without an answer has made; None if the request made none."""
    return next((node for node in line if (node.owner, node.attempt) == (owner, attempt)), None)


def orphans(line: Sequence[Node], owner: str, current: str | None) -> list[Node]:
    """This owner's nodes other than its current one. Each would lead, or block other candidates, without a process.
    current: the name of the current node; None = the owner has none."""
    return [node for node in line if node.owner == owner and node.name != current]


# -- the lease ---------------------------------------------------------------------------------------------------------


def lease_s(session_s: float) -> float:
    """How many seconds a lease lasts after a renewal was sent: two thirds of the session timeout; the rest is a margin
    (decision 9)."""
    return session_s * 2 / 3


def renew_every_s(session_s: float) -> float:
    return session_s / 10


def silence_s(session_s: float) -> float:
    """How many seconds a connection may owe an answer before it is closed."""
    return session_s / 5


def dial_timeout_s(session_s: float, members: int, fruitless_rounds: int = 0) -> float:
    """How many seconds one member may take to accept the connection, and again to send its first answer.

    The first two rounds over all members take half a session timeout at most. Each further fruitless round doubles the
    time limit, up to a quarter of the session timeout, so that slow members can be reached too."""
    first = session_s / (4 * max(1, members))
    return min(first * 2.0 ** min(20, max(0, fruitless_rounds - 1)), max(first, session_s / 4))


def session_may_live(session_s: float, last_answer: float, now: float) -> bool:
    """Whether to resume the old session. After a whole session timeout without an answer a new session is better:
    members that lost their data would refuse the old session for ever, and a new session can delete its nodes."""
    return now - last_answer <= session_s


# -- records for people -----------------------------------------------------------------------------------------------


def encode(record: CandidateRecord) -> bytes:
    return json.dumps({**record._asdict(), "leads": record.led_since is not None}).encode()


def decode(data: bytes) -> CandidateRecord:
    """Returns the record in a node's data. Never raises: unreadable data gives a record without a name, as the node is
    still a candidate."""
    try:
        read = json.loads(data)
        led_since = read["led_since"]
        return CandidateRecord(
            str(read["who"]), int(read["pid"]), float(read["since"]),
            None if led_since is None else float(led_since),
            str(read["waits_for"]), float(read["renewed"]), float(read["lease_s"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError):
        return CandidateRecord("", 0, 0.0)


def candidate(record: CandidateRecord, first: bool, now: float) -> Candidate:
    """A record as `ports.Candidate`. first: whether the candidate is first in line. now: seconds since the epoch.
    lease_left_s of the result is off by the difference of the two hosts' clocks."""
    leads = first and record.led_since is not None
    left = min(record.lease_s, max(0.0, record.renewed + record.lease_s - now)) if leads else None
    waits_for = "" if leads else record.waits_for or ("the answer to its first renewal" if first else "its turn")
    return Candidate(record.who or "another process", record.pid, record.since, leads, waits_for, left)


def behind(record: CandidateRecord, when: str) -> str:
    """The `waits_for` of a candidate behind another one. record: of the first candidate in line. when: since when that
    candidate leads or is a candidate."""
    name = f"{record.who or 'another process'} (pid {record.pid})" if record.pid else record.who or "another process"
    return f"candidate {name}, which {'is a candidate' if record.led_since is None else 'leads'} since {when}"


# -- the members -------------------------------------------------------------------------------------------------------


def members(config: bytes) -> list[tuple[str, int]]:
    """Host and client port of each member in `/zookeeper/config`; [] if clients can dial none of them.

    A line is `server.1=zk1:2888:3888:participant;0.0.0.0:2181`. If the client part has no host or a wildcard address, the
    member's quorum host is used. If a member has several addresses (`a:2888:3888|b:2888:3888`), the first one is used."""
    found = []
    for line in config.decode("utf-8", "replace").splitlines():
        name, _, value = line.strip().partition("=")
        quorum, separator, client = value.partition(";")
        if not re.fullmatch(r"server\.\d+", name) or not separator:
            continue
        host, _, port = client.strip().rpartition(":")
        if not port.isdecimal():
            continue
        if host in _ANYWHERE:
            host = _quorum_host(quorum)
        if host:
            found.append((host.strip("[]"), int(port)))
    return found


def _quorum_host(quorum: str) -> str:
    first = quorum.split("|")[0].strip()
    bracketed = re.match(r"\[([0-9A-Fa-f:.%]+)\]", first)
    return bracketed[1] if bracketed else first.split(":")[0]


def hosts(text: str) -> list[tuple[str, int]]:
    """Host and port of each address in `zk1:2181,zk2,[::1]:2182`, the form of the settings.

    Raises: ValueError if an address is malformed, or its port is out of range."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:/\[\]]+))(?::(\d{1,5}))?\s*", part)
        if match is None:
            raise ValueError(f"{part.strip()!r} is no host:port")
        port = int(match[3] or _PORT)
        if not 0 < port < 65536:
            raise ValueError(f"{port} is no port")
        found.append((match[1] or match[2], port))
    return found


def host_list(addresses: Iterable[tuple[str, int]]) -> str:
    """The addresses as one text, without duplicates: the inverse of `hosts`."""
    return ",".join(dict.fromkeys(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses))
