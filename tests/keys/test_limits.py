"""Limits of connections: what a hostile or a slow client costs, it costs itself."""

import resource
import socket

import pytest

from conftest import SERVER, Server
from resp import Client, Refused


@pytest.fixture(scope="module", params=[1, 3], ids=lambda threads: f"{threads}-threads")
def server(request, tmp_path_factory):
    server = Server([SERVER, "--threads", str(request.param)], tmp_path_factory.mktemp("limits") / "log")
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def settings(server):
    yield
    client = Client(server.port)
    for name, value in [
        ("timeout", 0), ("maxclients", 10000), ("client-query-buffer-limit", "1gb"), ("slowlog-log-slower-than", 10000),
        ("client-output-buffer-limit", "normal 0 0 0 pubsub 32mb 8mb 60"),
    ]:  # fmt: skip
        assert client.call("CONFIG", "SET", name, value) == "OK"


def is_gone(client):
    try:
        while client.socket.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_an_idle_client_is_sent_away_and_a_listener_stays(server):
    idle, listener, busy = (Client(server.port) for _ in range(3))
    listener.call("SUBSCRIBE", "news")
    busy.call("CONFIG", "SET", "timeout", 1)
    idle.socket.settimeout(0.05)
    while not is_gone(idle):
        assert busy.call("PING") == "PONG"
    assert busy.call("PUBLISH", "news", "x") == 1
    assert listener.receive() == [b"message", b"news", b"x"]


def test_a_listener_that_does_not_read_is_sent_away_by_the_hard_limit(server):
    listener, speaker = Client(server.port), Client(server.port)
    speaker.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0")
    listener.call("SUBSCRIBE", "loud")
    while speaker.call("PUBLISH", "loud", "x" * 100_000) == 0:
        pass
    while speaker.call("PUBLISH", "loud", "x" * 100_000) > 0:
        pass
    assert is_gone(listener)


def test_a_listener_that_reads_too_slowly_is_sent_away_by_the_soft_limit(server):
    listener, speaker = Client(server.port), Client(server.port)
    speaker.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 1mb 1")
    listener.call("SUBSCRIBE", "soft")
    while speaker.call("PUBLISH", "soft", "x") == 0:
        pass
    for _ in range(200):
        speaker.call("PUBLISH", "soft", "x" * 100_000)
    while speaker.call("PUBSUB", "NUMSUB", "soft") != [b"soft", 0]:
        pass
    assert is_gone(listener)


def test_who_leaves_replies_unread_is_sent_away_where_a_limit_says_so(server):
    client, other = Client(server.port), Client(server.port)
    other.call("SET", "big", "x" * 1_000_000)
    other.call("CONFIG", "SET", "client-output-buffer-limit", "normal 2mb 0 0")
    client.socket.settimeout(10)
    try:
        for _ in range(100):
            client.send("MGET", *["big"] * 5)
    except OSError:
        pass
    assert is_gone(client)
    assert other.call("PING") == "PONG"


def test_clients_that_are_too_many_are_told_so(server):
    first = Client(server.port)
    first.call("CONFIG", "SET", "maxclients", 20)
    clients, refused = [], 0
    for _ in range(40):
        client = Client(server.port)
        try:
            refused += client.call("PING") == Refused("ERR max number of clients reached")
        except OSError:
            refused += 1
        clients.append(client)
    assert refused >= 20
    for client in clients:
        client.close()
    while Client(server.port).call("PING") != "PONG":
        pass


def test_a_request_that_is_too_long_is_no_request(server):
    client, other = Client(server.port), Client(server.port)
    other.call("CONFIG", "SET", "client-query-buffer-limit", "1mb")
    assert client.call("SET", "a", "x" * 900_000) == "OK"
    client.send("MSET", *["x" * 300_000] * 8)
    assert client.receive() == Refused("ERR Protocol error: too big request")
    assert is_gone(client)


@pytest.mark.parametrize("threads", [1, 3])
def test_thousands_of_half_requests_cost_nobody_else(tmp_path, threads):
    server = Server([SERVER, "--threads", str(threads)], tmp_path / "log")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    count = min(3000, hard - 200)
    beginnings = [b"*1048576\r\n", b"*2\r\n$536870912\r\nabc", b"*1\r\n$3\r\nGE", b"SET a", b"*1000000\r\n" + b"$1\r\na\r\n" * 100]
    clients = []
    for number in range(count):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(beginnings[number % len(beginnings)])
        clients.append(client)
    neighbour = Client(server.port)
    for number in range(1000):
        assert neighbour.call("SET", "a", number) == "OK"
    resident = next(
        int(line.split()[1]) for line in open(f"/proc/{server.process.pid}/status") if line.startswith("VmRSS")
    )
    assert resident < 400_000, "kilobytes for thousands of clients that promise much and send little"
    for client in clients:
        client.close()
    server.kill()


def test_what_ran_long_is_kept(server):
    client = Client(server.port)
    client.call("CLIENT", "SETNAME", "me")
    assert client.call("SLOWLOG", "RESET") == "OK"
    assert client.call("SLOWLOG", "GET") == []
    client.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
    client.call("SET", "a", "x" * 1000)
    client.call("CONFIG", "SET", "slowlog-log-slower-than", -1)
    slow = []
    while not any(entry[3][0] == b"SET" for entry in slow):
        slow = client.call("SLOWLOG", "GET", -1)
    number, at, micros, words, address, name = next(entry for entry in slow if entry[3][0] == b"SET")
    assert words == [b"SET", b"a", b"x" * 128 + b"... (872 more bytes)"]
    assert at > 1_700_000_000 and micros >= 0 and name in (b"me", b"")
    assert client.call("SLOWLOG", "LEN") == len(slow)
    for bad in ("-2", "x"):
        assert client.call("SLOWLOG", "GET", bad) == Refused("ERR count should be greater than or equal to -1")


@pytest.mark.parametrize("name, values", [
    ("client-output-buffer-limit", ["normal 1 2", "nobody 1 2 3", "normal x 2 3", "pubsub 1 2 -3"]),
    ("client-query-buffer-limit", ["x", "1kb"]), ("slowlog-log-slower-than", ["-2", "x"]), ("tcp-keepalive", ["-1", "x"]),
    ("tls-port", ["1"]), ("aclfile", ["x"]),
])  # fmt: skip
def test_settings_are_refused_in_whole(server, name, values):
    client = Client(server.port)
    before = client.call("CONFIG", "GET", name)
    for value in values:
        assert isinstance(client.call("CONFIG", "SET", name, value), Refused), value
    assert client.call("CONFIG", "GET", name) == before
