"""What clients are told about clients, and what they may do to them; to Savanna and to redis-server."""

import threading
import time

import pytest

from resp import Client, Refused


@pytest.fixture(params=["redis", "savanna"])
def server(request, redis, savanna):
    server = {"redis": redis, "savanna": savanna}[request.param]
    client = Client(server.port)
    client.call("FLUSHALL")
    client.call("CLIENT", "KILL", "TYPE", "normal")
    client.close()
    yield server
    client = Client(server.port)
    client.call("CLIENT", "UNPAUSE")
    client.close()


def lines(client, *words):
    """The lines of CLIENT LIST, each as a dictionary."""
    text = client.call("CLIENT", "LIST", *words).decode()
    assert text == "" or text.endswith("\n")
    return [dict(field.split("=", 1) for field in line.split(" ")) for line in text.splitlines()]


def is_gone(client):
    try:
        client.call("PING")
        return False
    except (ConnectionError, BrokenPipeError):
        return True


def here(server):
    """A client that the server knows of."""
    client = Client(server.port)
    client.call("PING")
    return client


def until_held(server, count):
    """Returns when so many clients wait."""
    other, deadline = Client(server.port), time.monotonic() + 10
    while True:
        assert time.monotonic() < deadline
        text = next(line for line in other.call("INFO", "clients").decode().split() if line.startswith("blocked_clients"))
        if int(text.split(":")[1]) == count:
            other.close()
            return


def test_who_sends_itself_away_in_a_transaction_is_answered_first(server):
    for others in ([["SET", "last", "words"]], [["SET", "last", "words"], ["DBSIZE"]], [["MSET", *"a1b2c3d4"]]):
        client = Client(server.port)
        number = client.call("CLIENT", "ID")
        client.call("MULTI")
        for words in others:
            client.call(*words)
        assert client.call("CLIENT", "KILL", "ID", number, "SKIPME", "no") == "QUEUED"
        client.send("EXEC")
        client.send("SET", "behind", "it")
        assert client.receive()[-1] == 1
        assert is_gone(client)
    assert here(server).call("EXISTS", "last", "a", "behind") == 2


def test_all_clients_are_listed_by_number_and_kind(server):
    clients = [Client(server.port) for _ in range(7)]
    numbers = [client.call("CLIENT", "ID") for client in clients]
    for index, client in enumerate(clients):
        assert client.call("CLIENT", "SETNAME", f"name{index}") == "OK"
    clients[1].call("SUBSCRIBE", "x")
    clients[2].call("MULTI")
    clients[2].call("GET", "a")
    clients[3].call("SELECT", "3")
    clients[4].send("BLPOP", "nothing", "0")
    until_held(server, 1)
    listed = {int(line["id"]): line for line in lines(clients[0])}
    assert set(numbers) <= set(listed)
    for index, (client, number) in enumerate(zip(clients, numbers)):
        line = listed[number]
        host, port = client.socket.getsockname()
        assert (line["name"], line["addr"]) == (f"name{index}", f"{host}:{port}")
        assert line["laddr"] == f"{host}:{server.port}"
        assert int(line["age"]) <= 60 and int(line["idle"]) <= 60
    assert [listed[number]["flags"] for number in numbers] == ["N", "P", "x", "N", "b", "N", "N"]
    assert [listed[number]["db"] for number in numbers] == ["0", "0", "0", "3", "0", "0", "0"]
    assert [listed[number]["multi"] for number in numbers] == ["-1", "-1", "1", "-1", "-1", "-1", "-1"]
    assert listed[numbers[3]]["cmd"] == "select" and listed[numbers[4]]["cmd"] == "blpop"
    assert [int(line["id"]) for line in lines(clients[0], "TYPE", "pubsub")] == [numbers[1]]
    assert numbers[1] not in [int(line["id"]) for line in lines(clients[0], "TYPE", "normal")]
    assert lines(clients[0], "TYPE", "replica") == []
    assert {int(line["id"]) for line in lines(clients[0], "ID", numbers[2], numbers[5], 10**15)} == {numbers[2], numbers[5]}
    (own,) = lines(clients[3], "ID", numbers[3])
    info = dict(field.split("=", 1) for field in clients[3].call("CLIENT", "INFO").decode().split())
    assert {own[name] for name in ("id", "addr", "db")} == {info[name] for name in ("id", "addr", "db")}
    for client in clients:
        client.close()


