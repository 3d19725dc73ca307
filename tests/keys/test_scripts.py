"""Scripts: replies must be those of redis-server, and scripts of well-known clients run."""

import threading

import pytest

from resp import Client, Refused

# Scripts with their keys and arguments; with several threads all keys of a request are declared or have one tag.
CONVERSIONS = [
    "return 1", "return 3.99", "return -3.99", "return 'text'", "return true", "return false", "return nil", "return {}",
    "return {1, 2, {3, 'x', {}}, nil, 5}", "return {ok = 'fine'}", "return {err = 'MY error'}", "return {double = 3.5}",
    "return redis.status_reply('x')", "return redis.error_reply('x')", "return redis.error_reply('CODE x')",
    "return redis.error_reply('-CODE x')", "return redis.sha1hex('')", "return redis.sha1hex('abc')", "return tostring(1e15)",
    "return {KEYS[1], ARGV[1], ARGV[2], ARGV[3]}", "return #KEYS + 10 * #ARGV", "return 2^53",
    "redis.setresp(3); return {true, false, {double = 2}}", "redis.setresp(3); return redis.call('HGETALL', KEYS[2])",
    "redis.setresp(3); return redis.call('HGETALL', KEYS[2]).map.f", "redis.setresp(3); return redis.call('GET', 'missing{k}')",
    "redis.setresp(3); return redis.call('ZSCORE', KEYS[3], 'm').double * 2", "redis.setresp(3); return {map = {a = 1}}",
    "redis.setresp(3); return {set = {a = true}}", "return redis.call('ZSCORE', KEYS[3], 'm')",
    "return redis.call('HGETALL', KEYS[2])", "return type(redis.call('GET', 'missing{k}'))", "redis.setresp(4)",
    "return redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')", "return redis.call('PING')", "return redis.call('ECHO', 'x')",
    "return redis.call('SET', KEYS[1], 1.5)", "return redis.call('SET', KEYS[1], 0.1)", "return redis.call('GET', KEYS[1])",
    "return redis.call('SET', KEYS[1], 12345678901234567)", "return redis.call('TYPE', KEYS[2])['ok']",
    "return redis.call('SET', KEYS[1], 10)", "return redis.call('INCRBY', KEYS[1], 5)", "return redis.call('INCR', KEYS[2])",
    "return redis.pcall('INCR', KEYS[2])", "return redis.pcall('INCR', KEYS[2])['err']", "return redis.call('NOSUCH')",
    "return redis.call('GET')", "return redis.call()", "return redis.call({})", "return redis.pcall('NOSUCH')['err']",
    "local ok, e = pcall(redis.call, 'INCR', KEYS[2]); return {tostring(ok), e['err']}", "return redis.call('EVAL', 'x', 0)",
    "return redis.call('MULTI')", "return redis.call('SUBSCRIBE', 'x')", "return redis.call('BLPOP', 'x{k}', 0)",
    "redis.call('SET', KEYS[1], 'before'); error('stop')", "return redis.call('GET', KEYS[1])", "error({err = 'OWN error'})",
    "redis.call('SELECT', 1); redis.call('SET', KEYS[1], 'one'); return redis.call('GET', KEYS[1])",
    "return redis.call('GET', KEYS[1])", "return\n\n nosuch", "x = 1", "return x", "return 1 +", "local t = nil; return t.x",
    "string.x = 1", "redis.call = 1", "return _G.KEYS[1]", "local t = setmetatable({}, {__index = function() return 7 end}); return t.x",
    "return table.concat({1, 2, 3}, ',')", "return math.floor(3.7)", "return string.format('%05.2f|%s|%d', 3.14159, 'x', 42)",
    "return string.rep('ab', 3)", "return ('x'):upper()", "return select('#', 1, nil, 3)", "return {unpack({1, 2, 3})}",
    "local n = 0; for _ in pairs({1, 2, a = 3}) do n = n + 1 end; return n", "return tostring(io)", "return os.execute",
    "return dofile", "return print", "return redis.replicate_commands()", "return tonumber('0x10')",
    "table.insert(math, 1)", "table.remove(redis)", "table.insert('x', 1)", "local t = {1}; table.insert(t, 1, 2); return {t[1], table.remove(t), #t}",
    "#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 1)", "#!lua\nreturn 5", "#!js\nreturn 5", "#!lua flags=x\nreturn 1",
]  # fmt: skip

