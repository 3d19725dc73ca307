"""CLIENT TRACKING: clients that keep copies of values, of Savanna and of redis-server."""

import time

import pytest
import redis as redis_py
from redis.cache import CacheConfig

from conftest import Server
from resp import Client


def told(client, seconds=0.3):
    """What a client is told without asking, until nothing has come for a while."""
    heard = []
    client.socket.settimeout(seconds)
    try:
        while True:
            heard.append(client.receive())
    except TimeoutError:
        pass
    client.socket.settimeout(30)
    client.reader = client.socket.makefile("rb")
    return heard


def keys_of(heard):
    """The keys of invalidations, in their order."""
    assert all(kind == b"invalidate" for kind, _ in heard), heard
    return sorted(key for _, keys in heard for key in keys)


@pytest.fixture(params=["redis", "savanna"])
def port(request, redis, savanna):
    port = {"redis": redis, "savanna": savanna}[request.param].port
    Client(port).call("FLUSHALL")
    return port


def test_who_has_read_a_key_hears_once_when_it_changes(port):
    reader, writer = Client(port, 3), Client(port)
    assert reader.call("CLIENT", "TRACKING", "ON") == "OK"
    for number in range(8):
        assert reader.call("GET", f"key:{number}") is None
    for number in range(8):
        writer.call("SET", f"key:{number}", number)
    assert keys_of(told(reader)) == [b"key:%d" % number for number in range(8)]
    writer.call("SET", "key:0", "again")
    assert told(reader) == []
    reader.call("MGET", "key:1", "key:2", "key:3")
    writer.call("MSET", "key:1", "a", "key:3", "b", "key:4", "c")
    assert keys_of(told(reader)) == [b"key:1", b"key:3"]
    # Its own changes, too.
    reader.call("GET", "key:5")
    reader.send("APPEND", "key:5", "x")
    heard = told(reader)
    assert 2 in heard and keys_of([message for message in heard if message != 2]) == [b"key:5"]


def test_keys_of_transactions_and_scripts_are_tracked(port):
    reader, writer = Client(port, 3), Client(port)
    reader.call("CLIENT", "TRACKING", "ON")
    reader.call("MULTI")
    reader.call("GET", "a")
    reader.call("HGETALL", "b")
    assert reader.call("EXEC") == [None, []]
    reader.call("EVAL", "return redis.call('GET', KEYS[1])", 1, "c")
    writer.call("SET", "a", 1)
    writer.call("HSET", "b", "f", 1)
    writer.call("EVAL", "return redis.call('SET', KEYS[1], 'x')", 1, "c")
    assert keys_of(told(reader)) == [b"a", b"b", b"c"]


def test_expired_and_flushed_keys_are_told(port):
    reader, writer = Client(port, 3), Client(port)
    reader.call("CLIENT", "TRACKING", "ON")
    writer.call("SET", "short", 1, "PX", 300)
    reader.call("GET", "short")
    deadline, heard = time.monotonic() + 10, []
    while not heard and time.monotonic() < deadline:
        heard = told(reader)
    assert keys_of(heard) == [b"short"]
    reader.call("GET", "other")
    writer.call("FLUSHALL")
    heard = told(reader)
    assert heard and all(message == [b"invalidate", None] for message in heard)
    # Nobody has a copy any more.
    writer.call("SET", "other", 1)
    assert told(reader) == []


def test_opt_in_and_opt_out_choose_requests(port):
    for mode, said, tracked in (("OPTIN", "YES", [b"said"]), ("OPTOUT", "NO", [b"unsaid"])):
        reader, writer = Client(port, 3), Client(port)
        reader.call("CLIENT", "TRACKING", "ON", mode)
        reader.call("CLIENT", "CACHING", said)
        reader.call("GET", "said")
        reader.call("GET", "unsaid")
        writer.call("MSET", "said", 1, "unsaid", 1)
        assert keys_of(told(reader)) == tracked


