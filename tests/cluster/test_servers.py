"""ZooKeeper members and brokers on separate hosts: they start, lose each other, come back and are replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.exceptions import NoNodeError

from tests.cluster import Cluster
from tests.cluster.network import KAFKA, ZK
from tests.support.waiting import in_time, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

SOUND = ["follower", "follower", "leader"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three members and three brokers. Each test leaves them in working order."""
    with Cluster.open(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.start(topics=False)
        yield cluster


def modes(servers: Cluster) -> list[str]:
    return sorted(servers.zookeeper.mode(name) or "" for name in servers.zookeeper.nodes)


def in_sync(admin: AdminClient, topic: str) -> list[int]:
    return [len(one.isrs) for one in admin.list_topics(topic, timeout=15).topics[topic].partitions.values()]


def test_the_topology_stands(servers: Cluster, prefix: str):
    until(lambda: modes(servers) == SOUND)
    admin = AdminClient({"bootstrap.servers": servers.kafka.addresses})
    until(lambda: len(admin.list_topics(timeout=15).brokers) == 3)
    name = f"{prefix}copied"
    topic = NewTopic(name, num_partitions=3, replication_factor=3)
    admin.create_topics([topic], operation_timeout=15)[name].result(20)
    until(lambda: in_sync(admin, name) == [3, 3, 3])


def test_a_broker_that_is_cut_off_is_done_without_and_taken_up_again(servers: Cluster, prefix: str):
    admin, name = AdminClient({"bootstrap.servers": servers.kafka.addresses}), f"{prefix}cut"
    admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=3)], operation_timeout=15)[name].result(20)
    servers.kafka.nodes["kafka-2"].cut(KAFKA)
    try:
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": servers.kafka.addresses, "acks": "all", "delivery.timeout.ms": 60_000})
        for partition in range(3):
            producer.produce(name, b"x", partition=partition, on_delivery=lambda error, _: error and failed.append(error))
        in_time(producer.flush(60) == 0, "not within 60 s: all records are acknowledged")
        assert failed == []
    finally:
        servers.kafka.nodes["kafka-2"].heal(KAFKA)
    until(lambda: in_sync(admin, name) == [3, 3, 3])


def test_a_member_that_is_cut_off_serves_nobody_until_it_is_healed(servers: Cluster):
    cut = servers.zookeeper.leader()
    node = servers.zookeeper.nodes[cut]
    node.cut(ZK)
    others = [name for name in servers.zookeeper.nodes if name != cut]
    until(lambda: sorted(servers.zookeeper.mode(name) or "" for name in others) == ["follower", "leader"])
    assert servers.zookeeper.mode(cut) is None  # the test can't reach it
    node.heal(ZK)
    until(lambda: servers.zookeeper.mode(cut) == "follower" and modes(servers) == SOUND)


def test_a_member_comes_back_after_kill_9_with_what_it_knew(servers: Cluster):
    with servers.zookeeper.client() as client:
        client.ensure_path("/kept")
        client.set("/kept", b"x")
    for node in servers.zookeeper.nodes.values():
        node.kill()
    for node in servers.zookeeper.nodes.values():
        node.start()
    servers.zookeeper.wait()
    with servers.zookeeper.client() as client:
        assert client.get("/kept")[0] == b"x"


def test_one_sees_which_member_a_host_is_connected_to(servers: Cluster):
    with servers.zookeeper.client() as client:
        connected = until(lambda: servers.zookeeper.connected_to(servers.network.gateway(ZK)))
        assert client._connection._socket.getpeername()[0] == servers.network.address(connected)
    until(lambda: servers.zookeeper.connected_to(servers.network.gateway(ZK)) is None)


def test_all_members_are_replaced_one_after_the_other_at_new_addresses(servers: Cluster):
    before = dict(servers.zookeeper.members)
    addresses = servers.zookeeper.addresses
    with servers.zookeeper.client() as client:
        client.ensure_path("/before")
    for name in sorted(before, key=lambda name: servers.zookeeper.mode(name) == "leader"):
        servers.zookeeper.replace(name)
        assert len(modes(servers)) == 3
    assert not set(servers.zookeeper.members) & set(before)
    assert not set(servers.zookeeper.addresses.split(",")) & set(addresses.split(","))
    until(lambda: modes(servers) == SOUND)
    with servers.zookeeper.client() as client:
        client.sync("/")  # a follower may be a few changes behind
        assert client.exists("/before")
        told = client.get("/zookeeper/config")[0].decode()
    assert [f"server.{member.server.id}=" in told for member in before.values()] == [False] * 3
    assert all(member.server.line() in told for member in servers.zookeeper.members.values())


def test_wiped_data_is_gone(servers: Cluster):
    with servers.zookeeper.client() as client:
        client.ensure_path("/wiped")
    servers.zookeeper.wipe()
    until(lambda: modes(servers) == SOUND)
    with servers.zookeeper.client() as client, pytest.raises(NoNodeError):
        client.get("/wiped")


def test_five_members_serve_while_two_are_away(tmp_path: Path):
    with Cluster.open(tmp_path) as cluster:
        cluster.start(zookeepers=5, brokers=0)
        until(lambda: modes(cluster) == ["follower"] * 4 + ["leader"])
        followers = [name for name in cluster.zookeeper.nodes if cluster.zookeeper.mode(name) == "follower"]
        away = [cluster.zookeeper.leader(), followers[0]]
        cluster.zookeeper.nodes[away[0]].kill()
        cluster.zookeeper.nodes[away[1]].stop()
        left = [name for name in cluster.zookeeper.nodes if name not in away]
        until(lambda: sorted(cluster.zookeeper.mode(name) or "" for name in left) == SOUND)
        cluster.zookeeper.nodes[left[0]].cut()
        until(lambda: [cluster.zookeeper.mode(name) for name in left[1:]] == [None, None])
        cluster.zookeeper.nodes[away[1]].cont()
        until(lambda: cluster.zookeeper.leader() in [*left[1:], away[1]])
