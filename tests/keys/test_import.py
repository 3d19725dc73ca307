"""`savanna keys import`: a Redis' file, and a Redis that goes on, come over whole."""

import json
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest

from conftest import Redis, Server
from node import SAVANNA
from resp import Client
from test_payloads import fill, value

# Of Redis 5, 6 and 7, as files/make.py writes them.
FILES = sorted((pathlib.Path(__file__).parent / "files").glob("*.rdb"))


def import_keys(server, source, *options, **more):
    arguments = [SAVANNA, "keys", "import", source, "--to", f"redis://127.0.0.1:{server.port}", "--output", "json", *options]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False, **more)


def everything(client, database=0):
    client.call("SELECT", database)
    names = sorted(client.call("KEYS", "*"))
    return {name: (value(client, name), client.call("PEXPIRETIME", name)) for name in names}


@pytest.fixture
def source(tmp_path):
    """A Redis with keys of all types in two databases, some of which expire."""
    (tmp_path / "redis").mkdir()
    server = Redis("redis-server", tmp_path / "redis")
    client = Client(server.port)
    fill(client, 1)
    client.call("SET", "soon", "x", "PXAT", 4_000_000_000_123)
    client.call("SET", b"\x00\xff any \r\n bytes", "x")
    client.call("SELECT", 3)
    client.call("SET", "elsewhere", "x" * 100_000, "EXAT", 4_000_000_000)
    yield server
    server.kill()


@pytest.fixture
def target(tmp_path):
    (tmp_path / "savanna").mkdir()
    server = Server(tmp_path / "savanna", "--threads", 2)
    yield server
    server.kill()


def assert_alike(source, target):
    theirs, ours = Client(source.port), Client(target.port)
    for database in (0, 3):
        expected, found = everything(theirs, database), everything(ours, database)
        assert list(expected) == list(found)
        for name in expected:
            assert expected[name] == found[name], name


def test_a_file_comes_over_whole(source, target, tmp_path):
    Client(source.port).call("SAVE")
    file = tmp_path / "redis" / "dump.rdb"
    done = import_keys(target, file)
    assert done.returncode == 0, done.stderr
    count = len(everything(Client(source.port))) + 1
    assert json.loads(done.stdout)["keys"] == count
    assert_alike(source, target)

    # Not among keys that are there, unless that is wanted.
    refused = import_keys(target, file)
    assert refused.returncode == 2
    assert f"has {count} keys already" in refused.stderr
    Client(target.port).call("SET", "soon", "changed")
    assert import_keys(target, file, "--replace").returncode == 0
    assert_alike(source, target)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_each_redis_is_read_as_redis_reads_it(target, tmp_path, file):
    for folder in ("redis", "start/data"):
        (tmp_path / folder).mkdir(parents=True)
        shutil.copy(file, tmp_path / folder / "dump.rdb")
    source = Redis("redis-server", tmp_path / "redis")
    try:
        assert Client(source.port).call("DBSIZE") > 30
        assert import_keys(target, file).returncode == 0
        assert_alike(source, target)
        started = Server(tmp_path / "start", "--threads", 2)
        try:
            assert_alike(source, started)
        finally:
            started.kill()
    finally:
        source.kill()


def changed(whole, at):
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def test_a_file_that_is_cut_or_changed_is_not_taken_for_whole(source, target, tmp_path):
    Client(source.port).call("SAVE")
    whole = (tmp_path / "redis" / "dump.rdb").read_bytes()
    for bytes_, reason in [
        (whole[:-100], "cannot be read"),
        (changed(whole, whole.index(b"Palermo")), "checksum"),
        (b"PK\x03\x04 something else", "begins with"),
        (b"REDIS0099" + whole[9:], "version 99"),
    ]:
        file = tmp_path / "file"
        file.write_bytes(bytes_)
        done = import_keys(target, file, "--replace")
        assert done.returncode == 1 and reason in done.stderr, done.stderr
    assert import_keys(target, tmp_path / "absent").returncode == 1


@pytest.mark.parametrize("is_diskless", ["yes", "no"])
def test_a_redis_that_goes_on_comes_over_without_a_gap(source, target, is_diskless, tmp_path):
    theirs = Client(source.port)
    theirs.call("CONFIG", "SET", "repl-diskless-sync", is_diskless)
    theirs.call("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    stop, seen = threading.Event(), []

    def write():
        client, chance = Client(source.port), random.Random(2)
        while not stop.is_set():
            number = chance.randrange(50)
            client.call("INCR", f"counter:{number}")
            client.call("RPUSH", "log", len(seen))
            client.call("HSET", f"h:{number}", "f", len(seen))
            client.call("XADD", "events", "*", "n", len(seen))
            client.call("SET", f"brief:{number}", "x", "EX", 1000)
            client.call("DEL", f"brief:{chance.randrange(50)}")
            client.call("EVAL", "redis.call('SADD', KEYS[1], ARGV[1]) redis.call('SPOP', KEYS[1])", 1, "pool", len(seen))
            seen.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    arguments = [SAVANNA, "keys", "import", f"redis://127.0.0.1:{source.port}", "--to", f"redis://127.0.0.1:{target.port}"]
    log = open(tmp_path / "import.log", "w+")
    process = subprocess.Popen([*arguments, "--follow", "--output", "json"], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        deadline = time.monotonic() + 60
        while "To change over" not in (tmp_path / "import.log").read_text():
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "import.log").read_text()
            time.sleep(0.05)
        before = len(seen)
        while len(seen) < before + 200:
            time.sleep(0.05)
    finally:
        stop.set()
        writer.join()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    told = (tmp_path / "import.log").read_text()
    assert process.returncode == 0, told
    result = json.loads(out)
    assert result["missing_bytes"] == 0 and result["refused"] == 0 and result["commands"] > 1000
    assert Client(target.port).call("LRANGE", "log", 0, -1) == [str(n).encode() for n in range(len(seen))]
    assert_alike(source, target)


def test_what_is_asked_for_wrongly_says_what_is_wanted(target, tmp_path):
    for source, options, reason in [
        (tmp_path / "f", ["--follow"], "--follow is for a Redis that goes on"),
        ("http://example.org", [], "expected redis://"),
        ("redis://127.0.0.1:1", [], "no node answers at redis://127.0.0.1:1"),
    ]:
        done = import_keys(target, source, *options)
        assert done.returncode in (2, 3) and reason in done.stderr, done.stderr


def test_a_password_is_used_and_not_shown(source, target):
    Client(source.port).call("CONFIG", "SET", "requirepass", "s3cret/x")
    try:
        wrong = import_keys(target, f"redis://:other@127.0.0.1:{source.port}")
        assert wrong.returncode == 1 and "WRONGPASS" in wrong.stderr and "other" not in wrong.stderr
        done = import_keys(target, f"redis://:s3cret%2Fx@127.0.0.1:{source.port}")
        assert done.returncode == 0 and "s3cret" not in done.stdout + done.stderr, done.stderr
    finally:
        client = Client(source.port)
        client.call("AUTH", "s3cret/x")
        client.call("CONFIG", "SET", "requirepass", "")
    assert_alike(source, target)
