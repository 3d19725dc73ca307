"""The largest and smallest numbers that a request can have: replies are those of Redis."""

import pytest

from resp import Client

LARGEST, SMALLEST = 2**63 - 1, -(2**63)
HALF = LARGEST // 2
# The latest time at which a key expires, in the year 10889.
LATEST = 2**48 - 2


@pytest.fixture
def both(redis, savanna):
    pair = Client(redis.port), Client(savanna.port)
    for client in pair:
        client.call("FLUSHALL")
        client.call("HSET", "hash", "f", "v")
        client.call("ZADD", "zset", 1, "m")
        client.call("SADD", "set", "e")
        client.call("SET", "string", "v")
    return pair


def same(both, *words):
    theirs, ours = (client.call(*words) for client in both)
    assert ours == theirs, words
    return ours


@pytest.mark.parametrize("command, key, option", [
    ("HRANDFIELD", "hash", "WITHVALUES"), ("ZRANDMEMBER", "zset", "WITHSCORES"), ("SRANDMEMBER", "set", None),
])  # fmt: skip
def test_counts_by_chance(both, command, key, option):
    for name in (key, "missing", "string"):
        for count in (SMALLEST, LARGEST, LARGEST + 1, HALF, HALF + 1, 0, "x"):
            same(both, command, name, count)
        # Redis would go on for ever where it does not refuse.
        if name != key:
            same(both, command, name, SMALLEST + 1)
        for count in (SMALLEST, SMALLEST + 1, -HALF - 1, HALF, HALF + 1, LARGEST, LARGEST + 1, 0, "x") if option else ():
            same(both, command, name, count, option)
            same(both, command, name, count, option, "more")
            same(both, command, name, count, "other")


def test_ranks(both):
    for key in ("list", "missing"):
        same(both, "RPUSH", "list", "a", "b", "a")
        for rank in (SMALLEST - 1, SMALLEST, SMALLEST + 1, -1, 0, LARGEST, LARGEST + 1):
            for options in ([], ["COUNT", 0], ["MAXLEN", 1], ["COUNT", 1], ["COUNT", LARGEST, "MAXLEN", LARGEST]):
                # Redis loses count of what it finds from the smallest rank on.
                if rank != SMALLEST or options != ["COUNT", 1]:
                    same(both, "LPOS", key, "a", "RANK", rank, *options)


@pytest.mark.parametrize("number", [LARGEST, LARGEST + 1, SMALLEST, -1, 0, LARGEST // 1000, LARGEST // 1000 + 1, "x"])
def test_times(both, number):
    def shown():
        theirs, ours = (client.call("PEXPIRETIME", "string") for client in both)
        # Later than the latest it is at the latest.
        assert ours == (theirs if theirs < 0 else LATEST)

    for command in ("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"):
        same(both, command, "missing", number)
        for options in ([], ["NX"], ["XX"], ["GT"], ["LT"]):
            same(both, "SET", "string", "v")
            same(both, command, "string", number, *options)
            shown()
    for option in ("EX", "PX", "EXAT", "PXAT"):
        same(both, "SET", "string", "v", option, number)
        shown()
        same(both, "SET", "string", "v")
        same(both, "GETEX", "string", option, number)
        shown()
        for key in ("missing", "hash"):
            same(both, "GETEX", key, option, number)
    for command in ("SETEX", "PSETEX"):
        same(both, command, "string", number, "v")
        shown()
        same(both, "SET", "string", "v")
    for command in (["COPY", "string", "other", "DB"], ["MOVE", "missing"]):
        same(both, *command, number)


def test_a_key_that_expires_as_late_as_can_be_does_expire(savanna):
    client = Client(savanna.port)
    client.call("SET", "late", "v")
    assert client.call("PEXPIREAT", "late", LARGEST) == 1
    assert client.call("PTTL", "late") > 10**14
    assert client.call("PERSIST", "late") == 1


def test_a_key_by_chance_is_any_key(savanna):
    client = Client(savanna.port)
    client.call("FLUSHALL")
    assert client.call("RANDOMKEY") is None
    client.call("SET", "expires", "v", "PX", 1)
    keys = 300
    for number in range(keys):
        client.call("SET", f"key:{number}", "v")
    # One place has many.
    for number in range(keys):
        client.call("SET", f"{{tag}}{number}", "v")
    draws, counts = 12_000, {}
    for _ in range(draws):
        client.send("RANDOMKEY")
    for _ in range(draws):
        key = client.receive()
        counts[key] = counts.get(key, 0) + 1
    # 20 of each are expected: less than 1 or more than 60 of any has a chance of one in a million.
    assert len(counts) == 2 * keys and b"expires" not in counts
    assert max(counts.values()) <= 60


def test_cursors_that_no_scan_gave(both):
    for cursor in (-1, 2**63, 2**64 - 1, 2**64, -(2**64), SMALLEST, "", "x", " 1", "1 ", "+0", "-0", "00", "1x", "-", "0x1"):
        for words in (["SCAN"], ["SSCAN", "set"], ["HSCAN", "hash"], ["ZSCAN", "zset"], ["SSCAN", "missing"], ["SSCAN", "hash"]):
            theirs, ours = (client.call(*words, cursor) for client in both)
            # Where such a cursor stands is up to each.
            assert isinstance(ours, list) and isinstance(theirs, list) or ours == theirs, (words, cursor, theirs, ours)
