"""Users, their rights, and that every thread agrees on them."""

import random
import re
import socket

import pytest

from conftest import ROOT, Server
from resp import Client, Refused


def connect(server, name=None, password=None, protocol=2):
    client = Client(server.port, protocol)
    if name is not None:
        assert client.call("AUTH", name, password) == "OK"
    return client


@pytest.fixture
def admin(savanna):
    client = Client(savanna.port)
    yield client
    for user in client.call("ACL", "USERS"):
        if user != b"default":
            client.call("ACL", "DELUSER", user)


def test_a_user_may_do_what_its_rules_say_on_every_thread(savanna, admin):
    assert admin.call("ACL", "SETUSER", "clerk", "on", ">secret", "~own:*", "%R~in:*", "+@all", "-@dangerous") == "OK"
    clients = [connect(savanna, "clerk", "secret") for _ in range(6)]
    for number, client in enumerate(clients):
        assert client.call("SET", f"own:{number}", 1) == "OK"
        assert client.call("GET", f"in:{number}") is None
        assert client.call("SET", f"in:{number}", 1).startswith("NOPERM")
        assert client.call("CONFIG", "GET", "*").startswith("NOPERM")
        assert client.call("ACL", "WHOAMI") == b"clerk"
        # In a transaction a request is refused when it is queued, and the transaction with it.
        assert client.call("MULTI") == "OK"
        assert client.call("SET", "other", 1).startswith("NOPERM")
        assert client.call("EXEC").startswith("EXECABORT")
    # A change is in force everywhere when it is acknowledged; queued requests are looked at again.
    for client in clients:
        client.call("MULTI")
        assert client.call("SET", "own:x", 1) == "QUEUED"
    assert admin.call("ACL", "SETUSER", "clerk", "-set") == "OK"
    for client in clients:
        assert client.call("EXEC").startswith("NOPERM")
        assert client.call("SET", "own:1", 1).startswith("NOPERM")


def test_who_is_deleted_has_to_go(savanna, admin):
    admin.call("ACL", "SETUSER", "guest", "on", "nopass", "+@all", "~*", "&*")
    guests = [connect(savanna, "guest", "whatever") for _ in range(4)]
    assert guests[0].call("SUBSCRIBE", "a")[0] == b"subscribe"
    assert admin.call("ACL", "DELUSER", "guest", "nobody") == 1
    for guest in guests:
        with pytest.raises(OSError):
            assert guest.call("GET", "a").startswith("NOAUTH")
            guest.receive()
    assert Client(savanna.port).call("AUTH", "guest", "whatever").startswith("WRONGPASS")


def test_who_listens_to_what_it_may_not_any_more_has_to_go(savanna, admin):
    admin.call("ACL", "SETUSER", "ear", "on", "nopass", "+@all", "~*", "resetchannels", "&news.*")
    listener, other = connect(savanna, "ear", ""), connect(savanna, "ear", "")
    assert listener.call("SUBSCRIBE", "sport").startswith("NOPERM")
    assert listener.call("SUBSCRIBE", "news.a")[2] == 1
    assert admin.call("ACL", "SETUSER", "ear", "resetchannels", "&sport") == "OK"
    with pytest.raises(OSError):
        listener.receive()
    assert other.call("PUBLISH", "news.a", "x").startswith("NOPERM")
    assert other.call("PUBLISH", "sport", "x") == 0


def test_refusals_are_kept(savanna, admin):
    admin.call("ACL", "LOG", "RESET")
    admin.call("ACL", "SETUSER", "nosy", "on", ">p", "~a", "+get")
    client = connect(savanna, "nosy", "p")
    for _ in range(3):
        client.call("GET", "b")
    client.call("SET", "a", 1)
    Client(savanna.port).call("AUTH", "nosy", "wrong")
    log = []
    while len(log) < 3:
        log = admin.call("ACL", "LOG")
    entries = [dict(zip(entry[::2], entry[1::2])) for entry in log]
    kept = {(entry[b"reason"], entry[b"object"], entry[b"count"]) for entry in entries}
    assert kept == {(b"key", b"b", 3), (b"command", b"set", 1), (b"auth", b"AUTH", 1)}
    assert all(entry[b"username"] == b"nosy" for entry in entries)
    assert len(admin.call("ACL", "LOG", "1")) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_what_may_hold_a_password_is_not_shown(tmp_path, threads):
    server = Server(tmp_path, "--threads", threads)
    admin = Client(server.port)
    admin.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
    assert admin.call("ACL", "SETUSER", "bob", "on", ">hunter2", "+@all") == "OK"
    assert admin.call("AUTH", "bob", "hunter3").startswith("WRONGPASS")
    assert admin.call("HELLO", 2, "AUTH", "bob", "hunter4").startswith("WRONGPASS")
    assert admin.call("CONFIG", "SET", "requirepass", "hunter5") == "OK"
    shown = repr(admin.call("SLOWLOG", "GET", -1))
    assert "hunter" not in shown
    # On no thread: what the others do for it is no request of its own.
    assert "SETUSER" not in shown
    server.kill()


