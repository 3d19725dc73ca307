"""Keys that are spread over the nodes of a cluster: any node does what is about keys of one, and what a node had that is lost, others have."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

from conftest import NODES, PORTS_APART, Loop
from ports import free_port
from test_kills import Counter

sys.path.append(str(Path(__file__).resolve().parents[1] / "keys"))

from resp import Client  # noqa: E402

VIRTUAL_NODES = 1024
# How often nodes are killed; `make suites` kills more.
KILLS = int(os.environ.get("CLUSTER_KILLS", "3"))


class Spread:
    """A cluster whose keys are spread, with its cluster ports."""

    def __init__(self, start, *settings, directory=None):
        first = free_port([node * PORTS_APART for node in range(len(NODES))])
        self.doors = {node: first + number * PORTS_APART for number, node in enumerate(NODES)}
        options = {} if directory is None else {"directory": directory}
        self.cluster = start("keys.spread=true", f"keys.cluster_port={first}", *settings, **options)
        self.until_served()

    def until_served(self):
        self.cluster.until(lambda: all(self.is_served(node) for node in NODES), "each virtual node is served, and all know by whom")

    def is_served(self, node):
        shards = self.cluster.shards(node)
        own = [shard for name, shard in shards.items() if name.startswith("keys/v/")]
        return self.cluster.is_served(node) and len(own) == VIRTUAL_NODES and self.knows_all(node)

    def knows_all(self, node):
        """Whether a node tells clients of clusters where each slot is."""
        try:
            client = Client(self.doors[node])
            slots = client.call("CLUSTER", "SLOTS")
            client.close()
        except OSError:
            return False
        return sum(last - first + 1 for first, last, *_ in slots) == 16_384

    def shares(self, asked=NODES[0]):
        shares = {}
        for name, shard in self.cluster.shards(asked).items():
            if name.startswith("keys/v/"):
                shares[shard["owner"]] = shares.get(shard["owner"], 0) + 1
        return shares

    def slot_of(self, key, asked=NODES[0]):
        client = Client(self.doors[asked])
        slot = client.call("CLUSTER", "KEYSLOT", key)
        client.close()
        return slot

    def owner_of(self, key, asked=NODES[0]):
        return self.cluster.shards(asked)[f"keys/v/{self.slot_of(key, asked) // 16}"]["owner"]

    def keys_of(self, node, count, asked=NODES[0]):
        """Keys that a node has."""
        client, shards = Client(self.doors[asked]), self.cluster.shards(asked)
        keys, number = [], 0
        while len(keys) < count:
            key = f"key:{number}"
            if shards[f"keys/v/{client.call('CLUSTER', 'KEYSLOT', key) // 16}"]["owner"] == node:
                keys.append(key)
            number += 1
        client.close()
        return keys


@pytest.fixture
def spread(start):
    return lambda *settings, **options: Spread(start, *settings, **options)


def test_any_node_has_all_keys_and_cluster_clients_find_those_of_each(spread):
    keys = spread()
    shares = keys.shares()
    assert set(shares) == set(NODES) and set(shares.values()) <= {341, 342}, shares
    clients = {node: keys.cluster.redis(node) for node in NODES}
    for number in range(300):
        assert clients[NODES[number % 3]].set(f"k:{number}", number)
    for node, client in clients.items():
        assert [client.get(f"k:{number}") for number in range(300)] == [str(number) for number in range(300)], node
        assert client.dbsize() == 300 and len(client.keys("k:*")) == 300
        assert sorted(client.scan_iter(count=50)) == sorted(f"k:{number}" for number in range(300))
    # A pipeline over keys of all nodes.
    replies = clients["n2"].pipeline(transaction=False)
    for number in range(300):
        replies.incrby(f"k:{number}", 1000)
    assert replies.execute() == [1000 + number for number in range(300)]
    one, other = (keys.keys_of(node, 2) for node in ("n1", "n2"))
    for client in clients.values():
        with pytest.raises(redis.ResponseError, match=r"^CROSSNODE"):
            client.mset({one[0]: 1, other[0]: 2})
        client.mset({other[0]: 1, other[1]: 2})
        transaction = client.pipeline(transaction=True)
        transaction.incr(other[0])
        transaction.incr(other[1])
        assert transaction.execute() == [2, 3]
    # Each node says the same of who has which slot, and sends clients there.
    told = set()
    for node in NODES:
        client = Client(keys.doors[node])
        told.add(str(sorted((first, last, at[1]) for first, last, at, *_ in client.call("CLUSTER", "SLOTS"))))
        assert client.call("CLUSTER", "INFO").startswith(b"cluster_state:ok")
        assert len(client.call("CLUSTER", "NODES").splitlines()) == 3
        for owner in NODES:
            key = keys.keys_of(owner, 1)[0]
            assert clients[node].set(key, "door")
            answer = client.call("SET", key, "door")
            slot = client.call("CLUSTER", "KEYSLOT", key)
            assert answer == ("OK" if owner == node else f"MOVED {slot} 127.0.0.1:{keys.doors[owner]}")
            asked = ["redis-cli", "-c", "-p", str(keys.doors[node]), "GET", key]
            assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "door\n"
        client.close()
    assert len(told) == 1, told
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port) for port in keys.doors.values()], decode_responses=True)
    for number in range(300):
        assert client.set(f"c:{number}", number)
    assert [clients["n3"].get(f"c:{number}") for number in range(300)] == [str(number) for number in range(300)]
    assert client.mset_nonatomic({f"d:{number}": number for number in range(100)})
    client.close()
    listener = clients["n1"].pubsub()
    listener.subscribe("news")
    assert listener.get_message(timeout=5)["type"] == "subscribe"
    assert clients["n3"].publish("news", "hello") == 0, "those at other nodes are not counted, as in Redis Cluster"
    assert listener.get_message(timeout=5)["data"] == "hello"
    script = clients["n1"].register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    counted = [keys.keys_of(node, 3)[2] for node in NODES]
    before = [int(clients["n1"].get(key) or 0) for key in counted]
    assert [script(keys=[key], args=[5]) for key in counted] == [value + 5 for value in before]
    assert clients["n2"].flushall()
    assert [client.dbsize() for client in clients.values()] == [0, 0, 0]
    assert keys.cluster.stop() == 0, keys.cluster.logs()


def test_keys_are_there_again_when_all_nodes_start_again(spread, tmp_path):
    keys = spread("keys.appendfsync=always", directory=tmp_path / "again")
    client = keys.cluster.redis("n1")
    for number in range(200):
        client.set(f"k:{number}", number)
    client.close()
    assert keys.cluster.stop() == 0, keys.cluster.logs()
    again = spread(directory=tmp_path / "again")
    client = again.cluster.redis("n2")
    assert [client.get(f"k:{number}") for number in range(200)] == [str(number) for number in range(200)]
    assert sum(again.shares().values()) == VIRTUAL_NODES
    client.close()
    assert again.cluster.stop() == 0, again.cluster.logs()


class Watched:
    """Counts keys of one node through another, and notes the longest time that a step took."""

    def __init__(self, cluster, key, through):
        self.client = cluster.redis(through, retry=None)
        self.key, self.count, self.longest = key, int(self.client.get(key) or 0), 0.0

    def step(self):
        began = time.monotonic()
        value = self.client.incr(self.key)
        self.longest = max(self.longest, time.monotonic() - began)
        self.count += 1
        assert value == self.count, "an increment is lost, or was done twice"


def work(keys, disturb):
    """Counts in keys of all nodes while nodes are disturbed. Nothing that was told is lost or done twice."""
    cluster = keys.cluster
    counters = [Counter(cluster, keys.keys_of(node, 2)[number]) for node in NODES for number in (0, 1)]
    loops = [Loop(counter.step) for counter in counters]
    try:
        cluster.until(lambda: all(len(counter.told) > 20 for counter in counters), "all count")
        disturb(counters)
    finally:
        for loop in loops:
            loop.end()
    keys.until_served()
    assert all(counter.check() > 0 for counter in counters)


def all_go_on(cluster, counters, more=30):
    before = [len(counter.told) for counter in counters]
    cluster.until(lambda: all(len(counter.told) >= count + more for counter, count in zip(counters, before)), "all counters go on")


def test_nodes_that_are_killed_lose_nothing_that_was_told_and_keep_nobody_else_waiting(spread):
    keys = spread("keys.appendfsync=always")
    cluster = keys.cluster

    def disturb(counters):
        for number in range(KILLS):
            lost = NODES[(number + 1) % 3]
            shares = keys.shares(lost)
            through, owner = sorted((node for node in NODES if node != lost), key=lambda node: shares.get(node, 0))
            watched = Watched(cluster, f"steady{{{keys.keys_of(owner, 1)[0]}}}:{number}", through)
            loop = Loop(watched.step)
            pid = cluster.signal(lost, signal.SIGKILL)
            cluster.runs_again(lost, pid)
            keys.until_served()
            all_go_on(cluster, counters)
            loop.end()
            assert watched.count > 0 and watched.longest < 2.5, f"keys of {owner} waited for {watched.longest:.2f} s"

    work(keys, disturb)
    assert cluster.stop() == 0, cluster.logs()


@pytest.mark.long
def test_a_node_that_stands_still_past_its_lease_tells_nobody_anything(spread):
    keys = spread("keys.appendfsync=always")
    cluster = keys.cluster

    def disturb(counters):
        for lost in ("n2", "n3"):
            asked = next(node for node in NODES if node != lost)
            pid = cluster.signal(lost, signal.SIGSTOP)
            cluster.until(lambda: lost not in keys.shares(asked), f"others have what {lost} had")
            os.kill(pid, signal.SIGCONT)
            cluster.runs_again(lost, pid)
            keys.until_served()
            all_go_on(cluster, counters)

    work(keys, disturb)
    assert cluster.stop() == 0, cluster.logs()


@pytest.mark.long
def test_nodes_that_are_all_killed_at_once_have_what_was_told(spread):
    keys = spread("keys.appendfsync=always")
    cluster = keys.cluster

    def disturb(counters):
        pids = {node: cluster.status(node)["pid"] for node in NODES}
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        for node, pid in pids.items():
            cluster.runs_again(node, pid)
        keys.until_served()
        all_go_on(cluster, counters)

    work(keys, disturb)
    assert cluster.stop() == 0, cluster.logs()


def test_a_cluster_whose_keys_have_one_owner_goes_on_so(start, tmp_path):
    cluster = start(directory=tmp_path / "one")
    cluster.redis("n2").set("a", "1")
    assert cluster.stop() == 0, cluster.logs()
    again = start("keys.spread=true", directory=tmp_path / "one")
    again.until(lambda: all(again.is_served(node) for node in NODES), "every shard is served")
    assert not any(name.startswith("keys/v/") for name in again.shards("n1"))
    assert again.redis("n3").get("a") == "1"
    assert again.stop() == 0, again.logs()
