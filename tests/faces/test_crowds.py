"""More clients than there are places or descriptors: they hear so or are sent away, and keep nobody out."""

import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request

import psycopg
import pytest
import redis

from node import Node

CLIENTS_MAX = 512


def silent(port, count):
    return [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(count)]


def select_one(node, port="pgwire", database="savanna_streams"):
    address = f"host=127.0.0.1 port={node.ports[port]} user=postgres dbname={database} connect_timeout=60"
    with psycopg.connect(address, autocommit=True) as connection:
        return connection.execute("SELECT 1 AS one").fetchone() == (1,)


def healthy(node):
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['http']}/healthz", timeout=60) as answer:
        return answer.status == 200


def ready(port):
    """A connection to streams that was let in."""
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    startup = struct.pack(">i", 3 << 16) + b"user\0u\0database\0savanna_streams\0\0"
    client.sendall(struct.pack(">i", 4 + len(startup)) + startup)
    received = b""
    while b"Z\0\0\0\5I" not in received:
        more = client.recv(4096)
        assert more, received
        received += more
    return client


def test_a_client_of_streams_that_is_one_too_many_hears_so(tmp_path):
    node = Node(tmp_path)
    try:
        clients = [ready(node.ports["pgwire"]) for _ in range(CLIENTS_MAX)]
        with pytest.raises(psycopg.OperationalError, match="too many clients already"):
            select_one(node)
        command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(node.ports["pgwire"]), "-U", "postgres", "-d", "savanna_streams", "-c", "SELECT 1"]
        done = subprocess.run([*command, "-v", "VERBOSITY=verbose"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and f"There are {CLIENTS_MAX}" in done.stderr, done.stderr
        assert healthy(node)
        clients.pop().close()
        # Its place is free when it was seen that it went.
        for _ in range(1_000):
            try:
                assert select_one(node)
                return
            except psycopg.OperationalError as error:
                assert "too many clients" in str(error)
        raise AssertionError("the place of a client that went stays taken")
    finally:
        node.kill()


@pytest.mark.parametrize("face", ["pgwire", "tenants", "http"])
def test_silent_clients_keep_nobody_out(node, face):
    clients = silent(node.ports[face], 300)
    assert select_one(node) and select_one(node, "tenants", "postgres") and healthy(node)
    for client in clients[:20]:
        assert client.recv(1) == b"", "the oldest went"
    for client in clients:
        client.close()


@pytest.mark.parametrize("files_max", [64, 1024])
def test_clients_without_end_leave_descriptors_for_others(tmp_path, files_max):
    node = Node(tmp_path, files_max=files_max)
    clients = []
    try:
        for face in ("http", "pgwire", "tenants"):
            clients += silent(node.ports[face], min(files_max, 400))
            for client in clients:
                try:
                    client.send(b"GET" if face == "http" else b"\0")
                except OSError:
                    pass
        assert healthy(node) and select_one(node) and select_one(node, "tenants", "postgres")
        before = node.processor_seconds()
        time.sleep(2)
        assert node.processor_seconds() - before < 1, "nobody spins"
        assert node.process.poll() is None
        with redis.Redis(port=node.ports["keys"]) as keys:
            assert keys.incr("count") == 1
    finally:
        node.kill()
        for client in clients:
            client.close()


def test_half_requests_and_slow_bodies_keep_nobody_out(tmp_path):
    node = Node(tmp_path, files_max=1024)
    port = node.ports["http"]
    try:
        half = silent(port, 1_100)
        for client in half:
            try:
                client.sendall(b"GET /healthz HTTP/1.1\r\nhost:")
            except OSError:
                pass
        assert healthy(node)
        slow = silent(port, 256)
        for client in slow:
            client.sendall(b"POST /api/v1/sql/split HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{")
        assert healthy(node) and select_one(node) and select_one(node, "tenants", "postgres")
        for client in half + slow:
            client.close()
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/status", timeout=60) as answer:
                    assert answer.status == 200
                    break
            except urllib.error.HTTPError as error:
                assert error.code == 503
    finally:
        node.kill()


def test_known_clients_that_stay_leave_descriptors_for_others(tmp_path):
    """Connections that were used once and are kept open, as those of a pool."""
    node = Node(tmp_path, files_max=1024)
    pool = []
    try:
        for _ in range(1_100):
            client = socket.create_connection(("127.0.0.1", node.ports["http"]), timeout=60)
            pool.append(client)
            client.sendall(b"GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n")
            answer = client.recv(4096)
            if not answer.startswith(b"HTTP/1.1 200 "):
                assert answer.startswith(b"HTTP/1.1 503 "), answer
                break
        else:
            raise AssertionError("nobody was told that there is no place")
        assert select_one(node) and select_one(node, "tenants", "postgres")
        with redis.Redis(port=node.ports["keys"]) as keys:
            assert keys.incr("count") == 1
    finally:
        node.kill()
        for client in pool:
            client.close()