def test_a_stranger_is_heard_out_shortly(tmp_path):
    server = Server(tmp_path, "--threads", 2, "--requirepass", "s")
    for request, refusal in [
        (b"*11\r\n", "invalid multibulk length"), (b"*2\r\n$16385\r\n", "invalid bulk length"),
    ]:  # fmt: skip
        stranger = Client(server.port)
        stranger.socket.sendall(request)
        assert refusal in stranger.receive()
    client = Client(server.port)
    # What follows in the same packet is a known client's.
    client.socket.sendall(b"AUTH s\r\n*12\r\n$4\r\nMGET\r\n" + b"$1\r\na\r\n" * 11)
    assert client.receive() == "OK" and client.receive() == [None] * 11
    assert client.call("AUTH", "n" * 100_000, "x" * 1_000_000).startswith("WRONGPASS")
    entry = client.call("ACL", "LOG", 1)[0]
    assert len(dict(zip(entry[::2], entry[1::2]))[b"username"]) < 200
    server.kill()


def test_a_file_of_users_opens_no_door(tmp_path):
    users = tmp_path / "users.acl"
    options = ["--requirepass", "s3cret", "--aclfile", users]
    assert "users.acl" in Server.refusal(tmp_path, *options), "a file that is not there"
    users.write_text("user clerk on >q +get ~*\n")
    server = Server(tmp_path, *options)
    assert Client(server.port).call("GET", "a") == Refused("NOAUTH Authentication required.")
    admin = Client(server.port)
    assert admin.call("AUTH", "s3cret") == "OK" and admin.call("ACL", "LOAD") == "OK"
    assert Client(server.port).call("GET", "a") == Refused("NOAUTH Authentication required.")
    assert admin.call("ACL", "SAVE") == "OK"
    assert users.stat().st_mode & 0o777 == 0o600
    server.kill()


