"""A full disk: writes are refused with the cause, reads go on, and writes come back by themselves when there is space."""

import errno
import subprocess
import time

import psycopg
import pytest
import redis

from node import Node

SIZE = "48m"
# Long enough for anything that comes at all.
PATIENCE = 60


@pytest.fixture
def small_disk(tmp_path):
    """The data directory of a node, on a file system that is soon full."""
    disk = tmp_path / "data"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("a file system can only be mounted by root")
    yield disk
    subprocess.run(["umount", disk], check=True)


def fill(disk):
    """Takes all the space that there is, also what is given up within a moment."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        length = -1
        while length < file.tell():
            length = file.tell()
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as error:
                    assert error.errno == errno.ENOSPC
            time.sleep(0.5)
    return filler


def tenant(node):
    return psycopg.connect(f"host=127.0.0.1 port={node.ports['tenants']} user=postgres dbname=postgres", autocommit=True)


def insert(connection, told):
    connection.execute("INSERT INTO t VALUES (%s, %s)", (len(told), "x" * 1000))
    told.append(len(told))


def set_next(client, told):
    assert client.set(f"key:{len(told)}", "x" * 1000)
    told.append(len(told))


def refused(write, *arguments):
    """Writes until it is refused, and says why."""
    for _ in range(1000):
        try:
            write(*arguments)
        except (redis.ResponseError, psycopg.Error) as error:
            return error
    raise AssertionError("a full disk took 1,000 writes")


def taken(write, *arguments):
    """Writes when that is possible again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return write(*arguments)
        except (redis.ResponseError, psycopg.Error):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_reads_go_on_and_writes_come_back(small_disk, tmp_path):
    node = Node(tmp_path)
    keys, rows = [], []
    try:
        with redis.Redis(port=node.ports["keys"]) as client, tenant(node) as connection:
            client.config_set("appendfsync", "always")
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, filling text)")
            set_next(client, keys)
            insert(connection, rows)
            filler = fill(small_disk)

            why = str(refused(set_next, client, keys))
            assert "MISCONF" in why and "No space left on device" in why, why
            why = refused(insert, connection, rows)
            assert why.sqlstate == "53100" and "No space left on device" in str(why), why
            assert client.get(f"key:{len(keys) - 1}") == b"x" * 1000
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (len(rows),)
            assert client.ping() and node.process.poll() is None

            filler.unlink()
            taken(set_next, client, keys)
            taken(insert, connection, rows)
        node.kill()
        node = Node(tmp_path)
        with redis.Redis(port=node.ports["keys"]) as client, tenant(node) as connection:
            assert client.dbsize() >= len(keys) and client.exists(*(f"key:{at}" for at in keys)) == len(keys)
            assert {id for (id,) in connection.execute("SELECT id FROM t")} >= set(rows)
    finally:
        node.kill()


def answered(client, *words):
    """What a request is answered at once; a refusal as its text."""
    try:
        return client.execute_command(*words)
    except redis.ResponseError as error:
        return str(error)


