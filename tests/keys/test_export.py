"""`savanna keys export`: the file is one that Redis and Savanna read."""

import json
import subprocess
import threading

import pytest

from conftest import THREADS, Redis, Server
from node import SAVANNA
from resp import Client
from test_import import assert_alike, import_keys
from test_payloads import fill

LIBRARY = '#!lua name=lib\nredis.register_function("f", function() return 7 end)'


def export(server, file, *options):
    arguments = [SAVANNA, "keys", "export", file, "--from", f"redis://127.0.0.1:{server.port}", "--output", "json", *options]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(params=THREADS, ids=lambda threads: f"{threads}-threads")
def source(request, tmp_path):
    (tmp_path / "source").mkdir()
    server = Server(tmp_path / "source", "--threads", request.param)
    client = Client(server.port)
    fill(client, 1)
    for number in range(2000):
        client.call("SET", f"many {number}", number)
    client.call("SET", "soon", "x", "PXAT", 4_000_000_000_123)
    client.call("SET", b"\x00\xff any \r\n bytes", "x")
    client.call("FUNCTION", "LOAD", LIBRARY)
    client.call("SELECT", 3)
    client.call("SET", "elsewhere", "x" * 100_000, "EXAT", 4_000_000_000)
    yield server
    server.kill()


def test_redis_and_savanna_read_the_file(source, tmp_path):
    client = Client(source.port)
    (tmp_path / "redis").mkdir()
    file = tmp_path / "redis" / "dump.rdb"
    done = export(source, file)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    client.call("SELECT", 3)
    count = client.call("DBSIZE")
    client.call("SELECT", 0)
    assert (told["keys"], told["libraries"], told["bytes"]) == (client.call("DBSIZE") + count, 1, file.stat().st_size)

    (tmp_path / "savanna").mkdir()
    redis, savanna = Redis("redis-server", tmp_path / "redis"), Server(tmp_path / "savanna", "--threads", 2)
    try:
        assert import_keys(savanna, file).returncode == 0
        for target in (redis, savanna):
            assert_alike(source, target)
            assert Client(target.port).call("FCALL", "f", 0) == 7
    finally:
        redis.kill()
        savanna.kill()


def test_a_file_that_is_there_is_left_and_a_server_that_is_not_is_told(source, tmp_path):
    file = tmp_path / "dump.rdb"
    file.write_text("mine")
    done = export(source, file)
    assert done.returncode == 2 and "expected the name of a new file" in done.stderr and file.read_text() == "mine"
    source.kill()
    done = export(source, tmp_path / "other.rdb")
    assert done.returncode != 0 and "Connection refused" in done.stderr
    assert not (tmp_path / "other.rdb").exists()
    source.start()


def test_keys_that_are_written_meanwhile_are_there_as_before_or_after(source, tmp_path):
    client, stop = Client(source.port), threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            client.call("SET", f"many {number % 2000}", number)
            client.call("DEL", f"gone {number % 100}")
            client.call("SET", f"gone {(number + 50) % 100}", number)

    writer = threading.Thread(target=write)
    writer.start()
    (tmp_path / "redis").mkdir()
    try:
        done = export(source, tmp_path / "redis" / "dump.rdb")
    finally:
        stop.set()
        writer.join()
    assert done.returncode == 0, done.stderr
    redis = Redis("redis-server", tmp_path / "redis")
    try:
        there = Client(redis.port)
        assert all(there.call("EXISTS", f"many {number}") for number in range(2000))
    finally:
        redis.kill()