def test_broadcasts_are_of_all_keys_with_a_prefix(port):
    reader, writer = Client(port, 3), Client(port)
    assert reader.call("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "user:", "PREFIX", "order:", "NOLOOP") == "OK"
    for number in range(4):
        writer.call("SET", f"user:{number}", 1)
        writer.call("SET", f"other:{number}", 1)
        reader.send("SET", f"order:{number}", 1)
    heard = told(reader)
    assert heard.count("OK") == 4
    assert keys_of([message for message in heard if message != "OK"]) == [b"user:%d" % number for number in range(4)]


def test_clients_of_resp2_are_told_on_a_channel_of_another_connection(port):
    # On whichever threads the two are.
    for _ in range(4):
        listener, reader, writer = Client(port), Client(port), Client(port)
        number = listener.call("CLIENT", "ID")
        listener.call("SUBSCRIBE", "__redis__:invalidate")
        assert reader.call("CLIENT", "TRACKING", "ON", "REDIRECT", number) == "OK"
        assert reader.call("CLIENT", "GETREDIR") == number
        reader.call("GET", "a")
        writer.call("SET", "a", 1)
        assert told(listener) == [[b"message", b"__redis__:invalidate", [b"a"]]]
        assert told(reader) == []
        writer.call("FLUSHDB")
        heard = told(listener)
        assert heard and all(message == [b"message", b"__redis__:invalidate", None] for message in heard)
        for client in (listener, reader, writer):
            client.close()


def test_what_is_said_is_shown_and_contradictions_are_refused(redis, savanna):
    requests = [
        ("CLIENT", "GETREDIR"),
        ("CLIENT", "TRACKINGINFO"),
        ("CLIENT", "CACHING", "YES"),
        ("CLIENT", "TRACKING", "ON", "PREFIX", "a"),
        ("CLIENT", "TRACKING", "ON", "OPTIN", "OPTOUT"),
        ("CLIENT", "TRACKING", "ON", "BCAST", "OPTIN"),
        ("CLIENT", "TRACKING", "ON", "REDIRECT", "123456789"),
        ("CLIENT", "TRACKING", "ON", "REDIRECT", "x"),
        ("CLIENT", "TRACKING", "ON", "NOTHING"),
        ("CLIENT", "TRACKING", "MAYBE"),
        ("CLIENT", "TRACKING"),
        ("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"),
        ("CLIENT", "CACHING", "NO"),
        ("CLIENT", "CACHING", "YES"),
        ("CLIENT", "TRACKINGINFO"),
        ("PING",),
        ("CLIENT", "TRACKINGINFO"),
        ("CLIENT", "TRACKING", "ON", "OPTOUT"),
        ("CLIENT", "TRACKING", "ON", "BCAST"),
        ("CLIENT", "TRACKING", "OFF"),
        ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "ab", "PREFIX", "abc"),
        ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "ab"),
        ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "abc"),
        ("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "b"),
        ("CLIENT", "TRACKINGINFO"),
        ("RESET",),
        ("CLIENT", "TRACKINGINFO"),
    ]
    for protocol in (2, 3):
        clients = [Client(server.port, protocol) for server in (redis, savanna)]
        for request in requests:
            expected, came = (client.call(*request) for client in clients)
            assert came == expected, request


def test_a_full_table_lets_the_oldest_copies_go(tmp_path):
    server = Server(tmp_path, "--threads", 1, "--tracking-table-max-keys", 10)
    try:
        reader = Client(server.port, 3)
        reader.call("CLIENT", "TRACKING", "ON")
        for number in range(15):
            reader.send("GET", number)
        heard = [reader.receive() for _ in range(20)]
        heard = [message for message in heard if message is not None]
        assert keys_of(heard) == sorted(b"%d" % number for number in range(5))
        info = Client(server.port).call("INFO")
        assert b"tracking_clients:1\r\n" in info and b"tracking_total_keys:10\r\n" in info
    finally:
        server.kill()


def test_the_client_side_cache_of_redis_py_is_never_old(savanna, monkeypatch):
    # It asks for the version, which is that of the commands, and not for what the server does.
    monkeypatch.setattr(redis_py.connection.CacheProxyConnection, "MIN_ALLOWED_VERSION", "7.0.0")
    cached = redis_py.Redis(port=savanna.port, protocol=3, cache_config=CacheConfig(max_size=100), decode_responses=True)
    plain = redis_py.Redis(port=savanna.port, decode_responses=True)
    plain.flushall()
    for number in range(50):
        key = f"key:{number % 5}"
        plain.set(key, number)
        # The word of the change comes in its own time.
        deadline = time.monotonic() + 10
        while cached.get(key) != str(number):
            assert time.monotonic() < deadline, key
        assert cached.get(key) == str(number)
    assert cached.get_cache().size > 0
    plain.flushall()
    deadline = time.monotonic() + 10
    while cached.get("key:0") is not None:
        assert time.monotonic() < deadline