def test_clients_are_sent_away_by_address_number_user_and_kind(server):
    client = Client(server.port)
    port_of = lambda other: "%s:%d" % other.socket.getsockname()  # noqa: E731
    for words in (["ADDR", port_of], ["ID", lambda other: other.call("CLIENT", "ID")]):
        others = [here(server) for _ in range(4)]
        for other in others[:3]:
            assert client.call("CLIENT", "KILL", words[0], words[1](other)) == 1
            assert is_gone(other)
        assert not is_gone(others[3])
    other = here(server)
    assert client.call("CLIENT", "KILL", port_of(other)) == "OK" and is_gone(other)
    assert client.call("CLIENT", "KILL", "127.0.0.1:1") == Refused("ERR No such client")
    assert client.call("CLIENT", "KILL", "ID", "123456789") == 0

    listening, waiting = [Client(server.port) for _ in range(3)], [Client(server.port) for _ in range(3)]
    for other in listening:
        other.call("SUBSCRIBE", "x")
    for other in waiting:
        other.send("BLPOP", "nothing", "0")
    until_held(server, 3)
    assert client.call("CLIENT", "KILL", "TYPE", "pubsub") == 3
    assert client.call("PUBLISH", "x", "y") == 0
    assert client.call("CLIENT", "KILL", "LADDR", f"127.0.0.1:{server.port}", "SKIPME", "yes") >= 4
    assert all(is_gone(other) for other in (*listening, *waiting))
    until_held(server, 0)

    client.call("ACL", "SETUSER", "guest", "on", "nopass", "+@all", "~*")
    guests = [Client(server.port) for _ in range(3)]
    for guest in guests:
        guest.call("AUTH", "guest", "x")
    assert client.call("CLIENT", "KILL", "USER", "guest", "SKIPME", "no") == 3
    assert all(is_gone(guest) for guest in guests)
    assert client.call("CLIENT", "KILL", "USER", "nobody") == Refused("ERR No such user 'nobody'")
    client.call("ACL", "DELUSER", "guest")


def test_who_sends_itself_away_is_told_so_before(server):
    for words in (lambda c: ["%s:%d" % c.socket.getsockname()], lambda c: ["ID", c.call("CLIENT", "ID"), "SKIPME", "no"]):
        for _ in range(3):
            client = Client(server.port)
            words_of = words(client)
            assert client.call("CLIENT", "KILL", *words_of) in ("OK", 1)
            assert is_gone(client)
    client = Client(server.port)
    assert client.call("CLIENT", "KILL", "ID", client.call("CLIENT", "ID")) == 0
    assert not is_gone(client)


def test_wrong_words_about_clients_are_refused_as_by_redis(redis, savanna):
    theirs, ours = Client(redis.port), Client(savanna.port)
    for words in (
        ["KILL"], ["KILL", "1.2.3.4:5"], ["KILL", "ID", "0"], ["KILL", "ID", "x"], ["KILL", "TYPE", "x"], ["KILL", "USER", "nobody"],
        ["KILL", "SKIPME", "x"], ["KILL", "x", "y"], ["KILL", "ID"], ["KILL", "ID", "1", "x"], ["LIST", "TYPE", "x"],
        ["LIST", "ID", "x"], ["LIST", "x"], ["LIST", "TYPE"], ["LIST", "TYPE", "normal", "x"], ["LIST", "ID"], ["PAUSE"], ["PAUSE", "x"],
        ["PAUSE", "-1"], ["PAUSE", "1", "x"], ["PAUSE", "99999999999999999999"], ["PAUSE", "0"], ["UNPAUSE", "x"], ["UNPAUSE"],
        ["REPLY", "x"], ["REPLY"], ["REPLY", "ON"], ["nosuch"], ["NO-EVICT", "x"], ["NO-EVICT", "on"], ["GETNAME", "x"], ["ID", "x"],
        ["SETNAME", "a b"], ["UNBLOCK"], ["INFO", "x"],
    ):  # fmt: skip
        assert ours.call("CLIENT", *words) == theirs.call("CLIENT", *words), words


def test_the_oldest_clients_are_sent_away(savanna):
    client, other = Client(savanna.port), here(savanna)
    assert client.call("CLIENT", "KILL", "MAXAGE", "1000000") == 0 and not is_gone(other)
    assert client.call("CLIENT", "KILL", "ADDR", "%s:%d" % other.socket.getsockname(), "MAXAGE", "0") == 1
    assert is_gone(other)
    assert client.call("CLIENT", "KILL", "MAXAGE", "x") == Refused("ERR maxage is not an integer or out of range")


WRITES = [
    ["SET", "a", "1"], ["INCR", "b"], ["MSET", "a", "1", "b", "2", "c", "3"], ["DEL", "a"], ["PUBLISH", "x", "y"], ["FLUSHALL"],
    ["EVAL", "return 1", "0"], ["EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", "a"], ["BLPOP", "l", "0.01"], ["SORT", "l"],
    ["EXPIRE", "a", "10"], ["FLUSHDB"], ["GETEX", "a"],
]  # fmt: skip
READS = [
    ["GET", "a"], ["MGET", "a", "b", "c"], ["EXISTS", "a"], ["DBSIZE"], ["KEYS", "*"], ["SCAN", "0"], ["PING"], ["EVAL_RO", "return 1", "0"],
    ["EVAL", "#!lua flags=no-writes\nreturn 1", "0"], ["SORT_RO", "l"], ["WATCH", "a"], ["CONFIG", "GET", "timeout"], ["SCRIPT", "FLUSH"],
    ["CLIENT", "LIST"], ["INFO"], ["MULTI"],
]  # fmt: skip


