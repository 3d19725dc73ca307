"""Functions: replies must be those of redis-server, and libraries outlive the process."""

import pytest

from conftest import Server
from resp import Client, Refused

LIBRARY = """#!lua name=lib
local calls = 0
redis.register_function("count", function(keys, args) return #keys + 10 * #args end)
redis.register_function{function_name="put", callback=function(keys, args) return redis.call("SET", keys[1], args[1]) end, description="puts"}
redis.register_function{function_name="look", callback=function(keys) return redis.call("GET", keys[1]) end, flags={"no-writes"}}
redis.register_function{function_name="writes_all_the_same", callback=function(keys) return redis.call("SET", keys[1], 1) end, flags={"no-writes", "allow-stale"}}
redis.register_function("raises", function() error("boom") end)
redis.register_function("calls_nothing", function() return redis.call("NOSUCH") end)
redis.register_function("sets_a_global", function() x = 1 end)
redis.register_function("reads_a_global", function() return y end)
redis.register_function("registers", function() return redis.register_function("z", function() end) end)
redis.register_function("answers_an_error", function() return redis.error_reply("MY err") end)
redis.register_function("sees_keys", function() return KEYS end)
redis.register_function("gives_all_keys", function(keys, args) return {keys, args, cjson.encode(args), redis.sha1hex("")} end)
redis.register_function("resp3", function(keys) redis.setresp(3); return redis.call("HGETALL", keys[1]) end)
"""

CALLS = [
    ["FCALL", "count", 1, "k", "a", "b"], ["FCALL", "put", 1, "k", "v"], ["FCALL", "look", 1, "k"], ["FCALL_RO", "look", 1, "k"],
    ["FCALL_RO", "put", 1, "k", "v"], ["FCALL", "writes_all_the_same", 1, "k"], ["FCALL", "raises", 0], ["FCALL", "calls_nothing", 0],
    ["FCALL", "sets_a_global", 0], ["FCALL", "reads_a_global", 0], ["FCALL", "registers", 0], ["FCALL", "answers_an_error", 0],
    ["FCALL", "sees_keys", 0], ["FCALL", "gives_all_keys", 2, "k", "k", "x", "1"], ["FCALL", "resp3", 1, "h"], ["FCALL", "nosuch", 0],
    ["FCALL", "count"], ["FCALL_RO", "nosuch", 0], ["EVAL", "return redis.call('FCALL', 'count', 0)", 0],
    ["EVAL", "return redis.call('FUNCTION', 'LIST')", 0], ["COMMAND", "GETKEYS", "FCALL", "count", "1", "a", "b"],
]  # fmt: skip

# Bodies behind a first line, and whole libraries; all but the last few are refused.
BODIES = [
    "return 1", 'redis.register_function("count", function() end)', 'redis.register_function("f-1", function() end)',
    'redis.register_function("f1")', "redis.register_function(1, 2)", 'redis.register_function("f1", 2)', "redis.register_function(1)",
    'redis.register_function{function_name="a"}', "redis.register_function{callback=function() end}",
    'redis.register_function{function_name="a", callback=1}', 'redis.register_function{"a"}', "redis.register_function()",
    'redis.register_function{function_name="a", callback=function() end, flags=1}',
    'redis.register_function{function_name="a", callback=function() end, flags={"x"}}',
    'redis.register_function{function_name="a", callback=function() end, foo=1}',
    'redis.register_function("a", function() end) redis.register_function("a", function() end)',
    "x x", 'redis.call("GET", "a")', "x = 1", "local a = redis.setresp", "local a = y",
    "redis.register_function{function_name=1, callback=function() end}",
]  # fmt: skip
WHOLE = [
    "x", "#!lua\n", "#!lua nam=x\n", "#!lua name=a-b\nx", "#!js name=q\nx", "#!lua name=q name=w\nx", "#!lua name=q foo=1\nx", "#!lua name=\nx",
]  # fmt: skip
REQUESTS = [
    ["DELETE", "nosuch"], ["DELETE"], ["LOAD"], ["LOAD", "FOO", "x"], ["FLUSH", "x"], ["FLUSH", "SYNC", "x"], ["LIST", "x"],
    ["LIST", "LIBRARYNAME"], ["LIST", "WITHCODE", "WITHCODE"], ["LIST", "LIBRARYNAME", "no*"], ["RESTORE", "x"], ["RESTORE", "x", "FOO"],
    ["KILL"], ["STATS"], ["STATS", "1"], ["X"],
]  # fmt: skip


