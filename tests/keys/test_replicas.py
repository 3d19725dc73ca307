"""Keys with replicas on several threads: who changed something sees it, and what was added after a deletion stays."""

import time

import pytest

from conftest import Server
from resp import Client

KEYS = 200


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("replicas"), "--threads", 3)
    yield server
    server.kill()


def becomes(condition):
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


CHANGES = {
    "string": (["SET", "{}", "new"], ["GET", "{}"], b"new"),
    "set": (["SADD", "{}", "new"], ["SISMEMBER", "{}", "new"], 1),
    "removed member": (["SREM", "{}", "old"], ["SISMEMBER", "{}", "old"], 0),
    "hash": (["HSET", "{}", "field", "new"], ["HGET", "{}", "field"], b"new"),
    "sorted set": (["ZADD", "{}", "7", "new"], ["ZSCORE", "{}", "new"], b"7"),
    "number": (["INCRBY", "{}", "5"], ["GET", "{}"], b"5"),
    "hyperloglog": (["PFADD", "{}", "new"], ["PFCOUNT", "{}"], 1),
    "deletion": (["DEL", "{}"], ["EXISTS", "{}"], 0),
    "expiry": (["EXPIRE", "{}", "1000"], ["TTL", "{}"], 1000),
}
BEFORE = {
    "removed member": ["SADD", "{}", "old"], "deletion": ["SADD", "{}", "old"], "expiry": ["SET", "{}", "old"], "set": ["SADD", "{}", "old"],
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_who_changed_something_sees_it_at_once(server, name):
    """From the moment on that a key has other replicas than before."""
    client = Client(server.port)
    change, look, seen = CHANGES[name]
    for number in range(KEYS):
        key = f"{name}:{number}"
        named = lambda words: [word.replace("{}", key) for word in words]
        if name in BEFORE:
            client.call(*named(BEFORE[name]))
        copies = ["FULL", "2", "FULL"][number % 3]
        assert client.call("SAV.REPLICATE", key, copies) == "OK"
        client.call(*named(change))
        assert client.call(*named(look)) == seen, number
        assert client.call("SAV.REPLICATE", key, "1" if number % 2 else "FULL") == "OK"
        assert client.call(*named(look)) == seen, number
    other = Client(server.port)
    for number in range(KEYS):
        assert becomes(lambda: other.call(*[word.replace("{}", f"{name}:{number}") for word in look]) in (seen, seen and 999))


def test_what_is_added_after_a_deletion_stays(server):
    """A deletion removes what its replica has seen; what anybody adds after it was acknowledged is not among that."""
    clients = [Client(server.port) for _ in range(6)]
    for number in range(KEYS):
        key = f"observed:{number}"
        assert clients[0].call("SAV.REPLICATE", key, "FULL") == "OK"
        clients[0].call("SADD", key, "old", "new")
        deletes, adds = clients[number % 6], clients[(number * 5 + 1) % 6]
        deletes.call("DEL", key)
        adds.call("SADD", key, "new")
        assert becomes(lambda: all(client.call("SISMEMBER", key, "new") == 1 for client in clients)), number
    time.sleep(0.3)
    for number in range(KEYS):
        assert all(client.call("SISMEMBER", f"observed:{number}", "new") == 1 for client in clients), number
