"""The port for clients of clusters, beside a redis-server that is a cluster of one."""

import random
import shutil
import time

import pytest

from conftest import THREADS, Process, Server
from ports import free_port
from resp import Client

SLOTS = 16_384


class RedisCluster(Process):
    """Debian's redis-server with all slots of a cluster."""

    def __init__(self, folder):
        self.port = self.cluster_port = free_port()
        binary = shutil.which("redis-server")
        bus = ["--cluster-port", str(free_port())]
        super().__init__([binary, "--save", "", "--dir", str(folder), "--port", str(self.port), "--cluster-enabled", "yes", *bus], folder / "log")
        client = Client(self.port)
        assert client.call("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1) == "OK"
        deadline = time.monotonic() + 30
        while b"cluster_state:ok" not in client.call("CLUSTER", "INFO"):
            assert time.monotonic() < deadline, "the cluster of redis-server does not come up"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def redis_cluster(tmp_path_factory):
    server = RedisCluster(tmp_path_factory.mktemp("redis-cluster"))
    yield server
    server.kill()


@pytest.fixture(scope="module", params=THREADS, ids=lambda threads: f"{threads}-threads")
def savanna_cluster(request, tmp_path_factory):
    port = free_port()
    server = Server(tmp_path_factory.mktemp("savanna-cluster"), "--threads", request.param, "--cluster-port", port)
    server.cluster_port = port
    yield server
    server.kill()


@pytest.fixture(params=[2, 3], ids=lambda protocol: f"resp{protocol}")
def both(request, redis_cluster, savanna_cluster):
    servers = [Client(server.cluster_port, request.param) for server in (redis_cluster, savanna_cluster)]
    for server in servers:
        server.call("FLUSHALL")
    yield servers
    for server in servers:
        server.close()


def same(both, *words):
    """What both answer."""
    theirs, ours = (server.call(*words) for server in both)
    assert ours == theirs, words
    return ours


def test_slots_of_any_keys_are_those_of_redis(both):
    chance = random.Random(1)
    keys = [b"", b"{}", b"{a", b"a}", b"{}{a}", b"{{a}}", b"{a}{b}", b"a{b}c{d}", b"\x00\xff{\x00}"]
    keys += [bytes(chance.choices(b"{}ab\x00\xffz", k=chance.randrange(24))) for _ in range(20_000)]
    keys += [chance.randbytes(chance.randrange(80)) for _ in range(20_000)]
    for begin in range(0, len(keys), 1_000):
        part = keys[begin : begin + 1_000]
        for server in both:
            server.socket.sendall(b"".join(b"*3\r\n$7\r\nCLUSTER\r\n$7\r\nKEYSLOT\r\n$%d\r\n%s\r\n" % (len(key), key) for key in part))
        theirs, ours = ([server.receive() for _ in part] for server in both)
        assert ours == theirs


def test_keys_of_a_slot_are_counted_and_given(both):
    names = [f"{{user:7}}:{number}" for number in range(30)]
    slot = same(both, "CLUSTER", "KEYSLOT", "user:7")
    for name in names:
        assert same(both, "SET", name, 1) == "OK"
    same(both, "SET", "another", 1)
    assert same(both, "CLUSTER", "COUNTKEYSINSLOT", slot) == 30
    assert same(both, "CLUSTER", "COUNTKEYSINSLOT", (slot + 1) % SLOTS) == 0
    for server in both:
        assert sorted(server.call("CLUSTER", "GETKEYSINSLOT", slot, 100)) == sorted(name.encode() for name in names)
        assert len(server.call("CLUSTER", "GETKEYSINSLOT", slot, 7)) == 7
    assert same(both, "CLUSTER", "GETKEYSINSLOT", slot, 0) == []
    for words in [("COUNTKEYSINSLOT", SLOTS), ("COUNTKEYSINSLOT", -1), ("COUNTKEYSINSLOT", "x"), ("COUNTKEYSINSLOT",)]:
        assert same(both, "CLUSTER", *words).startswith("ERR")
    for words in [(SLOTS, 1), (0, -1), ("x", 1), (0, "x"), (0,)]:
        assert same(both, "CLUSTER", "GETKEYSINSLOT", *words).startswith("ERR")
    assert same(both, "DEL", *names) == 30
    assert same(both, "CLUSTER", "COUNTKEYSINSLOT", slot) == 0


def test_keys_of_any_names_are_in_the_slots_of_redis(both):
    names = [f"name:{number}".encode() for number in range(500)]
    for server in both:
        for name in names:
            assert server.call("SET", name, 1) == "OK"
    for slot in {same(both, "CLUSTER", "KEYSLOT", name) for name in names}:
        assert same(both, "CLUSTER", "COUNTKEYSINSLOT", slot) > 0
        theirs, ours = (sorted(server.call("CLUSTER", "GETKEYSINSLOT", slot, 100)) for server in both)
        assert ours == theirs


def test_keys_of_several_slots_are_refused(both):
    crossed = "CROSSSLOT Keys in request don't hash to the same slot"
    for words in [
        ("MSET", "a", 1, "b", 2),
        ("MGET", "a", "b"),
        ("DEL", "a", "b"),
        ("RENAME", "a", "b"),
        ("SUNIONSTORE", "a", "b", "c"),
        ("WATCH", "a", "b"),
        ("EVAL", "return 1", 2, "a", "b"),
        ("BLPOP", "a", "b", 1),
        ("XREAD", "STREAMS", "a", "b", 0, 0),
        ("SSUBSCRIBE", "a", "b"),
        ("PFMERGE", "a", "b"),
        ("SORT", "a", "STORE", "b"),
        ("GEORADIUS", "a", 1, 1, 1, "km", "STORE", "b"),
    ]:
        assert same(both, *words) == crossed
    assert same(both, "MSET", "{t}a", 1, "{t}b", 2) == "OK"
    assert same(both, "MGET", "{t}b", "{t}a") == [b"2", b"1"]
    assert same(both, "EVAL", "return redis.call('GET', KEYS[2])", 2, "{t}a", "{t}b") == b"2"
    assert same(both, "GET", "a") is None


def test_a_transaction_is_of_one_slot(both):
    crossed = "CROSSSLOT Keys in request don't hash to the same slot"
    assert same(both, "MULTI") == "OK"
    assert same(both, "SET", "a", 1) == "QUEUED"
    assert same(both, "SET", "b", 1) == "QUEUED"
    assert same(both, "EXEC") == crossed
    assert same(both, "EXEC") == "ERR EXEC without MULTI"
    assert same(both, "GET", "a") is None
    assert same(both, "MULTI") == "OK"
    assert same(both, "MSET", "a", 1, "b", 1) == crossed
    assert same(both, "EXEC").startswith("EXECABORT")
    assert same(both, "MULTI") == "OK"
    assert same(both, "INCR", "{t}a") == "QUEUED"
    assert same(both, "INCR", "{t}b") == "QUEUED"
    assert same(both, "EXEC") == [1, 1]
    # What was watched is not any more.
    assert same(both, "WATCH", "w") == "OK"
    assert same(both, "MULTI") == "OK"
    assert same(both, "SET", "a", 1) == "QUEUED"
    assert same(both, "SET", "b", 1) == "QUEUED"
    assert same(both, "EXEC") == crossed
    assert same(both, "SET", "w", 1) == "OK"
    assert same(both, "MULTI") == "OK"
    assert same(both, "SET", "a", 1) == "QUEUED"
    assert same(both, "EXEC") == ["OK"]


def test_there_is_one_database(both):
    assert same(both, "SELECT", 0) == "OK"
    same(both, "SET", "a", 1)
    for words in [("SELECT", 1), ("MOVE", "a", 1), ("SWAPDB", 0, 1), ("COPY", "a", "{a}", "DB", 1)]:
        assert "not allowed in cluster mode" in same(both, *words)
    assert same(both, "COPY", "a", "{a}", "DB", 0) == 1


def test_subcommands_are_refused_as_in_redis(both):
    for words in [("NONSENSE",), ("KEYSLOT",), ("SLOTS", "x"), ("REPLICAS", "x"), ("REPLICAS",), ("COUNT-FAILURE-REPORTS", "x"), ("MEET",)]:
        assert same(both, "CLUSTER", *words).startswith("ERR")
    for words in [("READONLY",), ("READWRITE",), ("ASKING",)]:
        assert same(both, *words) == "OK"
    _, ours = both
    assert ours.call("CLUSTER", "ADDSLOTS", 1).startswith("ERR Savanna decides itself")


def text(server, *words):
    """A reply that is text for people."""
    return server.call(*words).decode().removeprefix("txt:")


def shape(value, port):
    """What is left of a reply without names and places, which differ from server to server."""
    if isinstance(value, (list, tuple)):
        return [shape(part, port) for part in value]
    if isinstance(value, bytes):
        return "id" if len(value) == 40 else value if value in WORDS else "text"
    return "port" if value == port else value


WORDS = [b"slots", b"nodes", b"id", b"port", b"ip", b"endpoint", b"role", b"master", b"health", b"online", b"replication-offset"]


def test_what_is_told_of_nodes_has_the_form_of_redis(both, redis_cluster, savanna_cluster):
    for about in ("SLOTS", "SHARDS"):
        theirs, ours = (shape(client.call("CLUSTER", about), server.cluster_port) for client, server in zip(both, (redis_cluster, savanna_cluster), strict=True))
        assert ours == theirs and "port" in str(ours), about
    _, ours = both
    (_, _, (host, port, name, _)), = ours.call("CLUSTER", "SLOTS")
    assert (host, port) == (b"127.0.0.1", savanna_cluster.cluster_port)
    assert name == ours.call("CLUSTER", "MYID") and len(name) == 40
    line = text(ours, "CLUSTER", "NODES")
    assert line == f"{name.decode()} 127.0.0.1:{savanna_cluster.cluster_port}@0 myself,master - 0 0 0 connected 0-16383\n"
    assert ours.call("CLUSTER", "REPLICAS", name) == [] and ours.call("CLUSTER", "LINKS") == []
    theirs, ours = (dict(line.split(":") for line in text(server, "CLUSTER", "INFO").split()) for server in both)
    epochs = {"cluster_current_epoch", "cluster_my_epoch"}
    assert {name: value for name, value in ours.items() if name not in epochs} == {name: value for name, value in theirs.items() if name not in epochs}


def test_clients_are_told_that_it_is_a_cluster(both, savanna_cluster):
    for server in both:
        hello = server.call("HELLO")
        mode = dict(hello)[b"mode"] if isinstance(hello[0], tuple) else hello[hello.index(b"mode") + 1]
        assert mode == b"cluster"
        info = server.call("INFO").decode()
        assert "redis_mode:cluster\r\n" in info and "cluster_enabled:1\r\n" in info
    plain = Client(savanna_cluster.port)
    info = plain.call("INFO").decode()
    assert "redis_mode:standalone\r\n" in info and "cluster_enabled:0\r\n" in info
    plain.close()


def test_the_other_port_is_no_cluster(redis, savanna_cluster):
    both = [Client(server.port) for server in (redis, savanna_cluster)]
    for words in [("CLUSTER", "SLOTS"), ("CLUSTER", "KEYSLOT", "a"), ("READONLY",), ("READWRITE",), ("ASKING",)]:
        assert same(both, *words) == "ERR This instance has cluster support disabled"
    for server in both:
        server.call("FLUSHALL")
    assert same(both, "MSET", "a", 1, "b", 2) == "OK"
    assert same(both, "SELECT", 1) == "OK"
    # Both ports show the same keys.
    ours = Client(savanna_cluster.cluster_port)
    assert ours.call("GET", "b") == b"2"
    for client in (*both, ours):
        client.close()


def test_a_port_that_is_taken_is_refused_if_it_was_asked_for(tmp_path, savanna_cluster):
    reason = Server.refusal(tmp_path, "--cluster-port", savanna_cluster.cluster_port)
    assert f"127.0.0.1:{savanna_cluster.cluster_port} is taken" in reason and "keys-cluster-port" in reason