@pytest.mark.parametrize("level", ["always", "everysec"])
def test_a_long_write_is_refused_before_it_is_made_and_nobody_waits(small_disk, tmp_path, level):
    """Of what the disk has no space for nothing is done, so that whoever reads need not wait for it."""
    node = Node(tmp_path)
    try:
        client = redis.Redis(port=node.ports["keys"], socket_timeout=10, retry=None)
        client.config_set("appendfsync", level)
        for at in range(1, 30):
            client.set(f"{{t}}{at}", "short")
        client.rpush("{t}list", *["e" * 1000] * 3000)
        client.sadd("{t}set", *(f"{at:01000}" for at in range(3000)))
        client.zadd("{t}zset", {f"{at:01000}": at for at in range(3000)})
        for first in range(0, 40_000, 1_000):
            client.mset({f"many:{at:0100}": "" for at in range(first, first + 1_000)})
        filler = fill(small_disk)
        script = "redis.call('SET', KEYS[1], string.rep('s', 3000000)) return 1"
        writes = [
            ("SET", "{t}1", "x" * 2_000_000), ("APPEND", "{t}2", "x" * 3_000_000), ("RPUSH", "{t}list", *["y" * 1000] * 2000),
            ("COPY", "{t}list", "{t}copy"), ("RENAME", "{t}list", "{t}renamed"), ("SUNIONSTORE", "{t}union", "{t}set"),
            ("ZRANGESTORE", "{t}range", "{t}zset", 0, -1), ("ZUNIONSTORE", "{t}zunion", 1, "{t}zset"), ("SPOP", "{t}set", 3000),
            ("SORT", "{t}list", "BY", "nosort", "STORE", "{t}sorted"), ("ZREMRANGEBYRANK", "{t}zset", 0, -1), ("MOVE", "{t}list", 1),
            ("EVAL", script, 1, "{t}3"), ("MSET", *sum(((f"{{t}}{at}", "x" * 100_000) for at in range(4, 24)), ())),
        ]  # fmt: skip
        begun = time.monotonic()
        for words in writes:
            answer = answered(client, *words)
            assert "MISCONF" in str(answer) and "No space left on device" in str(answer), (words[:2], answer)
            assert client.llen("{t}list") == client.scard("{t}set") == client.zcard("{t}zset") == 3000
            assert client.get("{t}1") == b"short"
        transaction = client.pipeline(transaction=True)
        for at in range(4, 24):
            transaction.set(f"{{t}}{at}", "x" * 100_000)
        with pytest.raises(redis.exceptions.ExecAbortError, match="MISCONF"):
            transaction.execute()
        assert client.mget([f"{{t}}{at}" for at in range(1, 30)]) == [b"short"] * 29
        assert time.monotonic() - begun < PATIENCE
        filler.unlink()
        assert taken(client.set, "{t}1", "x" * 2_000_000)
        assert client.get("{t}1") == b"x" * 2_000_000
        node.kill()
        node = Node(tmp_path)
        with redis.Redis(port=node.ports["keys"]) as client:
            assert client.get("{t}1") == b"x" * 2_000_000 and client.get("{t}2") == b"short"
            assert client.llen("{t}list") == client.scard("{t}set") == client.zcard("{t}zset") == 3000
            # However many keys go, it is one short record, for which there is space.
            filler = fill(small_disk)
            assert "MISCONF" in str(answered(client, "SET", "{t}1", "x" * 2_000_000))
            assert client.flushall() is True
            filler.unlink()
        node.kill()
        node = Node(tmp_path)
        with redis.Redis(port=node.ports["keys"]) as client:
            assert client.dbsize() == 0
    finally:
        node.kill()


def test_a_long_commit_is_refused_in_whole_and_nobody_waits(small_disk, tmp_path):
    """What the log has no space for is not done, also where little is asked for before: whoever reads the table need not wait."""
    node = Node(tmp_path)
    many = "INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(%s, %s) g"
    try:
        with tenant(node) as connection, tenant(node) as other:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, filling text)")
            connection.execute(many, (1, 10))
            filler = fill(small_disk)
            begun = time.monotonic()
            for first in (1_000, 10_000):
                with pytest.raises(psycopg.errors.DiskFull, match="No space left on device"):
                    connection.execute(many, (first, first + 3_000))
                assert other.execute("SELECT count(*) FROM t").fetchone() == (10,)
            with pytest.raises(psycopg.errors.DiskFull), connection.transaction():
                for first in range(20_000, 24_000, 100):
                    connection.execute(many, (first, first + 99))
            assert other.execute("SELECT count(*), max(id) FROM t").fetchone() == (10, 10)
            assert time.monotonic() - begun < PATIENCE
            filler.unlink()
            taken(connection.execute, many, (1_000, 4_000))
        node.kill()
        node = Node(tmp_path)
        with tenant(node) as connection:
            assert connection.execute("SELECT count(*), max(id) FROM t").fetchone() == (3_011, 4_000)
    finally:
        node.kill()
