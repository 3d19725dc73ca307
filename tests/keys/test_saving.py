"""`SAVE`, `BGSAVE` and `SYNC`: a file of one moment that Redis reads. A node without keys reads the file that it finds."""

import random
import shutil
import socket
import subprocess
import threading
import time

import pytest

from conftest import THREADS, Redis, Server
from resp import Client
from test_import import assert_alike
from test_payloads import fill

ACCOUNTS = 300
MONEY = 1000


@pytest.fixture(params=THREADS, ids=lambda threads: f"{threads}-threads")
def server(request, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    server = Server(folder, "--threads", request.param)
    yield server
    server.kill()


def file_of(server):
    return server.folder / "data" / "dump.rdb"


def redis_with(file, folder):
    folder.mkdir()
    shutil.copy(file, folder / "dump.rdb")
    redis = Redis("redis-server", folder)
    while Client(redis.port).call("PING") != "PONG":
        time.sleep(0.02)
    return redis


def figures(client):
    lines = client.call("INFO", "persistence").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def wait_for_save(client):
    deadline = time.monotonic() + 60
    while figures(client)["rdb_bgsave_in_progress"] != "0":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_redis_reads_what_was_saved(server, tmp_path):
    client = Client(server.port)
    fill(client, 1)
    client.call("SET", "soon", "x", "PXAT", 4_000_000_000_123)
    client.call("SELECT", 9)
    client.call("SET", "elsewhere", "x" * 300_000)
    client.call("SELECT", 0)
    client.call("FUNCTION", "LOAD", '#!lua name=lib\nredis.register_function("f", function() return 7 end)')
    began = int(time.time())
    assert client.call("SAVE") == "OK"
    assert client.call("LASTSAVE") >= began
    assert file_of(server).stat().st_mode & 0o077 == 0
    redis = redis_with(file_of(server), tmp_path / "redis")
    try:
        assert_alike(server, redis)
        assert Client(redis.port).call("FCALL", "f", 0) == 7
    finally:
        redis.kill()


def test_a_file_is_of_one_moment(server, tmp_path):
    client = Client(server.port)
    for number in range(ACCOUNTS):
        client.call("SET", f"account:{number}", MONEY)
        client.call("SET", f"filler:{number}", "x" * 30_000)
    ended = threading.Event()

    def transfer(seed):
        chance, other = random.Random(seed), Client(server.port)
        while not ended.is_set():
            giver, taker = chance.sample(range(ACCOUNTS), 2)
            amount = chance.randrange(50)
            other.call("MULTI")
            other.call("DECRBY", f"account:{giver}", amount)
            other.call("INCRBY", f"account:{taker}", amount)
            other.call("SET", f"filler:{chance.randrange(ACCOUNTS)}", "y" * 30_000)
            other.call("EXEC")

    threads = [threading.Thread(target=transfer, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for round in range(4):
            time.sleep(0.2)
            assert client.call("SAVE") == "OK"
            redis = redis_with(file_of(server), tmp_path / f"redis-{round}")
            try:
                names = [f"account:{number}" for number in range(ACCOUNTS)]
                amounts = [int(amount) for amount in Client(redis.port).call("MGET", *names)]
                assert sum(amounts) == ACCOUNTS * MONEY and set(amounts) != {MONEY}
                assert Client(redis.port).call("DBSIZE") == 2 * ACCOUNTS
            finally:
                redis.kill()
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_a_flush_while_all_is_saved_takes_nothing_from_the_file(server, tmp_path):
    client = Client(server.port)
    for number in range(2000):
        client.call("SET", f"key:{number}", "x" * 20_000)
    assert client.call("BGSAVE") == "Background saving started"
    assert client.call("FLUSHALL") == "OK"
    assert client.call("SET", "later", 1) == "OK"
    assert client.call("SWAPDB", 0, 1) == "OK"
    wait_for_save(client)
    redis = redis_with(file_of(server), tmp_path / "redis")
    try:
        assert Client(redis.port).call("DBSIZE") == 2000
        assert Client(redis.port).call("EXISTS", "later") == 0
    finally:
        redis.kill()


def test_figures_and_refusals(server):
    client = Client(server.port)
    client.call("SET", "a", 1)
    before = figures(client)
    assert (before["rdb_last_bgsave_status"], before["rdb_saves"], before["rdb_last_bgsave_time_sec"]) == ("ok", "0", "-1")
    assert before["rdb_changes_since_last_save"] == "1"
    assert client.call("BGSAVE", "SCHEDULE") in ("Background saving started", "Background saving scheduled")
    wait_for_save(client)
    after = figures(client)
    assert (after["rdb_saves"], after["rdb_last_bgsave_time_sec"], after["rdb_changes_since_last_save"]) == ("1", "0", "0")
    assert after["rdb_last_save_time"] == str(client.call("LASTSAVE"))
    for name in ("dir", "dbfilename"):
        assert "can't set protected config" in str(client.call("CONFIG", "SET", name, "/tmp/elsewhere"))
    assert client.call("CONFIG", "GET", "dir")[1] == str(server.folder / "data").encode()
    assert "not allowed inside a transaction" in str(transaction(client, "SAVE"))
    # Where the file cannot be written, that is said, and the server goes on.
    (server.folder / "data" / "dump.rdb").unlink()
    (server.folder / "data" / "dump.rdb").mkdir()
    assert "could not be written" in str(client.call("SAVE"))
    assert figures(client)["rdb_last_bgsave_status"] == "err"
    assert client.call("GET", "a") == b"1"
    assert not list((server.folder / "data").glob("dump.rdb.*"))


def transaction(client, *words):
    client.call("MULTI")
    reply = client.call(*words)
    client.call("DISCARD")
    return reply


def test_redis_cli_takes_a_file(server, tmp_path):
    client = Client(server.port)
    fill(client, 2)
    for number in range(300):
        client.call("SET", f"long:{number}", "x" * 50_000)
    file = tmp_path / "taken.rdb"
    done = subprocess.run(
        ["redis-cli", "-p", str(server.port), "--rdb", file], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not file_of(server).exists()
    redis = redis_with(file, tmp_path / "redis")
    try:
        assert_alike(server, redis)
    finally:
        redis.kill()


def test_psync_gives_all_keys_and_ends(server):
    client = Client(server.port)
    client.call("SET", "a", "x" * 1_000_000)
    with socket.create_connection(("127.0.0.1", server.port)) as replica:
        replica.sendall(b"PING\r\nREPLCONF capa eof capa psync2\r\nPSYNC ? -1\r\n")
        told = b""
        while part := replica.recv(1 << 20):
            told += part
    pong, ok, resync, length, rest = told.split(b"\r\n", 4)
    assert (pong, ok) == (b"+PONG", b"+OK")
    word, history, offset = resync.split(b" ")
    assert word == b"+FULLRESYNC" and len(history) == 40 and offset == b"0"
    assert length == b"$%d" % len(rest) and rest.startswith(b"REDIS0010") and rest[-9] == 255


@pytest.mark.parametrize("threads", [1, 3])
def test_a_node_without_keys_reads_the_file_of_a_redis_once(redis, tmp_path, threads):
    source = Client(redis.port)
    source.call("FLUSHALL")
    fill(source, 3)
    source.call("SET", "gone", "x", "PX", 1)
    source.call("SELECT", 2)
    source.call("SET", "elsewhere", "x")
    source.call("SAVE")
    folder = tmp_path / "server"
    (folder / "data").mkdir(parents=True)
    directory = source.call("CONFIG", "GET", "dir")[1].decode()
    shutil.copy(f"{directory}/dump.rdb", folder / "data" / "dump.rdb")
    server = Server(folder, "--threads", threads)
    try:
        assert_alike(redis, server)
        assert int(figures(Client(server.port))["rdb_last_load_keys_loaded"]) > 10
        assert Client(server.port).call("EXISTS", "gone") == 0
        Client(server.port).call("SET", "changed", "here")
        client = Client(server.port)
        client.call("SELECT", 2)
        assert client.call("DEL", "elsewhere") == 1
        server.kill()
        server.start()
        assert Client(server.port).call("GET", "changed") == b"here"
        assert figures(Client(server.port))["rdb_last_load_keys_loaded"] == "0"
        client = Client(server.port)
        client.call("SELECT", 2)
        assert client.call("EXISTS", "elsewhere") == 0
    finally:
        server.kill()


def test_a_damaged_file_stops_the_start_and_nothing_of_it_is_kept(redis, tmp_path):
    source = Client(redis.port)
    fill(source, 4)
    source.call("SAVE")
    directory = source.call("CONFIG", "GET", "dir")[1].decode()
    file = tmp_path / "data" / "dump.rdb"
    file.parent.mkdir()
    content = bytearray(open(f"{directory}/dump.rdb", "rb").read())
    content[-12] ^= 1
    file.write_bytes(content)
    refusal = Server.refusal(tmp_path)
    assert "dump.rdb" in refusal and "checksum" in refusal
    file.unlink()
    server = Server(tmp_path)
    try:
        assert Client(server.port).call("DBSIZE") == 0
    finally:
        server.kill()
