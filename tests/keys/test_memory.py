"""Commands with their largest arguments in a process that may not take much memory: each is answered or refused, none ends it."""

import pathlib
import resource
import shutil
import tempfile

import pytest

from conftest import THREADS, Server
from resp import Client, Refused

LONG = 400 << 20
LARGEST, SMALLEST = 2**63 - 1, -(2**63)


class Narrow(Server):
    """A server with a limited address space: a node reserves almost two GiB of it at the start."""

    limit = 4 << 30

    def start(self):
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (self.limit, before[1]))
        try:
            super().start()
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="module", params=THREADS, ids=lambda threads: f"{threads}-threads")
def narrow(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("narrow")
    server = Narrow(folder, "--threads", request.param)
    yield server
    server.kill()
    # Its log is long.
    shutil.rmtree(folder / "data")


@pytest.fixture
def client(narrow):
    client = Client(narrow.port)
    client.socket.settimeout(120)
    assert client.call("FLUSHALL") == "OK"
    yield client
    other = Client(narrow.port)
    assert other.call("PING") == "PONG"
    assert other.call("FLUSHALL") == "OK"


def is_refused(reply):
    return isinstance(reply, Refused) and (reply.startswith("OOM ") or "too long" in reply or "longer than" in reply)


def answered_or_refused(client, *words):
    """Says whether it was refused. A server that has ended hangs up."""
    reply = client.call(*words)
    assert not isinstance(reply, Refused) or is_refused(reply), (words, reply)
    return isinstance(reply, Refused)


def test_strings_that_are_too_many_are_refused(client):
    assert any([answered_or_refused(client, "SETRANGE", f"{{t}}{number}", LONG, "x") for number in range(12)])
    for words in (["APPEND", "{t}0", "x"], ["COPY", "{t}0", "{t}c"], ["BITOP", "NOT", "{t}n", "{t}0"], ["DUMP", "{t}0"],
                  ["BITOP", "OR", "{t}n", "{t}0", "{t}1"], ["SETBIT", "{t}new", 8 * LONG, 1], ["GETSET", "{t}1", "x"]):  # fmt: skip
        answered_or_refused(client, *words)


def test_replies_that_are_too_long_are_refused(client):
    assert client.call("SETRANGE", "{t}a", 50 << 20, "x") == (50 << 20) + 1
    assert answered_or_refused(client, "MGET", *["{t}a"] * 100)
    client.call("MULTI")
    for _ in range(100):
        client.call("GET", "{t}a")
    assert answered_or_refused(client, "EXEC")


def test_copies_in_transactions_and_scripts_are_refused(client):
    assert client.call("SETRANGE", "{t}a", 100 << 20, "x") == (100 << 20) + 1
    client.call("MULTI")
    for number in range(40):
        client.call("COPY", "{t}a", f"{{t}}{number}")
    assert any(map(is_refused, client.call("EXEC")))
    script = "for i = 1, 40 do redis.call('COPY', KEYS[1], '{t}s' .. i) end"
    assert answered_or_refused(client, "EVAL", script, 1, "{t}a")


@pytest.mark.parametrize("function", ["cjson.encode", "cmsgpack.pack"])
def test_what_a_script_encodes_takes_no_more_than_a_script_may(client, function):
    # Each table has the one before many times.
    script = f"local t = {{}} for i = 1, 15 do local u = {{}} for j = 1, 8 do u[j] = t end t = u end return {function}(t)"
    refusal = client.call("EVAL", script, 0)
    assert isinstance(refusal, Refused) and ("not enough memory" in refusal or "script-time-limit" in refusal), refusal


def test_sort_gets_no_more_than_memory(client):
    assert client.call("SETRANGE", "w_1", 50_000_000, "x") == 50_000_001
    client.call("RPUSH", "l", *["1"] * 100)
    for words in (["GET", "w_*"], ["GET", "w_*", "STORE", "d"], ["BY", "w_*", "ALPHA"]):
        assert answered_or_refused(client, "SORT", "l", *words), words


def test_counts_by_chance_are_refused_before_memory_ends(client):
    client.call("SADD", "s", "x" * 1_000_000)
    client.call("HSET", "h", "x" * 1_000_000, "y" * 1_000_000)
    client.call("ZADD", "z", 1, "x" * 1_000_000)
    for words in (["SRANDMEMBER", "s"], ["HRANDFIELD", "h"], ["ZRANDMEMBER", "z"]):
        assert answered_or_refused(client, *words, -100_000), words


def table():
    """Each command with its least number of words, from the server."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(pathlib.Path(folder), "--threads", 1)
        commands = Client(server.port).call("COMMAND")
        server.kill()
    return sorted((entry[0].decode(), abs(entry[1])) for entry in commands)


def test_every_command_is_answered_with_the_largest_numbers(client, narrow):
    numbers = [LARGEST, SMALLEST, LARGEST + 1, 2**32, -(2**31), 2**64 - 1]
    ends = {"quit", "reset", "subscribe", "psubscribe", "monitor", "shutdown", "auth", "hello", "client", "acl", "config", "sync", "psync"}
    names = [(name, least) for name, least in table() if name not in ends and not name.startswith("b")]
    assert len(names) > 120
    client.call("SET", "{t}string", "12")
    for name, least in names:
        prepared = (["SET", "{t}string", "12"], ["RPUSH", "{t}list", "a"], ["SADD", "{t}set", "a"], ["HSET", "{t}hash", "a", 1],
                    ["ZADD", "{t}zset", 1, "a"])  # fmt: skip
        for key in ("{t}string", "{t}list", "{t}set", "{t}hash", "{t}zset", "1"):
            for words in prepared:
                client.call(*words)
            other = Client(narrow.port)
            other.socket.settimeout(60)
            for number in numbers:
                for count in range(least, least + 3):
                    other.send(name, *([key, *[number] * count][: count - 1]))
            for _ in range(3 * len(numbers)):
                other.receive()
            other.close()
            assert client.call("PING") == "PONG", (name, key)


def test_a_list_loses_half_of_its_elements_in_one_pass(narrow, client):
    for _ in range(300):
        client.call("RPUSH", "{t}l", *["a", "b"] * 1_000)
    # One by one, each would move those behind it: 300,000 times some megabytes.
    assert client.call("LREM", "{t}l", 0, "a") == 300_000
    assert client.call("LREM", "{t}l", -10, "b") == 10
    assert client.call("LLEN", "{t}l") == 299_990
    assert client.call("LPOS", "{t}l", "a") is None


class LessNarrow(Narrow):
    limit = 5 << 30


def test_a_log_is_rewritten_only_as_far_as_there_is_memory(tmp_path):
    server = LessNarrow(tmp_path, "--threads", 1)
    try:
        client = Client(server.port)
        client.socket.settimeout(120)
        for count in range(1, 15):
            # The log becomes long enough to be rewritten, with the whole list in one piece.
            assert client.call("RPUSH", "list", "x" * 100_000_000) == count
        assert client.call("LLEN", "list") == 14
    finally:
        server.kill()
        shutil.rmtree(tmp_path / "data")
