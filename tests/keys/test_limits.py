"""Limits of connections: what a hostile or a slow client costs, it costs itself."""

import re
import resource
import socket
import time

import pytest

from conftest import THREADS, Server
from resp import Client, Refused


@pytest.fixture(scope="module", params=THREADS, ids=lambda threads: f"{threads}-threads")
def server(request, tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("limits"), "--threads", request.param)
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


def wait_until(is_so, seconds=30):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"it is not so after {seconds} s"
        time.sleep(0.01)


def resident(server):
    """Kilobytes of memory."""
    lines = open(f"/proc/{server.process.pid}/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


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


def test_silent_clients_keep_nobody_out(server):
    """A client that has asked for nothing in its first second goes for one that comes, the oldest first; one that has asked stays."""
    first = Client(server.port)
    first.call("CONFIG", "SET", "maxclients", 20)
    silent = [Client(server.port) for _ in range(60)]
    time.sleep(1.2)
    clients = [Client(server.port) for _ in range(10)]
    assert [client.call("PING") for client in clients] == ["PONG"] * 10
    assert all(is_gone(client) for client in silent[:10]), "the oldest went"
    assert first.call("PING") == "PONG"


def test_clients_without_a_password_keep_nobody_out(server):
    first = Client(server.port)
    first.call("CONFIG", "SET", "requirepass", "secret", "maxclients", 20)
    strangers = [Client(server.port) for _ in range(19)]
    for client in strangers[9:]:
        assert client.call("PING") == Refused("NOAUTH Authentication required.")
    time.sleep(1.2)
    last = Client(server.port)
    assert last.call("AUTH", "secret") == "OK" and last.call("PING") == "PONG"
    assert first.call("CONFIG", "SET", "requirepass", "") == "OK"


def test_a_request_that_is_too_long_is_no_request(server):
    client, other = Client(server.port), Client(server.port)
    other.call("CONFIG", "SET", "client-query-buffer-limit", "1mb")
    assert client.call("SET", "a", "x" * 900_000) == "OK"
    # Only as far as the length that is too much: what is sent and read by nobody would end the connection by a reset.
    word = b"$300000\r\n" + b"x" * 300_000 + b"\r\n"
    client.socket.sendall(b"*9\r\n$4\r\nMSET\r\n" + word * 3 + b"$300000\r\n")
    assert client.receive() == Refused("ERR Protocol error: too big request")
    assert is_gone(client)
    assert other.call("EXISTS", "x" * 300_000) == 0


def test_a_loud_publisher_ends_no_server_and_its_neighbours_are_served(server):
    neighbour = Client(server.port)
    neighbour.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 4mb 0 0")
    listeners = [Client(server.port) for _ in range(100)]
    for listener in listeners:
        assert listener.call("SUBSCRIBE", "flood")[0] == b"subscribe"
    speaker = Client(server.port)
    speaker.socket.settimeout(60)
    wait_until(lambda: speaker.call("PUBSUB", "NUMSUB", "flood") == [b"flood", 100])
    for _ in range(50):
        speaker.send("PUBLISH", "flood", "x" * 1_000_000)
        assert neighbour.call("PING") == "PONG"
    counts = [speaker.receive() for _ in range(50)]
    assert counts[0] == 100
    # Who does not read is sent away.
    wait_until(lambda: speaker.call("PUBLISH", "flood", "x") == 0)
    assert all(is_gone(listener) for listener in listeners)
    assert resident(server) < 2_000_000


def test_no_reply_is_longer_than_its_limit(server):
    client, other = Client(server.port), Client(server.port)
    other.call("SETRANGE", "long", 99_999_999, "x")
    # Within no limit of its own: an error in the place of 10 GB.
    assert client.call("MGET", *["long"] * 100) == Refused("ERR the reply is too long; ask for it in parts")
    assert client.call("PING") == "PONG"
    assert other.call("BITOP", "OR", "union", *["long"] * 3) == 100_000_000
    other.call("CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 0 0")
    client.send("GET", "long")
    assert is_gone(client)
    assert resident(server) < 3_000_000
    other.call("DEL", "long", "union")


@pytest.mark.parametrize("end", [b"", b"SET a", b"PING\r\n"])
def test_who_says_something_and_leaves_is_gone(server, end):
    other = Client(server.port)
    for _ in range(200):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(end)
        client.close()
    wait_until(lambda: int(re.search(rb"connected_clients:(\d+)", other.call("INFO"))[1]) < 20)


def test_who_hangs_up_is_answered_first(server):
    for request in (b"PING\r\n", b"MGET a b c d e f\r\n" * 3 + b"PING\r\n"):
        client = Client(server.port)
        client.socket.sendall(request)
        client.socket.shutdown(socket.SHUT_WR)
        client.socket.settimeout(30)
        assert client.reader.read().endswith(b"+PONG\r\n")


def test_a_web_page_sends_no_commands(server):
    other = Client(server.port)
    other.call("SET", "precious", 1)
    for head in (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n"):
        client = Client(server.port)
        client.socket.sendall(head + b"FLUSHALL\r\n")
        assert is_gone(client)
    assert other.call("GET", "precious") == b"1"


def test_who_is_being_answered_is_not_idle(server):
    client, other = Client(server.port), Client(server.port)
    # What the system keeps for the client, the server has sent: it must not be as much as is read within the timeout.
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    other.call("SETRANGE", "slow", 30_000_000, "x")
    other.call("CONFIG", "SET", "timeout", 1)
    client.send("GET", "slow")
    read, began = 0, time.monotonic()
    # Over three seconds, at one pace, however busy the machine is.
    while read < 30_000_001:
        due = (time.monotonic() - began) * 10_000_000
        while read < min(due, 30_000_001):
            received = client.socket.recv(100_000)
            assert received
            read += len(received)
        assert other.call("PING") == "PONG"
        time.sleep(0.02)
    other.call("DEL", "slow")


def test_a_reply_is_in_the_protocol_of_its_request(server):
    for _ in range(6):
        client = Client(server.port)
        client.socket.sendall(b"GET missing\r\nGET none\r\nHELLO 3\r\nGET missing\r\n")
        assert client.reader.read(10) == b"$-1\r\n$-1\r\n"
        assert dict(client.receive())[b"proto"] == 3
        assert client.reader.readline() == b"_\r\n"


@pytest.mark.parametrize("threads", [1, 3])
def test_thousands_of_half_requests_cost_nobody_else(tmp_path, threads):
    server = Server(tmp_path, "--threads", threads)
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
    assert resident(server) < 400_000, "kilobytes for thousands of clients that promise much and send little"
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
    client.call("CONFIG", "SET", "slowlog-log-slower-than", 0)
    client.call("SLOWLOG", "RESET")
    assert client.call("SLOWLOG", "GET", -1)[-1][3] == [b"SLOWLOG", b"RESET"]
    client.call("CONFIG", "SET", "slowlog-log-slower-than", -1)
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


@pytest.mark.parametrize("threads", [1, 3])
def test_memory_of_long_replies_and_of_flushed_keys_goes_back_without_a_request(tmp_path, threads):
    server = Server(tmp_path, "--threads", threads)
    start = resident(server)
    clients = [Client(server.port) for _ in range(6)]
    for _ in range(40):
        clients[0].call("RPUSH", "list", *["x" * 100] * 5_000)
    for client in clients:
        assert len(client.call("LRANGE", "list", 0, -1)) == 200_000
    for number in range(0, 200_000, 1_000):
        client = clients[number // 1_000 % 6]
        client.call("MSET", *[word for key in range(number, number + 1_000) for word in (f"key{key}", "v" * 100)])
    for client in clients:
        assert len(client.call("KEYS", "*")) == 200_001
    assert resident(server) > start + 60_000
    clients[0].call("FLUSHALL")
    wait_until(lambda: resident(server) < start + 40_000)
    server.kill()
