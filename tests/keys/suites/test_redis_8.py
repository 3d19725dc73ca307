"""Random commands about fields of hashes that expire, to Savanna and to a Redis 8, which has all of them."""

import platform

import pytest

from conftest import Redis, Server
from suites import FOLDER
from test_differential import ROUNDS, compare, hashes, keys, strings

BINARY = FOLDER / "redis-server"
# Nothing expires by itself meanwhile: the servers would not do it between the same two commands.
FAR = 4_000_000_000


def condition(w):
    return w.random.choice([[], [], ["NX"], ["XX"], ["GT"], ["LT"], ["x"]])


def counted(w, fields):
    """Fields with their number, which is now and then wrong."""
    return ["FIELDS", w.random.choice([len(fields)] * 9 + [len(fields) + 1, 0]), *fields]


def moment(w, unit):
    """When fields expire, as HGETEX and HSETEX are told."""
    return w.random.choice([
        [], ["PERSIST"], ["KEEPTTL"], ["EX", FAR], ["PX", FAR * 1000], ["EXAT", FAR + w.random.randint(0, 9)], ["PXAT", FAR * 1000],
        ["EXAT", "1"], ["PX", "0"], ["EX", "x"], ["EX", "-1"], [unit],
    ])  # fmt: skip


def expiring_fields(w):
    key, field = w.key(), w.field()
    fields = list(dict.fromkeys(w.fields()))
    pairs = [word for name in fields for word in (name, w.value())]
    seconds = w.random.choice([FAR, FAR + 1, 10_000_000, "0", "-1", "x", 2**62])
    at = w.random.choice([FAR, FAR + 1, FAR - 5, "1", "0", "-1", "x", 2**62])
    millis = w.random.choice([FAR * 1000, FAR * 1000 + 1, "0", "-5", "x", 2**62])
    return [str(word) for word in w.random.choice([
        ["HSET", key, field, w.value(), w.field(), w.value()], ["HSET", key, *pairs],
        ["HEXPIRE", key, seconds, *condition(w), *counted(w, fields)], ["HPEXPIRE", key, millis, *condition(w), *counted(w, fields)],
        ["HEXPIREAT", key, at, *condition(w), *counted(w, fields)], ["HPEXPIREAT", key, millis, *condition(w), *counted(w, fields)],
        ["HTTL", key, *counted(w, fields)], ["HPTTL", key, *counted(w, fields)], ["HEXPIRETIME", key, *counted(w, fields)],
        ["HPEXPIRETIME", key, *counted(w, fields)], ["HPERSIST", key, *counted(w, fields)], ["HGETDEL", key, *counted(w, fields)],
        ["HGETEX", key, *moment(w, "KEEPTTL"), *counted(w, fields)],
        ["HSETEX", key, *w.random.choice([[], ["FNX"], ["FXX"], ["FNX", "FXX"]]), *moment(w, "PERSIST"), *counted(w, fields)[:2], *pairs],
        ["HDEL", key, field], ["HGETALL", key], ["HLEN", key], ["COPY", key, w.key(), "REPLACE"], ["RENAME", key, w.key()], ["DEL", key],
        ["HINCRBY", key, field, w.integer()], ["HSETNX", key, field, w.value()], ["HTTL", key], ["HEXPIRE", key, "10", "FIELDS"],
    ])]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("threads", [1, 3], ids=["1-thread", "3-threads"])
def test_fields_expire_as_in_redis_8(tmp_path, threads, protocol):
    if not BINARY.exists() or platform.machine() != "x86_64":
        pytest.skip("Redis 8 is missing: run tools/install build test suites on an x86_64 machine")
    folders = [tmp_path / name for name in ("redis", "savanna")]
    for folder in folders:
        folder.mkdir()
    redis, savanna = Redis(BINARY, folders[0]), Server(folders[1], "--threads", threads)
    try:
        for seed in range(4 * ROUNDS):
            mixed = [expiring_fields] * 8 + [hashes, keys, strings]
            compare(redis, savanna, mixed, f"expiring {seed} {protocol}", protocol)
    finally:
        redis.kill()
        savanna.kill()