LIBRARIES = [
    "return cjson.encode({1, 2, 'x', true, false})", "return cjson.encode({})", "return cjson.encode({a = {b = {1.5}}})",
    "return cjson.encode({[3] = 1})", "return cjson.encode({[1] = 1, [20] = 1})", "return cjson.encode('a/\"\\\\\\n\\1\\127é')",
    "return cjson.encode(cjson.null)", "return cjson.encode(1/0)", "return cjson.encode(123456789012345)", "return cjson.encode(0.1)",
    "return cjson.encode(1e20)", "return cjson.encode(print)", "return cjson.encode({1, nil, 3})",
    "local t = cjson.decode(ARGV[1]); return {t.a, t.b[2], t.c == cjson.null and 'null' or 'other', t.d.e, tostring(t.f)}",
    "return cjson.decode('[1, 2.5e1, \"\\\\u00e9\\\\ud83d\\\\ude00\\\\n\"]')", "return cjson.decode('[]')",
    "return #cjson.decode('[[], {}, [[1]]]')", "return cjson.encode(cjson.decode('[1,[],{\"x\":null}]'))",
    "return cmsgpack.pack(1, -1, 127, 128, -32, -33, 255, 256, 65535, 65536, 4294967296, -129, -32769, -2147483649)",
    "return cmsgpack.pack(1.5, 0.1, 'x', string.rep('y', 40), string.rep('z', 300), true, false, nil)",
    "return cmsgpack.pack({1, 2, {3}})", "return cmsgpack.pack({})", "return cmsgpack.pack({a = 1})", "return cmsgpack.pack({[2] = 1})",
    "return {cmsgpack.unpack(cmsgpack.pack(1, 'x', {2, {3}}, false))}", "return cmsgpack.unpack(cmsgpack.pack({a = {b = 7}})).a.b",
    "return {cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3))}", "return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2, 1)}",
    "return {cmsgpack.unpack_one(cmsgpack.pack(9))}", "return tostring(cmsgpack.unpack(cmsgpack.pack(-7.25)))",
    "return struct.pack('<I2>I4bBhHlLd', 1, 2, -3, 200, -5, 6, -7, 8, 1.5)", "return struct.pack('sc3c0', 'ab', 'cdef', 'gh')",
    "return {struct.unpack('<I2>I4', '\\1\\0\\0\\0\\0\\2')}", "return {struct.unpack('sB', 'abc\\0\\7')}", "return struct.size('!8bdi')",
    "return {struct.unpack('Bc0', '\\3abcdef')}", "return struct.pack('!8bi', 1, 2)", "return {struct.unpack('>i8', string.rep('\\255', 8))}",
    "return {struct.unpack('b', '\\200')}", "return struct.pack('f', 0.5)", "return struct.size('i4h')",
    "return {bit.band(12, 10), bit.bor(12, 10), bit.bxor(12, 10), bit.bnot(0), bit.lshift(1, 31), bit.rshift(-1, 28)}",
    "return {bit.arshift(-16, 2), bit.rol(1, 33), bit.ror(1, 1), bit.bswap(1), bit.tobit(2^32 + 5)}",
    "return {bit.tohex(255), bit.tohex(-1, 4), bit.tohex(43981, -4)}",
]  # fmt: skip

KEYS = ["k{k}", "h{k}", "z{k}"]
ARGUMENTS = ['{"a": "x", "b": [1, 2], "c": null, "d": {"e": 7}, "f": true}', "2"]


@pytest.mark.parametrize("protocol", [2, 3])
def test_scripts_answer_as_in_redis(redis, savanna, protocol):
    theirs, ours = Client(redis.port, protocol), Client(savanna.port, protocol)
    for client in (theirs, ours):
        client.call("FLUSHALL")
        client.call("HSET", "h{k}", "f", "v")
        client.call("ZADD", "z{k}", "2.5", "m")
    wrong = []
    for script in CONVERSIONS + LIBRARIES:
        command = ["EVAL", script, len(KEYS), *KEYS, *ARGUMENTS]
        expected, came = theirs.call(*command), ours.call(*command)
        if expected != came:
            wrong.append(f"{script}\n  redis:   {expected!r}\n  savanna: {came!r}")
    assert not wrong, "\n".join(wrong)


