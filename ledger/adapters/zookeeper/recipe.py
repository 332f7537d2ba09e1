"""The decisions of the election, as functions of what was read: who is first, whose a node is, how long a lease lasts.

A candidate is a node `<owner>-<try>-<sequence>`: owner = one process's `Leadership`, try = its how-manieth create,
sequence = ZooKeeper's, rising. A name is never used twice, so a request about it that comes late can harm nobody else.
Nothing here reads a clock or talks to anybody. All times are in seconds, of whatever clock the caller has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledger.ports import Candidate

_NAME = re.compile(r"([0-9a-f]{8,64})-(\d+)-(-?\d{10,})")
_PORT = 2181
_ANYWHERE = ("", "0.0.0.0", "::", "[::]", "0:0:0:0:0:0:0:0")  # noqa: S104 # what it listens on is no address to dial


class Node(NamedTuple):
    """A candidate's node, by its name alone."""

    owner: str
    attempt: int
    sequence: int
    name: str


class CandidateRecord(NamedTuple):
    """What a candidate writes into its node, for people; nothing is decided by it.

    since, led_since, renewed: seconds since the epoch, by the candidate's clock. lease_s: how long a renewal counts."""

    who: str
    pid: int
    since: float
    led_since: float | None = None
    waits_for: str = ""
    renewed: float = 0.0
    lease_s: float = 0.0


# -- who is first ------------------------------------------------------------------------------------------------------


def prefix(owner: str, attempt: int) -> str:
    """What a node's name begins with; ZooKeeper adds the sequence."""
    return f"{owner}-{attempt}-"


def in_line(children: Iterable[str]) -> list[Node]:
    """The candidates in the order in which they lead. What is no candidate's node is left out."""
    found = [Node(match[1], int(match[2]), int(match[3]), name) for name in children if (match := _NAME.fullmatch(name))]
    return sorted(found, key=lambda node: (node.sequence, node.name))


def place(line: Sequence[Node], name: str) -> int | None:
    """0 = it is first and leads; None = it is not there (any more)."""
    return next((at for at, node in enumerate(line) if node.name == name), None)


def created(line: Sequence[Node], owner: str, attempt: int) -> Node | None:
    """The node of a create whose answer was lost: it may be there all the same."""
    return next((node for node in line if (node.owner, node.attempt) == (owner, attempt)), None)


def orphans(line: Sequence[Node], owner: str, current: str | None) -> list[Node]:
    """Nodes of our own making that are not our candidate: they would lead, or block others, and nobody would know."""
    return [node for node in line if node.owner == owner and node.name != current]


# -- the lease ---------------------------------------------------------------------------------------------------------


def lease_s(session_s: float) -> float:
    """From the sending of a renewal: two thirds of the session. The third that is left is the margin (decision 9)."""
    return session_s * 2 / 3


def renew_every_s(session_s: float) -> float:
    return session_s / 10


def silence_s(session_s: float) -> float:
    """A connection that owes an answer for so long is given up."""
    return session_s / 5


def dial_timeout_s(session_s: float, members: int, fruitless_rounds: int = 0) -> float:
    """For one member to take the connection, and again for its first answer. The first two rounds over all members fit in
    half a session; each that finds nobody doubles it, up to T/4, so that slow members are not out of reach for ever."""
    first = session_s / (4 * max(1, members))
    return min(first * 2.0 ** min(20, max(0, fruitless_rounds - 1)), max(first, session_s / 4))


def session_may_live(session_s: float, last_answer: float, now: float) -> bool:
    """Whether it is worth asking for the old session. After a whole session without an answer it is not: members that
    lost their data would refuse it for ever, and a new session can clear away what the old one left."""
    return now - last_answer <= session_s


# -- what is written for people ----------------------------------------------------------------------------------------


def encode(told: CandidateRecord) -> bytes:
    return json.dumps({**told._asdict(), "leads": told.led_since is not None}).encode()


def decode(data: bytes) -> CandidateRecord:
    """Total: a node that can't be read still has a candidate: somebody."""
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


def candidate(told: CandidateRecord, first: bool, now: float) -> Candidate:
    """now: seconds since the epoch. The time left is as good as the two hosts' clocks."""
    leads = first and told.led_since is not None
    left = min(told.lease_s, max(0.0, told.renewed + told.lease_s - now)) if leads else None
    waits_for = "" if leads else told.waits_for or ("the answer to its first renewal" if first else "its turn")
    return Candidate(told.who or "another process", told.pid, told.since, leads, waits_for, left)


def behind(told: CandidateRecord, when: str) -> str:
    """What one waits for who stands behind a candidate. when: since when it leads, or is a candidate, in words."""
    name = f"{told.who or 'another process'} (pid {told.pid})" if told.pid else told.who or "another process"
    return f"candidate {name}, which {'is a candidate' if told.led_since is None else 'leads'} since {when}"


# -- the members -------------------------------------------------------------------------------------------------------


def members(config: bytes) -> list[tuple[str, int]]:
    """Host and client port of every member in `/zookeeper/config`; [] if it names none that clients could dial.

    `server.1=zk1:2888:3888:participant;0.0.0.0:2181`: the client's part may have no host or one that only says "anywhere";
    then the member's own is meant. A member with several addresses (`a:2888:3888|b:2888:3888`) is reached by the first."""
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
    """`zk1:2181,zk2,[::1]:2182` as the settings have it.

    Raises: ValueError, with what is wrong."""
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
    """The other way round, each once."""
    return ",".join(dict.fromkeys(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses))
