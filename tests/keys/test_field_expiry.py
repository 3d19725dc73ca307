"""Fields of hashes that expire, as in Redis 7.4: over the wire, out of the log, in files. Debian's Redis (7.0) has none to compare with: `suites/test_redis_8.py` does."""

import subprocess
import time

import pytest

from conftest import THREADS, Server
from node import SAVANNA
from resp import Client


@pytest.fixture(params=THREADS, ids=lambda threads: f"{threads}-threads")
def server(request, tmp_path):
    server = Server(tmp_path, "--threads", request.param)
    yield server
    server.kill()


def test_fields_are_gone_in_time_and_their_hash_with_the_last(server):
    client, listener = Client(server.port), Client(server.port)
    client.call("CONFIG", "SET", "notify-keyspace-events", "KEA")
    listener.call("PSUBSCRIBE", "__keyspace@0__:h")
    client.call("HSET", "h", "stays", 1, "goes", 2, "goes too", 3)
    assert client.call("HEXPIRE", "h", 100, "FIELDS", 2, "goes", "goes too") == [1, 1]
    assert 0 < client.call("HPTTL", "h", "FIELDS", 1, "goes")[0] <= 100_000
    assert client.call("HPEXPIRE", "h", 20, "FIELDS", 2, "goes", "goes too") == [1, 1]
    time.sleep(0.04)
    assert client.call("HGETALL", "h") == [b"stays", b"1"]
    assert client.call("HLEN", "h") == 1
    assert client.call("HPEXPIRE", "h", 20, "FIELDS", 1, "stays") == [1]
    time.sleep(0.04)
    assert client.call("EXISTS", "h") == 0
    heard = [listener.receive()[3] for _ in range(7)]
    assert heard == [b"hset", b"hexpire", b"hexpire", b"hexpired", b"hexpire", b"hexpired", b"del"]
    figures = client.call("INFO", "stats").decode()
    assert "expired_subkeys:3\r\n" in figures


def test_times_of_fields_are_in_the_log(server):
    client = Client(server.port)
    client.call("CONFIG", "SET", "appendfsync", "always")
    client.call("HSET", "h", "a", 1, "b", 2, "c", 3, "d", 4)
    far = int(time.time() * 1000) + 100_000
    client.call("HPEXPIREAT", "h", far, "FIELDS", 3, "a", "b", "c")
    client.call("HPERSIST", "h", "FIELDS", 1, "b")
    client.call("HSET", "h", "c", 5)
    client.call("HPEXPIRE", "h", 100, "FIELDS", 1, "d")
    client.call("HSETEX", "only", "PX", 50, "FIELDS", 1, "x", "y")
    server.kill()
    time.sleep(0.2)
    server.start()
    client = Client(server.port)
    assert client.call("HPEXPIRETIME", "h", "FIELDS", 4, "a", "b", "c", "d") == [far, -1, -1, -2]
    assert client.call("EXISTS", "only") == 0
    assert client.call("BGREWRITEAOF") == "Background append only file rewriting started"
    client.call("SET", "other", 1)
    deadline = time.monotonic() + 60
    while "aof_rewrite_in_progress:1" in client.call("INFO", "persistence").decode():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # The beginning goes when what was written is durable.
    time.sleep(0.3)
    server.kill()
    server.start()
    assert Client(server.port).call("HPEXPIRETIME", "h", "FIELDS", 4, "a", "b", "c", "d") == [far, -1, -1, -2]


def test_transactions_scripts_and_other_names_keep_the_times(server):
    client = Client(server.port)
    far = int(time.time()) + 1000
    client.call("HSET", "h", "a", 1, "b", 2)
    client.call("MULTI")
    client.call("HEXPIREAT", "h", far, "FIELDS", 1, "a")
    client.call("HEXPIRETIME", "h", "FIELDS", 2, "a", "b")
    client.call("COPY", "h", "copy")
    client.call("RENAME", "h", "renamed")
    assert client.call("EXEC")[:2] == [[1], [far, -1]]
    for name in ("copy", "renamed"):
        assert client.call("HEXPIRETIME", name, "FIELDS", 2, "a", "b") == [far, -1]
    script = "return redis.call('HEXPIRETIME', KEYS[1], 'FIELDS', 1, 'a')"
    assert client.call("EVAL", script, 1, "copy") == [far]
    payload = client.call("DUMP", "copy")
    assert client.call("RESTORE", "restored", 0, payload) == "OK"
    assert client.call("HEXPIRETIME", "restored", "FIELDS", 2, "a", "b") == [far, -1]
    assert payload[0] == 24 and payload[-10:-8] == b"\x0c\x00", "Redis 7.4"
    assert client.call("HDEL", "copy", "a") == 1
    assert client.call("DUMP", "copy")[-10:-8] == b"\x0a\x00", "Redis 7.0"


def test_files_have_the_times_of_fields(server, tmp_path):
    client = Client(server.port)
    far = int(time.time()) + 1000
    for number in range(300):
        client.call("HSETEX", f"h{number}", "EXAT", far + number, "FIELDS", 1, "a", number)
        client.call("HSET", f"h{number}", "b", number)
    assert client.call("SAVE") == "OK"
    file = server.folder / "data" / "dump.rdb"
    assert file.read_bytes().startswith(b"REDIS0012")
    (tmp_path / "other" / "data").mkdir(parents=True)
    file.rename(tmp_path / "other" / "data" / "dump.rdb")
    other = Server(tmp_path / "other", "--threads", 2)
    try:
        for number in (0, 17, 299):
            expected = [far + number, -1]
            assert Client(other.port).call("HEXPIRETIME", f"h{number}", "FIELDS", 2, "a", "b") == expected
    finally:
        other.kill()


def test_a_key_with_replicas_has_no_fields_that_expire(tmp_path):
    server = Server(tmp_path, "--threads", 3)
    try:
        client = Client(server.port)
        client.call("HSET", "copied", "a", 1)
        client.call("SAV.REPLICATE", "copied", "FULL")
        client.call("HSETEX", "expiring", "EX", 1000, "FIELDS", 1, "a", 1)
        for words in (
            ("HEXPIRE", "copied", 10, "FIELDS", 1, "a"),
            ("HSETEX", "copied", "EX", 10, "FIELDS", 1, "a", 1),
            ("HGETEX", "copied", "EX", 10, "FIELDS", 1, "a"),
            ("SAV.REPLICATE", "expiring", "FULL"),
            ("RENAME", "expiring", "copied"),
            ("COPY", "expiring", "copied", "REPLACE"),
            ("RESTORE", "copied", 0, client.call("DUMP", "expiring"), "REPLACE"),
        ):
            assert "cannot have fields that expire" in str(client.call(*words)), words
        assert client.call("HTTL", "expiring", "FIELDS", 1, "a")[0] > 0
        assert client.call("HTTL", "copied", "FIELDS", 1, "a") == [-1]
    finally:
        server.kill()


def test_export_and_import_bring_the_times_of_fields(server, tmp_path):
    client = Client(server.port)
    far = int(time.time()) + 1000
    client.call("HSETEX", "h", "EXAT", far, "FIELDS", 1, "a", 1)
    file, url = tmp_path / "exported.rdb", f"redis://127.0.0.1:{server.port}"
    subprocess.run([SAVANNA, "keys", "export", file, "--from", url], check=True, timeout=60)
    assert file.read_bytes().startswith(b"REDIS0012")
    client.call("FLUSHALL")
    subprocess.run([SAVANNA, "keys", "import", file, "--to", url], check=True, timeout=60)
    assert client.call("HEXPIRETIME", "h", "FIELDS", 1, "a") == [far]