def test_scripts_are_known_by_their_digest(redis, savanna):
    for client in (Client(redis.port), Client(savanna.port)):
        other = Client(client.socket.getpeername()[1])
        client.call("SCRIPT", "FLUSH")
        digest = client.call("SCRIPT", "LOAD", "return ARGV[1]")
        assert digest == b"098e0f0d1448c0a81dafe820f66d460eb09263da"
        for one in (client, other):
            assert one.call("EVALSHA", digest.upper(), 1, "k", "x") == b"x"
            assert one.call("EVALSHA_RO", digest, 1, "j", "y") == b"y"
            assert one.call("SCRIPT", "EXISTS", digest, "ff" * 20) == [1, 0]
        assert client.call("SCRIPT", "LOAD", "return +").startswith("ERR Error compiling script")
        assert client.call("EVALSHA", "ff" * 20, 0) == Refused("NOSCRIPT No matching script. Please use EVAL.")
        assert client.call("EVAL_RO", "return redis.call('SET', KEYS[1], 1)", 1, "k").startswith("ERR Write commands are not allowed")
        for words in (["x"], ["-1"], ["2", "k"]):
            assert isinstance(client.call("EVAL", "return 1", *words), Refused)
        assert client.call("SCRIPT", "KILL").startswith("NOTBUSY")
        assert client.call("SCRIPT", "FLUSH") == "OK"
        assert other.call("EVALSHA", digest, 0).startswith("NOSCRIPT")


def test_a_script_is_a_transaction_over_its_keys(savanna):
    """Clients move amounts between accounts; the sum never changes for those who look."""
    accounts = [f"account:{number}" for number in range(5)]
    client = Client(savanna.port)
    client.call("FLUSHALL")
    for account in accounts:
        client.call("SET", account, 100)
    move = "redis.call('DECRBY', KEYS[1], ARGV[1]); redis.call('INCRBY', KEYS[2], ARGV[1])"
    total = "local sum = 0; for _, key in ipairs(KEYS) do sum = sum + redis.call('GET', key) end; return sum"
    sums = []

    def work(seed):
        mine = Client(savanna.port)
        for step in range(200):
            source, target = accounts[(seed + step) % 5], accounts[(seed * 2 + step * 3 + 1) % 5]
            mine.call("EVAL", move, 2, source, target, step % 7)
            sums.append(mine.call("EVAL", total, 5, *accounts))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sums == [500] * 800


def test_keys_that_are_not_declared_are_refused_where_they_are_elsewhere(savanna):
    client = Client(savanna.port)
    client.call("FLUSHALL")
    script = "return redis.call('SET', ARGV[1], 'x')"
    replies = [client.call("EVAL", script, 1, "k", f"other:{number}") for number in range(20)]
    assert all(reply == "OK" or "did not declare" in reply for reply in replies)
    assert client.call("EVAL", script, 1, "{k}", "other{k}") == "OK"
    assert client.call("EVAL", script, 1, "other", "other") == "OK"


def test_a_script_that_runs_too_long_is_stopped(savanna):
    client = Client(savanna.port)
    client.call("CONFIG", "SET", "lua-time-limit", "50", "script-time-limit", "50")
    for script in ("while true do end", "while true do pcall(function() while true do end end) end"):
        assert "ran for more than 50 ms" in client.call("EVAL", script, 0)
    client.call("CONFIG", "SET", "lua-time-limit", "5000", "script-time-limit", "5000")
    reply = client.call("EVAL", "local t, s = {}, 'x' for _ = 1, 20 do s = s .. s end while true do t[#t + 1] = s .. #t end", 0)
    assert "not enough memory" in reply
    assert client.call("EVAL", "return 'still there'", 0) == b"still there"
    # One call into a library is not interrupted: it must be short, however much it is asked for.
    for script in ("return #string.rep('x', 2^31 - 1)", "return #string.rep(1, 2^31 - 1)", "return #string.rep('12', '2147483647')"):
        assert isinstance(client.call("EVAL", script, 0), Refused)
    assert client.call("EVAL", "return string.rep('', 2^31 - 1) .. string.rep('ab', 2) .. ('c'):rep(0)", 0) == b"abab"
    # Its instructions would not be counted.
    assert "nonexistent global variable 'coroutine'" in client.call("EVAL", "return coroutine.create(function() end)", 0)


