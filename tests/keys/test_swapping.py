"""SWAPDB, to Savanna and to redis-server."""

import pytest

from resp import Client, Refused


@pytest.fixture(params=["redis", "savanna"])
def server(request, redis, savanna):
    server = {"redis": redis, "savanna": savanna}[request.param]
    Client(server.port).call("FLUSHALL")
    return server


def in_database(server, number):
    client = Client(server.port)
    client.call("SELECT", number)
    return client


def test_all_keys_change_places_with_what_belongs_to_them(server):
    zero, one, other = in_database(server, 0), in_database(server, 1), in_database(server, 5)
    for number in range(50):
        zero.call("SET", f"key {number}", "zero", "EX", "1000")
    zero.call("RPUSH", "list", "a", "b")
    one.call("SET", "key 1", "one")
    assert other.call("SWAPDB", "0", "1") == "OK"
    assert (zero.call("DBSIZE"), one.call("DBSIZE")) == (1, 51)
    assert zero.call("GET", "key 1") == b"one" and one.call("GET", "key 1") == b"zero"
    assert 0 < one.call("TTL", "key 2") <= 1000 and zero.call("TTL", "key 1") == -1
    assert one.call("LRANGE", "list", "0", "-1") == [b"a", b"b"]
    assert one.call("SWAPDB", "1", "1") == "OK" and one.call("DBSIZE") == 51
    assert one.call("SWAPDB", "1", "5") == "OK"
    assert (one.call("DBSIZE"), other.call("DBSIZE")) == (0, 51)


def test_keys_expire_in_the_database_where_they_are(server):
    zero, one = in_database(server, 0), in_database(server, 1)
    zero.call("SET", "a", "x", "PX", "50")
    zero.call("SWAPDB", "0", "1")
    zero.call("SET", "a", "stays")
    while one.call("DBSIZE"):
        pass
    assert zero.call("GET", "a") == b"stays"


def test_wrong_words_are_refused_as_by_redis(redis, savanna):
    theirs, ours = Client(redis.port), Client(savanna.port)
    for words in (["0"], ["0", "1", "2"], ["x", "1"], ["0", "x"], ["0", "16"], ["-1", "0"], ["99999999999", "0"], ["0", "1.5"], ["0", "15"]):
        assert ours.call("SWAPDB", *words) == theirs.call("SWAPDB", *words), words
        assert ours.call("SWAPDB", "15", "0") == theirs.call("SWAPDB", "15", "0")


def test_who_waits_gets_what_a_swap_brings(server):
    zero, one = in_database(server, 0), in_database(server, 1)
    for keys in (["list"], ["a", "b", "list"], ["list", "c"]):
        one.call("RPUSH", "list", "x", "y")
        zero.send("BLPOP", *keys, "0")
        while b"blocked_clients:1\r\n" not in one.call("INFO", "clients"):
            pass
        assert one.call("SWAPDB", "1", "0") == "OK"
        assert zero.receive() == [b"list", b"x"]
        assert zero.call("LRANGE", "list", "0", "-1") == [b"y"] and one.call("EXISTS", "list") == 0
        zero.call("DEL", "list")


@pytest.mark.parametrize(
    ("before", "swaps", "runs"),
    [([], 1, True), (["0"], 1, False), (["1"], 1, False), (["0", "1"], 1, False), (["0"], 2, False), (["0", "1"], 2, False), (["0"], 0, True)],
)
def test_a_swap_is_a_change_of_the_keys_that_are_watched(server, before, swaps, runs):
    zero, one = in_database(server, 0), in_database(server, 1)
    for database in before:
        in_database(server, database).call("SET", "a", database)
    zero.call("WATCH", "a", "b", "c")
    for _ in range(swaps):
        assert one.call("SWAPDB", "0", "1") == "OK"
    zero.call("MULTI")
    zero.call("PING")
    assert zero.call("EXEC") == (["PONG"] if runs else None)


def test_it_is_a_step_of_a_transaction(savanna):
    client, other = Client(savanna.port), Client(savanna.port)
    client.call("FLUSHALL")
    client.call("MSET", *[word for number in range(20) for word in (f"key{number}", "zero")])
    for words in (["MULTI"], ["SET", "key0", "changed"], ["SWAPDB", "0", "1"], ["DBSIZE"], ["SET", "key1", "new"], ["DBSIZE"]):
        client.call(*words)
    assert client.call("EXEC") == ["OK", "OK", 0, "OK", 1]
    assert other.call("DBSIZE") == 1 and other.call("GET", "key1") == b"new"
    other.call("SELECT", "1")
    assert other.call("DBSIZE") == 20 and other.call("MGET", "key0", "key1", "key19") == [b"changed", b"zero", b"zero"]
