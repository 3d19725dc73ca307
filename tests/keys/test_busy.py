"""While a script runs for long, others hear that the server is there and busy, and can end the script."""

import threading
import time
from contextlib import contextmanager

import pytest

from resp import Client, Refused


@contextmanager
def running(savanna, script, *keys, limit="600000"):
    """A script that runs in a thread of its own, with a list of what became of it."""
    client, outcome = Client(savanna.port), []
    client.socket.settimeout(660)
    client.call("CONFIG", "SET", "lua-time-limit", "100", "script-time-limit", limit)
    thread = threading.Thread(target=lambda: outcome.append(client.call("EVAL", script, len(keys), *keys)))
    thread.start()
    try:
        yield thread, outcome
    finally:
        killer = Client(savanna.port)
        while thread.is_alive():
            killer.call("SCRIPT", "KILL")
            thread.join(0.1)
        Client(savanna.port).call("CONFIG", "SET", "lua-time-limit", "5000", "script-time-limit", "5000")


def becomes(condition):
    for _ in range(600):
        if condition():
            return True
        time.sleep(0.1)
    return False


def is_busy(reply):
    return isinstance(reply, Refused) and reply.startswith("BUSY ")


LONG = "local s = string.rep('a', 50000000) "
SLOW = {
    "instructions": "while true do end",
    "commands": "while true do redis.call('GET', KEYS[1]) end",
    "patterns": "return (string.rep('a', 30000)):find('.-.-.-.-b')",
    "handlers": "xpcall(function() while true do end end, function() while true do end end)",
    "handlers that call each other": "local function f() return xpcall(f, f) end while true do pcall(f) end",
    # A few steps, of which each takes long.
    "repeated texts": "while true do local t = string.rep('abc', 20000000) end",
    "formatted texts": LONG + "while true do local t = string.format('%s!', s) end",
    "quoted texts": LONG + "while true do local t = string.format('%q', s) end",
    "parts of texts": LONG + "while true do local t = s:sub(2) end",
    "joined texts": LONG + "while true do local t = table.concat({s, '!'}) end",
    "texts behind each other": LONG + "while true do local t = s .. 'x' end",
    "compared texts": LONG + "local t, u = s .. 'x', s .. 'y' while t < u do end",
    "classes": LONG + "while true do s:match('^a*$') end",
    "encoded texts": LONG + "while true do local t = cjson.encode(s) end",
    "decoded texts": LONG + "s = '\"' .. s .. '\"' while true do local t = cjson.decode(s) end",
    "packed texts": LONG + "while true do local t = cmsgpack.pack(s) end",
    "digests": LONG + "while true do local t = redis.sha1hex(s) end",
    # A list of lists that are the same, and so on: nobody could read it to its end.
    "replies": "local t = {} for _ = 1, 60 do t = {t, t} end return t",
}


@pytest.mark.parametrize("script", SLOW.values(), ids=SLOW)
def test_others_are_answered_and_can_end_the_script(savanna, script):
    early, collecting = Client(savanna.port), Client(savanna.port)
    early.call("FLUSHALL")
    early.call("SET", "key", "value")
    collecting.call("MULTI")
    with running(savanna, script, "key") as (thread, outcome):
        assert becomes(lambda: is_busy(early.call("GET", "key")))
        # On each thread, also for clients that come now.
        clients = [early] + [Client(savanna.port) for _ in range(6)]
        answers = [client.call("PING") for client in clients]
        # Those of the script's thread; no other one is busy.
        assert any(map(is_busy, answers)) and all(is_busy(answer) or answer == "PONG" for answer in answers)
        for client in clients:
            assert b"connected_clients:" in client.call("INFO")
            assert client.call("CLIENT", "SETNAME", "x") == "OK"
            assert is_busy(client.call("SET", "key", "other"))
        # Its thread may be another one.
        collects = collecting.call("GET", "key") == "QUEUED"
        assert clients[-1].call("SCRIPT", "KILL") == "OK"
        thread.join(60)
        assert outcome and "killed by user" in outcome[0], outcome
    assert collecting.call("EXEC") == [b"value"] if collects else collecting.call("EXEC").startswith("EXECABORT")
    assert early.call("GET", "key") == b"value"
    for client in clients:
        assert client.call("GET", "key") == b"value"
        assert client.call("SCRIPT", "KILL").startswith("NOTBUSY")


def test_a_script_over_keys_of_several_threads_lets_others_be_answered(savanna):
    client = Client(savanna.port)
    keys = [f"key:{number}" for number in range(20)]
    with running(savanna, "while true do redis.call('GET', KEYS[1]) end", *keys) as (thread, outcome):
        time.sleep(1)
        for other in [client] + [Client(savanna.port) for _ in range(6)]:
            assert b"connected_clients:" in other.call("INFO")
        assert client.call("SCRIPT", "KILL") == "OK"
        thread.join(60)
        assert "killed by user" in outcome[0]


def test_a_script_that_has_written_is_not_killed(savanna):
    client = Client(savanna.port)
    script = "redis.call('SET', KEYS[1], 'written') while true do end"
    with running(savanna, script, "key", limit="2000") as (thread, outcome):
        assert becomes(lambda: client.call("SCRIPT", "KILL").startswith("UNKILLABLE"))
        thread.join(60)
        assert "script-time-limit" in outcome[0]
    assert client.call("GET", "key") == b"written"


def test_what_came_meanwhile_runs_after_the_script(savanna):
    """A pipeline that begins with what is answered while the script runs, and halves of requests."""
    halves = Client(savanna.port)
    halves.call("FLUSHALL")
    with running(savanna, "while true do end", "key"):
        assert becomes(lambda: is_busy(halves.call("GET", "key")))
        halves.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$5\r\nhe")
        time.sleep(0.3)
    halves.socket.sendall(b"llo\r\n*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1\r\n1\r\n")
    assert halves.receive() == b"hello"
    assert halves.receive() == "OK"
    assert halves.call("GET", "key") == b"1"


def test_a_function_that_runs_for_long_can_be_ended(savanna):
    client = Client(savanna.port)
    library = "#!lua name=endless\nredis.register_function('endless', function() while true do end end)"
    client.call("FUNCTION", "LOAD", "REPLACE", library)
    caller, outcome = Client(savanna.port), []
    thread = threading.Thread(target=lambda: outcome.append(caller.call("FCALL", "endless", 0)))
    thread.start()
    assert becomes(lambda: client.call("SCRIPT", "KILL").startswith("BUSY "))
    assert client.call("FUNCTION", "KILL") == "OK"
    thread.join(60)
    assert "killed by user" in outcome[0]
    client.call("FUNCTION", "FLUSH")