def own_address():
    """An address of this machine that is not the loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return probe.getsockname()[0]


def test_without_a_password_other_machines_are_refused(tmp_path):
    server = Server(tmp_path, "--threads", 2, "--address", "0.0.0.0")
    for _ in range(2):
        assert Client(server.port, host=own_address()).receive().startswith("DENIED")
    near = Client(server.port)
    assert near.call("CONFIG", "SET", "protected-mode", "no") == "OK"
    assert Client(server.port, host=own_address()).call("PING") == "PONG"
    assert near.call("CONFIG", "SET", "protected-mode", "yes", "requirepass", "s") == "OK"
    assert Client(server.port, host=own_address()).call("PING").startswith("NOAUTH")
    server.kill()


def test_users_are_saved_and_loaded(tmp_path):
    users = tmp_path / "users.acl"
    users.write_text("user default on #" + "0" * 64 + " ~* &* +@all\nuser boss on >p ~* &* +@all\n")
    server = Server(tmp_path, "--threads", 2, "--aclfile", users)
    assert Client(server.port).call("GET", "a") == Refused("NOAUTH Authentication required.")
    boss = connect(server, "boss", "p")
    assert boss.call("ACL", "SETUSER", "clerk", "on", ">q", "%R~x", "+get") == "OK"
    assert boss.call("ACL", "SAVE") == "OK"
    assert boss.call("ACL", "SETUSER", "late", "on", "nopass") == "OK"
    assert boss.call("ACL", "LOAD") == "OK"
    assert boss.call("ACL", "USERS") == [b"boss", b"clerk", b"default"]
    server.kill()
    server.start()
    assert connect(server, "clerk", "q").call("GET", "x") is None
    users.write_text("user a on +nothing\n")
    assert "line 1" in connect(server, "boss", "p").call("ACL", "LOAD")
    server.kill()


def test_blocked_rules_leave_the_user_as_it_was(savanna, admin):
    admin.call("ACL", "SETUSER", "same", "on", ">p", "~a", "+get")
    before = admin.call("ACL", "GETUSER", "same")
    for rules in (["+set", "+nothing"], ["~b", "(+nothing ~x)"], ["(+set ~x)", "(on)"], ["nopass", "%Q~x"]):
        assert admin.call("ACL", "SETUSER", "same", *rules).startswith("ERR Error in ACL SETUSER modifier")
    assert admin.call("ACL", "SETUSER", "same", "(+set", "~x") == Refused("ERR Unmatched parenthesis in acl selector starting at '(+set ~x'.")
    assert admin.call("ACL", "GETUSER", "same") == before


def test_selectors_allow_whole_requests(savanna, admin):
    admin.call("ACL", "SETUSER", "two", "reset", "on", ">p", "+get", "~in:*", "(+set", "~out:*", "&news)", "(+publish +subscribe &news)")
    client = connect(savanna, "two", "p")
    denied = Refused("NOPERM this user has no permissions to access one of the keys used as arguments")
    assert client.call("SET", "out:1", "x") == "OK" and client.call("GET", "in:1") is None
    assert client.call("GET", "out:1") == denied and client.call("SET", "in:1", "x") == denied
    assert client.call("PUBLISH", "news", "x") == 0 and client.call("PUBLISH", "other", "x").startswith("NOPERM")
    assert client.call("DEL", "out:1") == Refused("NOPERM this user has no permissions to run the 'del' command")
    described = admin.call("ACL", "GETUSER", "two")
    assert described[described.index(b"selectors") + 1] == [
        [b"commands", b"-@all +set", b"keys", b"~out:*", b"channels", b"&news"],
        [b"commands", b"-@all +publish +subscribe", b"keys", b"", b"channels", b"&news"],
    ]
    assert any(line.endswith(b"(~out:* resetchannels &news -@all +set) (resetchannels &news -@all +publish +subscribe)") for line in admin.call("ACL", "LIST"))
    admin.call("ACL", "SETUSER", "two", "clearselectors")
    assert client.call("SET", "out:1", "x").startswith("NOPERM")
    admin.call("ACL", "DELUSER", "two")


COMMANDS = re.findall(r'row\("([a-z_]+)"', (ROOT / "engines/keys/src/command/table.rs").read_text())
# Commands whose rights are not those of Redis: its own `client` has more subcommands, ours are granted with them.
CONTAINERS = ["config|get", "config|set", "client|list", "client|id", "acl|whoami", "acl|list", "object|encoding", "memory|usage"]
REQUESTS = [
    ["GET", "a:1"], ["SET", "a:1", "x"], ["SET", "a:1", "x", "GET"], ["MGET", "a:1", "b:1"], ["MSET", "a:1", "x", "b:1", "y"],
    ["COPY", "a:1", "b:1"], ["RENAME", "a:1", "b:1"], ["SUNIONSTORE", "a:1", "b:1", "c:1"], ["BITOP", "AND", "a:1", "b:1"],
    ["ZUNIONSTORE", "a:1", "1", "b:1"], ["LMOVE", "a:1", "b:1", "LEFT", "LEFT"], ["SMOVE", "a:1", "b:1", "x"], ["EXISTS", "a:1", "c:1"],
    ["STRLEN", "b:1"], ["DEL", "a:1"], ["INCR", "b:1"], ["LPUSH", "a:1", "x"], ["LPOP", "a:1"], ["SPOP", "c:1"], ["HSET", "a:1", "f", "v"],
    ["HINCRBY", "a:1", "f", "1"], ["EXPIRE", "a:1", "1"], ["KEYS", "*"], ["SCAN", "0"], ["DBSIZE"], ["FLUSHALL"], ["PING"], ["INFO"],
    ["CONFIG", "GET", "x"], ["CONFIG", "SET", "x", "y"], ["CLIENT", "LIST"], ["CLIENT", "ID"], ["ACL", "WHOAMI"], ["ACL", "LIST"],
    ["OBJECT", "ENCODING", "a:1"], ["MEMORY", "USAGE", "a:1"], ["SUBSCRIBE", "n1", "m1"], ["PSUBSCRIBE", "n*"], ["PUBLISH", "n1", "x"],
    ["SORT", "a:1"], ["SORT", "a:1", "STORE", "b:1"], ["DUMP", "a:1"], ["RESTORE", "b:1", "0", "x"],
    ["MULTI"], ["WATCH", "a:1"], ["SELECT", "0"], ["SELECT", "1"], ["COMMAND", "COUNT"], ["TIME"], ["SLOWLOG", "GET"], ["SINTERCARD", "1", "a:1"],
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_rules_mean_what_they_mean_to_redis(redis, savanna, seed):
    chance = random.Random(f"rules {seed}")
    theirs, ours = Client(redis.port), Client(savanna.port)
    known = {entry[0] for entry in theirs.call("COMMAND", "INFO", *COMMANDS) if entry}
    commands = [name for name in COMMANDS if name.encode() in known] + CONTAINERS
    categories = [name.decode() for name in theirs.call("ACL", "CAT")] + ["all"]
    marks = ["~", "%R~", "%W~", "%RW~"]
    for round_ in range(60):
        rules = ["reset", "on", ">p"]
        for _ in range(chance.randint(1, 8)):
            sign = chance.choice("++-")
            rules.append(chance.choice([
                sign + chance.choice(commands), sign + "@" + chance.choice(categories), "+@all", "+select|0",
                chance.choice(marks) + chance.choice("abc*") + chance.choice(["*", ":?", ":1"]), "&" + chance.choice(["n*", "m*", "*", "n1"]),
                chance.choice(["allkeys", "resetkeys", "resetchannels", "nopass", "off", "#" + "a" * 64, "<p", "!00", "clearselectors"]),
            ]))  # fmt: skip
        for _ in range(chance.randint(0, 3)):
            words = [chance.choice(["+@all", "+@read", "+@write", "-@all", "+get", "+set", "+mget", "+subscribe", "-@dangerous"]) for _ in range(chance.randint(0, 3))]
            words += [chance.choice(marks) + chance.choice("abc*") + chance.choice(["*", ":?", ":1"]) for _ in range(chance.randint(0, 2))]
            words += chance.sample(["&n*", "&m1", "allkeys", "allchannels", "on", "resetkeys"], chance.randint(0, 2))
            rules.append("(" + " ".join(words) + ")")
        for client in (theirs, ours):
            client.call("ACL", "SETUSER", "u", "reset")
        for rule in rules:
            assert ours.call("ACL", "SETUSER", "u", rule) == theirs.call("ACL", "SETUSER", "u", rule), rules
        found = [client.call("ACL", "GETUSER", "u") for client in (theirs, ours)]
        for field in (b"keys", b"channels"):
            expected, came = (each[each.index(field) + 1] for each in found)
            assert came == expected, rules
        # Redis writes some rules about commands in other words.
        expected, came = ([selector[2:] for selector in each[each.index(b"selectors") + 1]] for each in found)
        assert came == expected, rules
        for request in REQUESTS:
            expected, came = theirs.call("ACL", "DRYRUN", "u", *request), ours.call("ACL", "DRYRUN", "u", *request)
            assert came == expected, (rules, request)
        for passwords in (["p"], ["q"]):
            stranger = [Client(redis.port), Client(savanna.port)]
            replies = [client.call("AUTH", "u", *passwords) for client in stranger]
            assert replies[0] == replies[1], rules
    theirs.call("ACL", "DELUSER", "u")
    ours.call("ACL", "DELUSER", "u")


def test_categories_are_those_of_redis(redis, savanna):
    theirs, ours = Client(redis.port), Client(savanna.port)
    known = set()
    for command in COMMANDS:
        (expected,), (came,) = theirs.call("COMMAND", "INFO", command), ours.call("COMMAND", "INFO", command)
        if expected:
            known.add(command.encode())
            assert set(came[6]) == set(expected[6]), command
    assert ours.call("ACL", "CAT") == theirs.call("ACL", "CAT")
    for category in theirs.call("ACL", "CAT"):
        names = [set(client.call("ACL", "CAT", category)) for client in (theirs, ours)]
        ours_only = {name for name in names[1] - names[0] if name.split(b"|")[0] in known}
        # What Redis got later, or has as an option of its client program.
        assert ours_only <= {b"client|setinfo", b"client|no-touch", b"hotkeys", b"waitaof"}, category


@pytest.mark.parametrize("bits", ["1", "5", "256", "4096", "0", "4097", "x"])
def test_passwords_are_made(redis, savanna, bits):
    expected, came = (Client(server.port).call("ACL", "GENPASS", bits) for server in (redis, savanna))
    if isinstance(expected, Refused):
        assert came == expected
    else:
        assert len(came) == len(expected) and set(came) <= set(b"0123456789abcdef")
