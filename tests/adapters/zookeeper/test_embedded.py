"""An embedded ZooKeeper member: its configuration files; and three of them serve, are killed and come back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledger.embedded.hold import HELD
from ledger.embedded.zookeeper import EnsembleMember, ServerAddress, connect_string, digest, members_at
from ledger.errors import ConfigError, Unreachable
from tests.support.servers import die_with_parent
from tests.support.waiting import until


def started(member: EnsembleMember, stack: ExitStack) -> subprocess.Popen[bytes]:
    member.prepare()
    with (member.folder / "printed").open("ab") as printed:
        process = subprocess.Popen(
            member.command(), stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, preexec_fn=die_with_parent
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


# Tests without a JVM


def test_the_ports_are_chosen_once(tmp_path: Path):
    first = members_at(tmp_path, 3)
    assert members_at(tmp_path, 3) == first
    assert len({port for one in first for port in (one.server.client_port, one.server.quorum_port)}) == 6
    assert connect_string(first) == ",".join(f"127.0.0.1:{one.server.client_port}" for one in first)


def test_damaged_ports_are_an_error_that_names_the_file(tmp_path: Path):
    members_at(tmp_path, 1)
    (tmp_path / "ports.json").write_text("[1, 2]")
    with pytest.raises(ConfigError, match=r"ports\.json"):
        members_at(tmp_path, 1)


def test_a_line_is_what_reconfig_takes():
    assert ServerAddress(id=7, host="zk7").line() == "server.7=zk7:2888:3888:participant;0.0.0.0:2181"


def test_who_joins_begins_as_an_observer_and_the_others_as_participants(tmp_path: Path):
    old, new = ServerAddress(id=1, host="zk1"), ServerAddress(id=4, host="zk4")
    member = EnsembleMember(folder=tmp_path, server=new, ensemble=[old], joining=True)
    assert member.first_members().splitlines() == [old.line(), new.line("observer")]


def test_the_list_of_members_is_zookeepers_own_after_the_first_start(tmp_path: Path):
    folder = tmp_path / "ledger é: #1"
    first, *_ = members_at(folder, 3)
    first.prepare()
    assert len((first.folder / "members.dynamic").read_text().splitlines()) == 3
    later = first.folder / "zoo.cfg.dynamic.100000003"
    later.write_text("server.9=…\n")
    text = first.config_file.read_text()
    pointer = next(line for line in text.splitlines() if line.startswith("dynamicConfigFile="))
    first.config_file.write_text(text.replace(pointer, pointer.replace("members.dynamic", later.name)))
    first.prepare()
    assert later.name in first.config_file.read_text()
    assert "members.dynamic" not in first.config_file.read_text()


def test_the_super_user_is_written_as_a_digest_only(tmp_path: Path):
    one, *_ = members_at(tmp_path, 1, super_password="secret")
    one.prepare()
    assert digest("super", "secret") in one.settings().values()
    assert "secret" not in one.config_file.read_text()
    # the example in ZooKeeper's own documentation
    assert digest("super", "test") == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


def test_a_member_that_does_not_come_is_not_waited_for_longer(tmp_path: Path):
    one, *_ = members_at(tmp_path, 1)
    with pytest.raises(Unreachable, match=r"did not serve within 0\.2 s"):
        one.ready(0.2)
    with pytest.raises(Unreachable, match="ended before"):
        one.ready(60, alive=lambda: False)


# Tests with three real members


@pytest.mark.kafka
def test_three_members_serve_and_two_of_them_also(tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # Java prints a message if this variable is set
    members = members_at(tmp_path / "ledger é: #1", 3)
    processes = {member.server.id: started(member, stack) for member in members}
    for member in members:
        member.ready(60, alive=lambda process=processes[member.server.id]: process.poll() is None)
    until(lambda: sorted(member.mode() or "" for member in members) == ["follower", "follower", "leader"], "three serve")
    assert subprocess.run(members[0].command(), check=False, capture_output=True).returncode == HELD

    leader = until(lambda: next((member for member in members if member.mode() == "leader"), None), "one member leads")
    processes[leader.server.id].kill()
    processes[leader.server.id].wait()
    others = [member for member in members if member is not leader]
    # For a moment each of them still reports its old mode.
    until(lambda: sorted(member.mode() or "" for member in others) == ["follower", "leader"], "two of three serve")
    again = started(leader, stack)
    leader.ready(60, alive=lambda: again.poll() is None)
    until(lambda: leader.mode() == "follower", "the third follows")
    assert leader.log.stat().st_size > 0
    assert not (leader.folder / "printed").read_text()