def test_no_script_takes_the_memory_of_the_next_one(savanna):
    client = Client(savanna.port)
    # It is memory that ends them, on a slow machine, too.
    client.socket.settimeout(120)
    client.call("CONFIG", "SET", "script-time-limit", "60000")
    fill = "local t = {} for i = 1, 1000 do t[i] = string.rep(tostring(i), %d) end return #t"
    for _ in range(3):
        assert "not enough memory" in client.call("EVAL", fill % 1_000_000, 0)
        # Each leaves behind more than half of what a script may take.
        for size in (50_000, 50_001):
            assert client.call("EVAL", fill % size, 0) == 1000
    client.call("CONFIG", "SET", "lua-time-limit", "5000", "script-time-limit", "5000")


def test_scripts_that_are_never_run_again_are_forgotten(savanna):
    client = Client(savanna.port)
    client.call("SCRIPT", "FLUSH")
    loaded = client.call("SCRIPT", "LOAD", "return 'loaded'")
    padding = "-" * 1_000_000
    evaluated = []
    for number in range(100):
        assert client.call("EVAL", f"return {number} --{padding}", 0) == number
        evaluated.append(client.call("EVAL", "return redis.sha1hex(ARGV[1])", 0, f"return {number} --{padding}"))
    known = client.call("SCRIPT", "EXISTS", *evaluated)
    assert sum(known) <= 64 and known[-1] == 1
    assert client.call("EVALSHA", loaded, 0) == b"loaded"
    for number in range(100):
        reply = client.call("SCRIPT", "LOAD", f"return {number} --{padding}")
        if isinstance(reply, Refused):
            break
    assert "SCRIPT FLUSH" in reply and number > 50
    assert client.call("EVALSHA", loaded, 0) == b"loaded"
    assert client.call("SCRIPT", "FLUSH") == "OK"
    assert client.call("EVAL", "return redis.REDIS_VERSION", 0) == b"7.0.15"


def test_scripts_in_transactions_and_publishing(savanna):
    client, listener = Client(savanna.port), Client(savanna.port)
    listener.call("SUBSCRIBE", "news")
    client.call("FLUSHALL")
    client.call("MULTI")
    client.call("EVAL", "return redis.call('INCR', KEYS[1])", 1, "a")
    client.call("EVAL", "return redis.call('INCR', KEYS[1])", 1, "b")
    client.call("EVAL", "return redis.call('PUBLISH', 'news', 'x')", 1, "c")
    assert client.call("EXEC") == [1, 1, 1]
    assert listener.receive() == [b"message", b"news", b"x"]


def test_a_script_may_do_no_more_than_its_user(savanna):
    admin = Client(savanna.port)
    admin.call("FLUSHALL")
    assert admin.call("ACL", "SETUSER", "clerk", "on", ">secret", "~own:*", "&own", "+@all", "-del") == "OK"
    try:
        # Clients of all threads, keys of all threads.
        for number in range(6):
            clerk, own, other = Client(savanna.port), f"own:{number}", f"other:{number}"
            assert clerk.call("AUTH", "clerk", "secret") == "OK"
            wrap = [lambda *words: clerk.call(*words), lambda *words: in_transaction(clerk, *words)]
            for call in wrap:
                assert call("EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", 1, own, "x") == "OK"
                assert call("EVAL", "return redis.call('GET', KEYS[1])", 1, own) == b"x"
                # A key that it declares is refused as in any command; one that it does not declare, when it is used.
                assert call("EVAL", "return redis.call('SET', KEYS[1], 1)", 1, other).startswith(("NOPERM", "EXECABORT"))
                for script in ("return redis.call('SET', ARGV[1], 1)", "return redis.pcall('GET', ARGV[1])"):
                    for key in (other, f"other:{{{own}}}"):
                        reply = call("EVAL", script, 1, own, key)
                        assert isinstance(reply, Refused) and "can't access" in reply, reply
                for forbidden in ("redis.call('DEL', KEYS[1])", "redis.call('PUBLISH', 'other', 'x')"):
                    reply = call("EVAL", "return " + forbidden, 1, own)
                    assert isinstance(reply, Refused) and reply.startswith("NOPERM"), reply
                assert call("EVAL", "return redis.call('PUBLISH', 'own', 'x')", 1, own) == 0
            assert admin.call("EXISTS", other, f"other:{{{own}}}") == 0
            assert admin.call("EVAL", "return redis.call('GET', KEYS[1])", 1, own) == b"x"
    finally:
        admin.call("ACL", "DELUSER", "clerk")


