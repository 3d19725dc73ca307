"""What clients hear that becomes of keys, from Savanna and from redis-server."""

import os
import time

import pytest

from resp import Client, Refused
from test_differential import GROUPS, Words

ROUNDS = int(os.environ.get("KEYS_DIFFERENTIAL_ROUNDS", "1"))
COMMANDS = 1000


class Listener:
    """A client that listens to all events."""

    def __init__(self, server, pattern="__key*"):
        self.client = Client(server.port)
        self.client.call("PSUBSCRIBE", pattern)
        self.client.call("SUBSCRIBE", "marks")
        self.publisher = Client(server.port)

    def next(self):
        words = self.client.receive()
        return words[1:] if words[0] == b"message" else words[2:]

    def until_mark(self):
        """What came before a message that is published now."""
        assert self.publisher.call("PUBLISH", "marks", "mark") >= 1
        came = []
        while not came or came[-1] != [b"marks", b"mark"]:
            came.append(self.next())
        return came[:-1]

    def some(self, count):
        """So many events; then nothing more may come."""
        return [self.next() for _ in range(count)] + self.until_mark()

    def close(self):
        self.client.close()
        self.publisher.close()


@pytest.fixture
def both(redis, savanna):
    servers = (redis, savanna)
    for server in servers:
        client = Client(server.port)
        client.call("FLUSHALL")
        assert client.call("CONFIG", "SET", "notify-keyspace-events", "AKEn") == "OK"
        client.close()
    yield servers
    for server in servers:
        Client(server.port).call("CONFIG", "SET", "notify-keyspace-events", "")


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_events_come_in_the_order_of_redis(both, group, seed):
    words = Words(f"events {group.__name__} {seed}")
    mixed = [group, group, *GROUPS[:-1]]
    clients = [Client(server.port) for server in both]
    listeners = [Listener(server) for server in both]
    history, in_transaction = [], False
    for _ in range(COMMANDS):
        command = words.random.choice(mixed)(words)
        names_by_pattern = command[0].startswith("SORT") and any("*" in word for word in command)
        if command[0] == "SPOP" or in_transaction and (command[0] in ("DBSIZE", "KEYS", "WATCH") or names_by_pattern):
            continue
        history.append(" ".join(repr(word) if not word or " " in word else word for word in command))
        replies = [client.call(*command) for client in clients]
        expected = listeners[0].until_mark()
        came = listeners[1].some(len(expected))
        assert came == expected, "\n".join(history[-12:])
        if command[0] == "MULTI" and replies[0] == "OK":
            in_transaction = True
        elif command[0] in ("EXEC", "DISCARD"):
            in_transaction = False
    for client in (*clients, *listeners):
        client.close()


def test_who_waits_is_served_with_the_events_of_redis(both):
    heard = []
    for server in both:
        listener, waiting, client = Listener(server), Client(server.port), Client(server.port)
        waiting.send("BLPOP", "list", "other", "0")
        while b"blocked_clients:1\r\n" not in client.call("INFO", "clients"):
            pass
        client.call("RPUSH", "list", "x")
        assert waiting.receive() == [b"list", b"x"]
        heard.append(listener.some(0) if not heard else listener.some(len(heard[0])))
        for other in (listener, waiting, client):
            other.close()
    assert heard[0] == heard[1] and len(heard[0]) == 8