def test_a_pause_of_writes_holds_back_what_may_write_and_nothing_else(server):
    operator = Client(server.port)
    clients = [Client(server.port) for _ in WRITES]
    assert operator.call("CLIENT", "PAUSE", "100000", "WRITE") == "OK"
    for words in READS:
        other = Client(server.port)
        assert not isinstance(other.call(*words), Refused), words
        other.close()
    for count, (client, words) in enumerate(zip(clients, WRITES), 1):
        client.send(*words)
        until_held(server, count)
    time.sleep(0.1)
    assert operator.call("DBSIZE") == 0
    assert [line["flags"] for line in lines(operator) if line["cmd"] in ("incr", "mset")] == ["b", "b"]
    assert operator.call("CLIENT", "UNPAUSE") == "OK"
    assert not any(isinstance(client.receive(), Refused) for client in clients)
    until_held(server, 0)
    for client in clients:
        client.close()


def test_a_transaction_that_writes_is_held_back_in_whole(server):
    operator, reader, writer, late = (Client(server.port) for _ in range(4))
    for client, step in ((reader, "GET"), (writer, "INCR")):
        assert client.call("MULTI") == "OK"
        assert client.call(step, "a") == "QUEUED"
    assert operator.call("CLIENT", "PAUSE", "100000", "WRITE") == "OK"
    assert reader.call("EXEC") == [None]
    writer.send("EXEC")
    late.call("MULTI")
    late.send("INCR", "a")
    until_held(server, 2)
    assert operator.call("GET", "a") is None
    operator.call("CLIENT", "UNPAUSE")
    assert writer.receive() == [1]
    assert late.receive() == "QUEUED" and late.call("EXEC") == [2]


def test_keys_whose_time_has_come_are_gone_and_counted_in_a_pause(server):
    client = Client(server.port)
    for number in range(10):
        client.call("SET", f"short {number}", "x", "PX", "1000")
        client.call("SET", f"long {number}", "x")
    assert client.call("CLIENT", "PAUSE", "100000", "WRITE") == "OK"
    time.sleep(1.3)
    assert client.call("DBSIZE") == 20
    assert client.call("EXISTS", "short 1", "long 1", "short 2") == 1
    assert client.call("GET", "short 3") is None and client.call("TTL", "short 4") == -2
    assert client.call("TYPE", "short 4") == "none" and client.call("OBJECT", "ENCODING", "short 4") is None
    assert len(client.call("KEYS", "*")) == 10
    assert b"keys=20,expires=10" in client.call("INFO", "keyspace")
    assert client.call("RANDOMKEY").startswith(b"long")
    client.call("CLIENT", "UNPAUSE")
    deadline = time.monotonic() + 10
    while client.call("DBSIZE") != 10:
        assert time.monotonic() < deadline


def test_nothing_is_evicted_in_a_pause(server):
    client = Client(server.port)
    for number in range(300):
        client.call("SET", f"key {number}", "x" * 1000)
    used = int(client.call("INFO", "memory").decode().split("used_memory:")[1].split()[0])
    assert client.call("CLIENT", "PAUSE", "100000", "WRITE") == "OK"
    client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", used - 100_000)
    for number in range(300):
        assert client.call("GET", f"key {number}") == b"x" * 1000
    time.sleep(0.2)
    assert client.call("DBSIZE") == 300
    client.call("CLIENT", "UNPAUSE")
    client.call("SET", "one", "more")
    deadline = time.monotonic() + 10
    while client.call("DBSIZE") > 290:
        client.call("SET", "one", "more")
        assert time.monotonic() < deadline
    client.call("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")


def test_a_pause_of_all_ends_by_itself(server):
    client, other = Client(server.port), Client(server.port)
    began = time.monotonic()
    assert client.call("CLIENT", "PAUSE", "300") == "OK"
    for asking in (client, other):
        asking.send("PING")
        asking.send("SET", "a", "1")
    assert other.receive() == "PONG" and client.receive() == "PONG"
    assert time.monotonic() - began >= 0.29
    assert other.receive() == "OK" and client.receive() == "OK"


def test_who_paused_all_can_go_on_before_the_time(savanna):
    # Redis holds back this, too.
    clients = [Client(savanna.port) for _ in range(4)]
    assert clients[0].call("CLIENT", "PAUSE", "100000", "ALL") == "OK"
    for client in clients[1:3]:
        client.send("GET", "nothing")
    assert clients[3].call("CLIENT", "UNPAUSE") == "OK"
    assert [client.receive() for client in clients[1:3]] == [None, None]


