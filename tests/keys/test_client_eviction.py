"""`maxmemory-clients`: who has to go when clients take too much memory all together."""

import time

import pytest

from conftest import THREADS, Server
from resp import Client, Refused
from test_operating import info

MEGABYTE = 1 << 20


@pytest.fixture(params=THREADS, ids=lambda threads: f"{threads}-threads")
def server(request, tmp_path):
    server = Server(tmp_path, "--threads", request.param, "--maxmemory-clients", "20mb")
    yield server
    server.kill()


def begin_long_request(client, size):
    """Sends a request but for its last word, whose beginning is that long."""
    client.socket.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (64 * MEGABYTE) + b"x" * size)


def is_there(client):
    """Whether the client is still connected: it has not been hung up on."""
    client.socket.settimeout(0.2)
    try:
        return client.socket.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_client_that_takes_most_goes_and_the_others_stay(server):
    admin = Client(server.port)
    assert admin.call("CLIENT", "NO-EVICT", "on") == "OK"
    assert b"flags=e " in admin.call("CLIENT", "INFO")
    assert admin.call("RESET") == "RESET" and b"flags=N " in admin.call("CLIENT", "INFO"), "whoever it is next has no such right"
    assert admin.call("CLIENT", "NO-EVICT", "on") == "OK"
    small, large = Client(server.port), Client(server.port)
    begin_long_request(small, 4 * MEGABYTE)
    wait_for(lambda: int(info(admin)["mem_clients_normal"]) > 4 * MEGABYTE)
    assert info(admin)["evicted_clients"] == "0"
    try:
        begin_long_request(large, 24 * MEGABYTE)
    except ConnectionError:
        pass
    wait_for(lambda: info(admin)["evicted_clients"] == "1")
    assert not is_there(large) and is_there(small)
    assert admin.call("SET", "other", "clients are served") == "OK"
    assert int(info(admin)["mem_clients_normal"]) < 20 * MEGABYTE


def test_who_is_not_to_go_stays_and_a_part_of_maxmemory_is_a_limit(server):
    admin, kept = Client(server.port), Client(server.port)
    for client in (admin, kept):
        assert client.call("CLIENT", "NO-EVICT", "on") == "OK"
    other = Client(server.port)
    assert other.call("PING") == "PONG"
    assert admin.call("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-clients", "1%") == "OK"
    assert admin.call("CONFIG", "GET", "maxmemory-clients") == [b"maxmemory-clients", b"1%"]
    begin_long_request(kept, 16 * MEGABYTE)
    # Nobody but the other client may go, which takes little.
    wait_for(lambda: info(admin)["evicted_clients"] == "1")
    assert is_there(kept) and not is_there(other)
    assert admin.call("CONFIG", "SET", "maxmemory-clients", "101%").startswith("ERR CONFIG SET failed")
    assert admin.call("CLIENT", "NO-EVICT", "maybe") == Refused("ERR syntax error")


def test_replies_that_nobody_reads_count_and_without_a_limit_nobody_goes(server):
    admin = Client(server.port)
    assert admin.call("CLIENT", "NO-EVICT", "on") == "OK"
    assert admin.call("SET", "long", "x" * MEGABYTE) == "OK"
    assert admin.call("CONFIG", "SET", "maxmemory-clients", "0") == "OK"
    slow = Client(server.port)
    for _ in range(8):
        slow.send("GET", "long")
    time.sleep(1.5)
    assert info(admin)["evicted_clients"] == "0"
    assert admin.call("CONFIG", "SET", "maxmemory-clients", "256kb") == "OK"
    wait_for(lambda: info(admin)["evicted_clients"] == "1")
    assert admin.call("GET", "long") is not None