def of(library):
    """A library as it is listed, with its functions in an order."""
    return [library[:5], sorted(map(repr, library[5])), library[6:]]


@pytest.fixture
def pair(redis, savanna):
    clients = Client(redis.port), Client(savanna.port)
    for client in clients:
        client.call("FLUSHALL")
        client.call("FUNCTION", "FLUSH")
        client.call("HSET", "h", "f", "v")
        assert client.call("FUNCTION", "LOAD", LIBRARY) == b"lib"
    return clients


def test_functions_answer_as_in_redis(pair):
    wrong = []
    for command in CALLS + [["FUNCTION", *words] for words in REQUESTS]:
        expected, came = (client.call(*command) for client in pair)
        if expected != came:
            wrong.append(f"{command}\n  redis:   {expected!r}\n  savanna: {came!r}")
    assert not wrong, "\n".join(wrong)


def test_libraries_are_refused_as_in_redis(pair):
    wrong = []
    for text in [f"#!lua name=q\n{body}" for body in BODIES] + WHOLE:
        expected, came = (client.call("FUNCTION", "LOAD", text) for client in pair)
        if expected != came:
            wrong.append(f"{text}\n  redis:   {expected!r}\n  savanna: {came!r}")
        for client in pair:
            client.call("FUNCTION", "DELETE", "q")
    assert not wrong, "\n".join(wrong)


def test_libraries_are_listed_replaced_and_deleted_as_in_redis(pair):
    lists = [[of(library) for library in client.call("FUNCTION", "LIST", "WITHCODE")] for client in pair]
    assert lists[0] == lists[1] and len(lists[0]) == 1
    for client in pair:
        assert client.call("FUNCTION", "LOAD", LIBRARY) == Refused("ERR Library 'lib' already exists")
        # What fails changes nothing.
        assert isinstance(client.call("FUNCTION", "LOAD", "REPLACE", "#!lua name=lib\nx = 1"), Refused)
        assert client.call("FCALL", "count", 0) == 0
        assert client.call("FUNCTION", "LOAD", "REPLACE", '#!lua name=lib\nredis.register_function("new", function() return 7 end)') == b"lib"
        assert client.call("FCALL", "new", 0) == 7
        assert client.call("FCALL", "count", 0) == Refused("ERR Function not found")
        # SCRIPT FLUSH and FLUSHALL are about something else.
        client.call("SCRIPT", "FLUSH")
        client.call("FLUSHALL")
        assert client.call("FCALL", "new", 0) == 7 and client.call("DBSIZE") == 0
        assert client.call("FUNCTION", "DELETE", "lib") == "OK"
        assert client.call("FUNCTION", "LIST") == []


def test_dumps_are_restored_by_either_server(pair):
    redis, savanna = pair
    other = '#!lua name=other\nredis.register_function("of_other", function() return 1 end)'
    for giver, taker in ((redis, savanna), (savanna, redis)):
        giver.call("FUNCTION", "LOAD", "REPLACE", other)
        payload = giver.call("FUNCTION", "DUMP")
        assert taker.call("FUNCTION", "RESTORE", payload) == Refused("ERR Library lib already exists")
        assert taker.call("FUNCTION", "RESTORE", payload, "REPLACE") == "OK"
        assert taker.call("FUNCTION", "FLUSH") == "OK"
        assert taker.call("FUNCTION", "RESTORE", payload) == "OK"
        assert taker.call("FCALL", "of_other", 0) == 1
        taker.call("FUNCTION", "LOAD", '#!lua name=third\nredis.register_function("of_third", function() return 3 end)')
        assert taker.call("FUNCTION", "RESTORE", payload, "FLUSH") == "OK"
        assert taker.call("FCALL", "of_third", 0) == Refused("ERR Function not found")
        # One whose function is another library's: none of the payload comes.
        clash = '#!lua name=clash\nredis.register_function("of_other", function() return 2 end)'
        taker.call("FUNCTION", "FLUSH")
        taker.call("FUNCTION", "LOAD", clash)
        assert taker.call("FUNCTION", "RESTORE", payload, "REPLACE") == Refused("ERR Function of_other already exists")
        assert len(taker.call("FUNCTION", "LIST")) == 1 and taker.call("FCALL", "of_other", 0) == 2
        assert isinstance(taker.call("FUNCTION", "RESTORE", payload[:-1] + b"x"), Refused)
        taker.call("FUNCTION", "RESTORE", payload, "FLUSH")
        giver.call("FUNCTION", "DELETE", "other")