def test_who_hangs_up_while_held_back_writes_nothing(server):
    client, other = Client(server.port), Client(server.port)
    client.call("CLIENT", "PAUSE", "100000", "WRITE")
    other.send("SET", "a", "1")
    until_held(server, 1)
    other.close()
    until_held(server, 0)
    client.call("CLIENT", "UNPAUSE")
    assert client.call("GET", "a") is None


def test_requests_keep_their_order_over_pauses(server):
    """Clients write while another one pauses again and again: each sees its own writes, in order, none twice."""
    stop = threading.Event()
    counts = {}

    def work(name):
        client, count = Client(server.port), 0
        while not stop.is_set():
            for _ in range(5):
                client.send("INCR", name)
                client.send("GET", name)
            for _ in range(5):
                count += 1
                assert (client.receive(), client.receive()) == (count, b"%d" % count)
        counts[name] = count

    workers = [threading.Thread(target=work, args=(f"count {number}",)) for number in range(4)]
    for worker in workers:
        worker.start()
    operator = Client(server.port)
    for _ in range(20):
        assert operator.call("CLIENT", "PAUSE", "20000", "WRITE") == "OK"
        before = operator.call("MGET", *[f"count {number}" for number in range(4)])
        time.sleep(0.01)
        assert operator.call("MGET", *[f"count {number}" for number in range(4)]) == before
        operator.call("CLIENT", "UNPAUSE")
        time.sleep(0.005)
    stop.set()
    for worker in workers:
        worker.join()
    assert len(counts) == 4


def test_a_client_is_answered_only_if_it_wants_to_be(server):
    client = Client(server.port)

    def answers(*requests):
        """What comes for requests, up to the reply of an ECHO behind them all."""
        for request in requests:
            client.send(*request)
        client.send("ECHO", "end")
        came = []
        while not came or came[-1] != b"end":
            came.append(client.receive())
        return came[:-1]

    keys = [f"key {number}" for number in range(6)]
    assert answers(["CLIENT", "REPLY", "SKIP"], ["SET", "a", "1"], ["GET", "a"]) == [b"1"]
    assert answers(["CLIENT", "REPLY", "SKIP"], ["NOSUCH"], ["GET", "a"]) == [b"1"]
    assert answers(["CLIENT", "REPLY", "SKIP"], ["CLIENT", "REPLY", "SKIP"], ["PING"], ["GET", "a"]) == [b"1"]
    assert answers(["CLIENT", "REPLY", "SKIP"], ["CLIENT", "REPLY", "ON"]) == ["OK"]
    assert answers(["CLIENT", "REPLY", "ON"]) == ["OK"]
    off = [["CLIENT", "REPLY", "OFF"], *[["SET", key, "x"] for key in keys], ["MGET", *keys], ["NOSUCH"], ["CLIENT", "REPLY", "SKIP"]]
    assert answers(*off, ["GET", "a"], ["CLIENT", "REPLY", "ON"], ["EXISTS", *keys]) == ["OK", 6]
    assert answers(["CLIENT", "REPLY", "OFF"], ["BLPOP", "nothing", "0.01"], ["CLIENT", "REPLY", "ON"]) == ["OK"]
    assert answers(["CLIENT", "REPLY", "OFF"], ["RESET"]) == ["RESET"]
    client.close()


def test_messages_come_also_to_who_wants_no_replies(server):
    client, other = Client(server.port, 3), Client(server.port)
    client.send("CLIENT", "REPLY", "OFF")
    client.send("SUBSCRIBE", "x")
    assert client.receive() == [b"subscribe", b"x", 1]
    assert other.call("PUBLISH", "x", "y") == 1
    assert client.receive() == [b"message", b"x", b"y"]
    client.send("CLIENT", "REPLY", "ON")
    assert client.receive() == "OK"


def test_what_a_library_says_of_itself_is_listed(savanna):
    client = here(savanna)
    assert client.call("CLIENT", "SETINFO", "LIB-NAME", "jedis") == "OK"
    assert client.call("CLIENT", "SETINFO", "lib-ver", "5.1.0") == "OK"
    for words in (["CLIENT", "INFO"], ["CLIENT", "LIST", "ID", client.call("CLIENT", "ID")]):
        assert b" lib-name=jedis lib-ver=5.1.0\n" in client.call(*words)
    assert client.call("CLIENT", "SETINFO", "LIB-NAME", "a b").startswith("ERR lib-name cannot contain spaces")
    assert client.call("CLIENT", "SETINFO", "LIB-PLACE", "x").startswith("ERR Unrecognized option")
    client.close()
