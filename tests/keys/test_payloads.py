"""DUMP and RESTORE: what Redis gives is read by Savanna, what Savanna gives by Redis, and nothing else by anybody."""

import random
import time

import pytest

from resp import Client, Refused

TEXTS = ["", "x", "12", "-300", "70000", "-9000000000", "word", "y" * 70, "abc" * 300, bytes(range(256)) * 80]


def fill(client, seed, lengths=(1, 3, 30, 200, 1000), texts=TEXTS):
    """Keys of all types and sizes. Gives their names."""
    chance = random.Random(seed)
    text = lambda: chance.choice(texts)  # noqa: E731
    names = []

    def key(kind):
        names.append(f"{kind}:{len(names)}")
        return names[-1]

    for value in texts:
        client.call("SET", key("string"), value)
    for length in lengths:
        client.call("RPUSH", key("list"), *(text() for _ in range(length)))
        client.call("RPUSH", key("list"), *(str(number) for number in range(length)))
        client.call("SADD", key("set"), *(str(chance.randint(-(10**12), 10**12)) for _ in range(length)))
        client.call("SADD", key("set"), *(str(number) for number in range(length)))
        client.call("SADD", key("set"), *(f"member {number}" for number in range(length)))
        client.call("HSET", key("hash"), *(word for number in range(length) for word in (f"f{number}", text())))
        client.call("ZADD", key("zset"), *(word for n in range(length) for word in (chance.choice(["-inf", "inf", "0", "-1.5", "3", "12345678.5"]), f"m{n}")))
    for length in (1, 50, 250):
        name = key("stream")
        for number in range(length):
            fields = ["f", text(), "g", number] if number % 7 else ["other", text(), str(number), "x" * 5000]
            client.call("XADD", name, f"{number // 3 + 1}-{number + 1}", *fields)
        client.call("XGROUP", "CREATE", name, "g", "0")
        client.call("XGROUP", "CREATE", name, "late", "$")
        for consumer in ("alice", "bob"):
            client.call("XREADGROUP", "GROUP", "g", consumer, "COUNT", length // 4, "STREAMS", name, ">")
        client.call("XDEL", name, f"{length // 6 + 1}-{length // 2 + 1}", "1-2")
    client.call("XGROUP", "CREATE", key("stream"), "g", "5-5", "MKSTREAM")
    client.call("PFADD", key("sketch"), *range(100))
    client.call("GEOADD", key("place"), "13.361389", "38.115556", "Palermo")
    return names


def value(client, name):
    kind = client.call("TYPE", name)
    if kind == "stream":
        info = client.call("XINFO", "STREAM", name, "FULL", "COUNT", "0")
        # Entries that were deleted take no places any more.
        info = [item for at, item in enumerate(info) if not (at and isinstance(info[at - 1], bytes) and info[at - 1].startswith(b"radix"))]
        # What Redis takes for the first entry of a stream without entries out of an old file.
        return kind, [b"0-0" if item == b"18446744073709551615-18446744073709551615" else item for item in info]
    read = {
        "string": ["GET", name], "hash": ["HGETALL", name], "list": ["LRANGE", name, "0", "-1"],
        "set": ["SMEMBERS", name], "zset": ["ZRANGE", name, "0", "-1", "WITHSCORES"],
    }[kind]  # fmt: skip
    found = client.call(*read)
    if kind == "hash":
        found = sorted(zip(found[::2], found[1::2]))
    return kind, sorted(found) if kind == "set" else found


@pytest.mark.parametrize("seed", range(2))
def test_values_move_to_redis_and_back(redis, savanna, seed):
    theirs, ours = Client(redis.port), Client(savanna.port)
    for client in (theirs, ours):
        client.call("FLUSHALL")
    for source, target in ((theirs, ours), (ours, theirs)):
        for name in fill(source, seed):
            payload = source.call("DUMP", name)
            assert target.call("RESTORE", name, 0, payload, "REPLACE") == "OK", name
            assert value(target, name) == value(source, name), name
        for client in (theirs, ours):
            client.call("FLUSHALL")


def test_smaller_lists_and_hashes_of_older_forms_are_read(redis, savanna):
    theirs, ours = Client(redis.port), Client(savanna.port)
    settings = [
        ["list-max-listpack-size", "1"], ["hash-max-listpack-entries", "0"], ["zset-max-listpack-entries", "0"], ["set-max-intset-entries", "0"],
        ["rdbcompression", "no"],
    ]  # fmt: skip
    before = {name: theirs.call("CONFIG", "GET", name)[1] for name, _ in settings}
    try:
        for name, setting in settings:
            assert theirs.call("CONFIG", "SET", name, setting) == "OK"
        for client in (theirs, ours):
            client.call("FLUSHALL")
        for name in fill(theirs, 7):
            assert ours.call("RESTORE", name, 0, theirs.call("DUMP", name)) == "OK", name
            assert value(ours, name) == value(theirs, name), name
    finally:
        for name, setting in before.items():
            theirs.call("CONFIG", "SET", name, setting)


def test_what_is_no_payload_changes_nothing_and_takes_no_memory(redis, savanna):
    theirs, ours = Client(redis.port), Client(savanna.port)
    chance = random.Random(3)
    for client in (theirs, ours):
        client.call("FLUSHALL")
    ours.call("SET", "kept", "value")
    for name in fill(theirs, 9):
        payload = theirs.call("DUMP", name)
        for _ in range(10):
            changed = bytearray(payload)
            for _ in range(chance.randint(1, 3)):
                changed[chance.randrange(len(changed) - 10)] = chance.randrange(256)
            sealed = bytes(changed[:-8]) + crc64(bytes(changed[:-8])).to_bytes(8, "little")
            reply = ours.call("RESTORE", "kept", 0, sealed)
            assert reply.startswith("BUSYKEY")
            # Whatever is right in form is a value, and all else is refused.
            reply = ours.call("RESTORE", "maybe", 0, sealed, "REPLACE")
            assert reply == "OK" or reply == "ERR Bad data format", reply
            if reply == "OK":
                value(ours, "maybe")
                again = ours.call("DUMP", "maybe")
                assert ours.call("RESTORE", "again", 0, again, "REPLACE") == "OK"
                assert value(ours, "again") == value(ours, "maybe")
        reply = ours.call("RESTORE", "maybe", 0, payload[:-1], "REPLACE")
        assert reply == Refused("ERR DUMP payload version or checksum are wrong")
    assert ours.call("GET", "kept") == b"value"


TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x95AC9329AC4BC9B5 if byte & 1 else 0)
    TABLE.append(byte)


def crc64(data):
    total = 0
    for byte in data:
        total = TABLE[(total ^ byte) & 0xFF] ^ total >> 8
    return total


def test_a_restored_key_expires_when_it_was_said(redis, savanna):
    for server in (redis, savanna):
        client = Client(server.port)
        client.call("FLUSHALL")
        client.call("SET", "a", "x")
        payload = client.call("DUMP", "a")
        assert client.call("RESTORE", "b", 100_000, payload) == "OK" and 0 < client.call("PTTL", "b") <= 100_000
        until = int(time.time() * 1000) + 100_000
        assert client.call("RESTORE", "c", until, payload, "ABSTTL") == "OK" and client.call("PEXPIRETIME", "c") == until