def test_keys_that_expire_or_are_evicted_are_told_of(both):
    for server in both:
        listener, client = Listener(server, "__keyevent@*__:e[xv]*ed"), Client(server.port)
        for number in range(10):
            client.call("SET", f"short {number}", "x", "PX", "20")
        names = {b"short %d" % number for number in range(10)}
        assert {key for channel, key in (listener.next() for _ in range(10)) if channel == b"__keyevent@0__:expired"} == names
        for number in range(200):
            client.call("SET", f"key {number}", "x" * 1000)
        used = int(client.call("INFO", "memory").decode().split("used_memory:")[1].split()[0])
        client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", used - 50_000)
        client.call("SET", "one", "more")
        deadline = time.monotonic() + 10
        gone = listener.until_mark()
        while not gone:
            assert time.monotonic() < deadline
            client.call("SET", "one", "more")
            gone = listener.until_mark()
        client.call("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
        assert {channel for channel, _ in gone} == {b"__keyevent@0__:evicted"}
        assert not any(client.call("EXISTS", key) for _, key in gone if key != b"one")
        listener.close()
        client.close()


def test_missing_keys_are_told_of_to_who_reads(both):
    commands = [
        ["GET", "a"], ["MGET", "a", "b"], ["STRLEN", "a"], ["GETRANGE", "a", "0", "1"], ["EXISTS", "a", "b"], ["TYPE", "a"], ["TTL", "a"],
        ["PTTL", "a"], ["HGET", "a", "f"], ["HGETALL", "a"], ["LRANGE", "a", "0", "1"], ["LLEN", "a"], ["SMEMBERS", "a"], ["SCARD", "a"],
        ["SINTER", "a", "b"], ["ZSCORE", "a", "m"], ["ZRANGE", "a", "0", "1"], ["ZUNION", "2", "a", "b"], ["BITCOUNT", "a"],
        ["GETBIT", "a", "1"], ["DUMP", "a"], ["TOUCH", "a"], ["SORT", "a"], ["SORT_RO", "a"], ["COPY", "a", "b"], ["GETDEL", "a"],
        ["GETEX", "a"], ["SUNIONSTORE", "x", "a", "b"], ["ZUNIONSTORE", "x", "2", "a", "b"], ["BITOP", "OR", "x", "a", "b"],
        ["ZRANGESTORE", "x", "a", "0", "1"], ["OBJECT", "ENCODING", "a"], ["LPOP", "a"], ["SREM", "a", "x"], ["EXPIRE", "a", "1"],
        ["PERSIST", "a"], ["DEL", "a"], ["LPUSHX", "a", "x"], ["HDEL", "a", "f"], ["RENAME", "a", "b"], ["SMOVE", "a", "b", "x"],
        ["LMOVE", "a", "b", "LEFT", "LEFT"], ["ZPOPMIN", "a"], ["LREM", "a", "1", "x"], ["LTRIM", "a", "0", "1"], ["SET", "s", "x", "GET"],
        ["GETSET", "t", "x"], ["INCR", "n"], ["APPEND", "p", "x"], ["SETBIT", "q", "1", "1"], ["LMPOP", "2", "a", "b", "LEFT"],
    ]  # fmt: skip
    listeners = [Listener(server) for server in both]
    clients = [Client(server.port) for server in both]
    for client in clients:
        client.call("CONFIG", "SET", "notify-keyspace-events", "AEmn")
    for command in commands:
        for client in clients:
            client.call(*command)
        expected = listeners[0].until_mark()
        assert listeners[1].some(len(expected)) == expected, command
    for client in (*clients, *listeners):
        client.close()


def test_classes_are_chosen_at_run_time(both):
    clients = [Client(server.port) for server in both]
    for letters in ("", "KEA", "Kx$", "gg", "KEn", "nmd", "tKE", "Kq", "mK", "Eg$lshzxetd"):
        theirs, ours = (client.call("CONFIG", "SET", "notify-keyspace-events", letters) for client in clients)
        assert ours == theirs
        theirs, ours = (client.call("CONFIG", "GET", "notify-keyspace-events") for client in clients)
        assert ours == theirs
    for letters in ("", "KEA", "AK", "E$", "Kg", "KEhx", "$lg", "KEn"):
        listeners = [Listener(server) for server in both]
        for client in clients:
            client.call("CONFIG", "SET", "notify-keyspace-events", letters)
            for command in (["SET", "a", "1", "EX", "100"], ["HSET", "h", "f", "v"], ["RPUSH", "l", "x"], ["LPOP", "l"], ["DEL", "a", "h"]):
                client.call(*command)
        expected = listeners[0].until_mark()
        assert sorted(listeners[1].some(len(expected))) == sorted(expected), letters
        for listener in listeners:
            listener.close()


def test_clients_of_all_threads_hear_the_same(savanna, both):
    client = Client(savanna.port)
    client.call("SUBSCRIBE", "other")
    client.close()
    listeners = [Listener(savanna) for _ in range(6)]
    client = Client(savanna.port)
    for number in range(50):
        client.call("SET", f"key {number}", "x")
        client.call("MSET", f"a{number}", "x", f"b{number}", "y", f"c{number}", "z")
    client.call("EVAL", "redis.call('SET', KEYS[1], '1') redis.call('DEL', KEYS[1])", "1", "s")
    count = 50 * 4 * 4 + 6
    heard = [sorted(listener.some(count)) for listener in listeners]
    assert all(other == heard[0] for other in heard) and len(heard[0]) == count
    for listener in listeners:
        listener.close()
    assert not isinstance(client.call("PING"), Refused)