def test_a_function_is_loaded_and_called_in_one_transaction(request, pair):
    if "3-threads" in request.node.name:
        # The first thread changes libraries at once, the others behind the transaction: there it calls those from before.
        outcomes = []
        for client in [Client(request.getfixturevalue("savanna").port) for _ in range(3)]:
            client.call("FUNCTION", "LOAD", '#!lua name=q\nredis.register_function("zz", function() return 1 end)')
            client.call("MULTI")
            client.call("FUNCTION", "FLUSH")
            client.call("FCALL", "zz", 0)
            outcomes.append(client.call("EXEC"))
        assert sorted(map(str, outcomes)) == sorted(map(str, [["OK", 1], ["OK", 1], ["OK", Refused("ERR Function not found")]]))
        assert client.call("FCALL", "zz", 0) == Refused("ERR Function not found")
        return
    for client in pair:
        client.call("MULTI")
        client.call("FUNCTION", "LOAD", '#!lua name=q\nredis.register_function("zz", function() return 1 end)')
        client.call("FCALL", "zz", 0)
        assert client.call("EXEC") == [b"q", 1]


def test_every_connection_has_the_functions_and_their_keys_are_one_transaction(savanna):
    client = Client(savanna.port)
    client.call("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    move = '#!lua name=bank\nredis.register_function("move", function(keys, args) redis.call("DECRBY", keys[1], args[1]) return redis.call("INCRBY", keys[2], args[1]) end)'
    client.call("FUNCTION", "LOAD", "REPLACE", move)
    for number in range(20):
        other = Client(savanna.port)
        assert other.call("FCALL", "count", 0) == 0
        assert other.call("FCALL", "move", 2, f"from {number}", f"to {number}", 5) == 5
        assert client.call("MGET", f"from {number}", f"to {number}") == [b"-5", b"5"]
    assert client.call("FCALL", "put", 1, "a", "1") == "OK"


def test_a_function_that_runs_too_long_is_stopped_and_the_library_stays(savanna):
    client = Client(savanna.port)
    client.call("FUNCTION", "LOAD", "REPLACE", '#!lua name=slow\nredis.register_function("forever", function() while true do end end)')
    client.call("CONFIG", "SET", "lua-time-limit", "50", "script-time-limit", "50")
    try:
        assert "script-time-limit" in client.call("FCALL", "forever", 0)
    finally:
        client.call("CONFIG", "SET", "lua-time-limit", "5000", "script-time-limit", "5000")
    assert [library[1] for library in client.call("FUNCTION", "LIST", "LIBRARYNAME", "slow")] == [b"slow"]
    client.call("FUNCTION", "DELETE", "slow")


@pytest.mark.parametrize("threads", [1, 3])
def test_libraries_outlive_the_process_and_a_rewritten_log(tmp_path, threads):
    server = Server(tmp_path, "--threads", threads, "--appendfsync", "always")
    try:
        client = Client(server.port)
        names = [f"lib{number}" for number in range(10)]
        text = '#!lua name=%s\nredis.register_function("f_%s", function(keys, args) return "%s" end)'
        for name in names:
            assert client.call("FUNCTION", "LOAD", text % (name, name, name)) == name.encode()
        assert client.call("FUNCTION", "DELETE", "lib3") == "OK"
        assert client.call("FUNCTION", "LOAD", "REPLACE", text % ("lib4", "f_lib4", "again")) == b"lib4"
        client.call("FLUSHALL")
        names.remove("lib3")
        for rewrites in (False, True):
            if rewrites:
                client.call("BGREWRITEAOF")
                while "aof_rewrite_in_progress:1" in client.call("INFO", "persistence").decode():
                    pass
            server.kill()
            server.start()
            client = Client(server.port)
            listed = sorted(library[1].decode() for library in client.call("FUNCTION", "LIST"))
            assert listed == names and client.call("DBSIZE") == 0
            assert client.call("FCALL", "f_f_lib4", 0) == b"again"
            assert client.call("FCALL", "f_lib9", 0) == b"lib9"
            assert client.call("FCALL", "f_lib3", 0) == Refused("ERR Function not found")
        assert client.call("FUNCTION", "FLUSH") == "OK"
        server.kill()
        server.start()
        assert Client(server.port).call("FUNCTION", "LIST") == []
    finally:
        server.kill()
