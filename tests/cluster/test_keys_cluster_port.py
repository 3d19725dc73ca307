"""Clients of Redis Cluster at a cluster of Savanna: any node tells them which one has the keys."""

import pathlib
import signal
import subprocess
import sys

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

from conftest import NODES, PORTS_APART
from ports import free_port

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "keys"))

from resp import Client  # noqa: E402


class Doors:
    """The cluster ports of a cluster."""

    def __init__(self, cluster, first):
        self.cluster = cluster
        self.ports = {node: first + number * PORTS_APART for number, node in enumerate(NODES)}

    def owner_by(self, node):
        """The port of the node that has all slots, as a node says."""
        client = Client(self.ports[node])
        slots = client.call("CLUSTER", "SLOTS")
        client.close()
        return slots[0][2][1] if [entry[:2] for entry in slots] == [[0, 16_383]] else None

    def all_say(self, owner):
        try:
            return all(self.owner_by(node) == self.ports[owner] for node in NODES)
        except OSError:
            return False


@pytest.fixture
def doors(start):
    first = free_port([node * PORTS_APART for node in range(len(NODES))])
    return Doors(start(f"keys.cluster_port={first}"), first)


def test_clients_of_clusters_follow_the_owner_of_keys(doors):
    cluster, owner = doors.cluster, doors.cluster.owner("keys")
    cluster.until(lambda: doors.all_say(owner), "each node knows where the owner's cluster port is")
    for node in NODES:
        client = Client(doors.ports[node])
        answer = client.call("SET", "foo", "bar")
        assert answer == ("OK" if node == owner else f"MOVED 12182 127.0.0.1:{doors.ports[owner]}")
        assert client.call("PING") == "PONG" and client.call("CLUSTER", "KEYSLOT", "foo") == 12_182
        assert len(client.call("CLUSTER", "NODES").splitlines()) == (1 if node == owner else 2)
        client.close()
        asked = ["redis-cli", "-c", "-p", str(doors.ports[node]), "GET", "foo"]
        assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "bar\n"
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port) for port in doors.ports.values()], decode_responses=True)
    for number in range(100):
        assert client.set(f"k:{number}", number)
    other = next(node for node in NODES if node != owner)
    assert cluster.redis(other).get("k:99") == "99", "the other port shows the same keys"
    epoch = cluster.shards(other)["keys"]["epoch"]
    cluster.signal(owner, signal.SIGKILL)

    def is_owned_again():
        shard = cluster.shards(other)["keys"]
        return shard["epoch"] > epoch and shard["state"] == "serving" and doors.all_say(shard["owner"])

    cluster.until(is_owned_again, "another owner of keys is known by all")

    def goes_on():
        try:
            return client.get("k:98") == "98"
        except redis.RedisError:
            return False

    cluster.until(goes_on, "the client has found the owner")
    assert client.incr("k:99") == 100
    client.close()