def in_transaction(client, *words):
    """The reply to a command that runs in a transaction."""
    client.call("MULTI")
    client.call(*words)
    replies = client.call("EXEC")
    return replies if isinstance(replies, Refused) else replies[0]


# redis-py's Lock (redis/lock.py).
RELEASE = """
    local token = redis.call('get', KEYS[1])
    if not token or token ~= ARGV[1] then
        return 0
    end
    redis.call('del', KEYS[1])
    return 1
"""
EXTEND = """
    local token = redis.call('get', KEYS[1])
    if not token or token ~= ARGV[1] then
        return 0
    end
    local expiration = redis.call('pttl', KEYS[1])
    if not expiration then
        expiration = 0
    end
    if expiration < 0 then
        return 0
    end
    local newttl = ARGV[2]
    if ARGV[3] == "0" then
        newttl = ARGV[2] + expiration
    end
    redis.call('pexpire', KEYS[1], newttl)
    return 1
"""


def test_a_lock_is_released_and_extended_by_its_owner_only(savanna):
    client = Client(savanna.port)
    client.call("FLUSHALL")
    assert client.call("SET", "lock", "mine", "NX", "PX", "10000") == "OK"
    assert client.call("EVAL", EXTEND, 1, "lock", "other", "5000", "0") == 0
    assert client.call("EVAL", EXTEND, 1, "lock", "mine", "5000", "0") == 1
    assert 10000 < client.call("PTTL", "lock") <= 15000
    assert client.call("EVAL", RELEASE, 1, "lock", "other") == 0
    assert client.call("EVAL", RELEASE, 1, "lock", "mine") == 1
    assert client.call("EXISTS", "lock") == 0


# As schedulers do: due jobs go from a sorted set to a list (Sidekiq); a job's fields are packed and unpacked (BullMQ).
TAKE_DUE = """
    local key, now = KEYS[1], ARGV[1]
    local jobs = redis.call("zrangebyscore", key, "-inf", now, "limit", 0, 1)
    if jobs[1] then
        redis.call("zrem", key, jobs[1])
        return jobs[1]
    end
"""
ADD_JOB = """
    local wait, prefix = KEYS[1], KEYS[2]
    local options = cmsgpack.unpack(ARGV[1])
    local id = redis.call("INCR", KEYS[3])
    local job = prefix .. ":" .. id
    redis.call("HMSET", job, "name", options["name"], "data", cjson.encode({value = options["value"]}), "priority", options["priority"] or 0)
    redis.call("LPUSH", wait, id)
    redis.call("PUBLISH", prefix .. ":events", cjson.encode({event = "waiting", id = id}))
    return id .. ""
"""


def test_queues_in_scripts(savanna):
    client = Client(savanna.port)
    client.call("FLUSHALL")
    client.call("ZADD", "schedule", 5, "late", 1, "first", 2, "second")
    assert [client.call("EVAL", TAKE_DUE, 1, "schedule", 3) for _ in range(3)] == [b"first", b"second", None]
    packed = b"\x82\xa4name\xa4mail\xa5value\x07"
    keys = ["{q}:wait", "{q}", "{q}:id"]
    assert client.call("EVAL", ADD_JOB, 3, *keys, packed) == b"1"
    assert client.call("HGETALL", "{q}:1") == [b"name", b"mail", b"data", b'{"value":7}', b"priority", b"0"]
    assert client.call("BRPOPLPUSH", "{q}:wait", "{q}:active", "0.1") == b"1"


# What never ends by itself, and what would take very long in few steps.
ENDLESS = [
    "while true do end",
    "xpcall(function() while true do end end, function() while true do end end)",
    "xpcall(error, function() while true do end end)",
    "while true do pcall(function() while true do end end) end",
    "pcall(pcall, function() while true do end end) while true do end",
    "local t = setmetatable({}, {__index = function() while true do end end}) pcall(function() return t.x end) return t.y",
    "error(setmetatable({}, {__index = function() while true do end end}))",
    "tostring(setmetatable({}, {__tostring = function() while true do end end}))",
    "return (string.rep('a', 30000)):find('.-.-.-.-b')",
    "return (string.rep('a', 30000)):match('.-.-.-.-b')",
    "for _ in (string.rep('a', 30000)):gmatch('.-.-.-.-b') do end",
    "return (string.rep('a', 30000)):gsub('.-.-.-.-b', '')",
    "return pcall(string.gsub, string.rep('a', 30000), '.-.-.-.-b', {})",
    "return (string.rep('a', 1000)):gsub('a', function() while true do end end)",
    "while true do redis.call('LRANGE', 'long', 0, -1) end",
    "while true do redis.pcall('LRANGE', 'long', 0, -1) end",
    "local s = string.rep('a', 1000000) while true do s:gsub('a', 'b') end",
    "local s = string.rep('a', 10000000) while true do s:upper() end",
    "local t = {} for i = 1, 1000000 do t[i] = i end while true do table.insert(t, 1, 0) table.remove(t, 1) end",
    "local t = {} while true do for i = 1, 200000 do t[i] = -i end table.sort(t) end",
    "local t = {} for i = 1, 100000 do t[i] = i end while true do cjson.encode(t) end",
    "local t = {} for i = 1, 100000 do t[i] = i end while true do cmsgpack.pack(t) end",
    "local s = string.rep('a', 5000000) local p = string.rep('a', 2500000) .. 'b' while true do s:find(p, 1, true) end",
]  # fmt: skip


@pytest.mark.parametrize("script", ENDLESS)
def test_every_script_ends(savanna, script):
    client = Client(savanna.port)
    client.socket.settimeout(60)
    client.call("DEL", "long")
    for _ in range(50):
        client.call("RPUSH", "long", *range(1000))
    client.call("CONFIG", "SET", "lua-time-limit", "100", "script-time-limit", "100")
    try:
        reply = client.call("EVAL", script, 1, "long")
        assert isinstance(reply, Refused) and "ran for more than 100 ms" in reply, reply
        assert client.call("EVAL", "return 1", 0) == 1
    finally:
        client.call("CONFIG", "SET", "lua-time-limit", "5000", "script-time-limit", "5000")


def test_substitutions_call_what_replaces(redis, savanna):
    scripts = [
        "return {string.gsub('hello world', '%w+', function(w) return w:upper() end)}",
        "return {string.gsub('$name is $age', '%$(%w+)', {name = 'lua', age = 5})}",
        "return {string.gsub('abc', '()', function(p) return p end)}",
        "return {string.gsub('abc', '(.)(.)', function(a, b) return b .. a end)}",
        "return {string.gsub('abc', '.', function() return nil end)}",
        "return {string.gsub('abc', '.', function() return false end, 2)}",
        "return {string.gsub('abc', '', setmetatable({}, {__index = function(_, k) return '<' .. k .. '>' end}))}",
        "return {pcall(string.gsub, 'abc', '.', function() error({err = 'MY own'}) end)}",
        "return {string.gsub('abc', '^a', string.upper)}",
        "return {string.gsub('abc', 'x*', '-')}",
    ]
    theirs, ours = Client(redis.port), Client(savanna.port)
    for script in scripts:
        assert ours.call("EVAL", script, 0) == theirs.call("EVAL", script, 0), script
