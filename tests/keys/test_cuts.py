"""Connections that end after each byte of their beginning, and descriptors that are used up: they cost nobody else anything."""

import os
import resource
import socket
import ssl
import struct
import time

import pytest

from conftest import THREADS, Server, free_port
from papers import sign
from resp import Client

REQUESTS = {
    "hello": b"*7\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$6\r\nsecret\r\n$7\r\nSETNAME\r\n$1\r\nx\r\n",
    "auth": b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*1\r\n$4\r\nPING\r\n",
    "inline": b"AUTH secret\r\nSET key 'a value'\r\nGET key\r\n",
    "transaction": b"AUTH secret\r\n*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n*1\r\n$4\r\nEXEC\r\n",
}


def shut_and_close(client):
    client.shutdown(socket.SHUT_WR)
    client.close()


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def shut_and_stay(client):
    client.shutdown(socket.SHUT_WR)
    return client


ENDINGS = {"close": socket.socket.close, "shut": shut_and_close, "reset": reset, "half": shut_and_stay}


@pytest.fixture(scope="module", params=THREADS, ids=lambda threads: f"{threads}-threads")
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuts")
    papers, port = sign(folder), free_port()
    server = Server(
        folder, "--threads", request.param, "--tls-port", port, "--tls-auth-clients", "no",
        "--tls-cert-file", papers / "ours-server.pem", "--tls-key-file", papers / "ours-server.key",
        "--requirepass", "secret",
    )  # fmt: skip
    server.tls_port, server.papers = port, papers
    # What is written first opens the log, which stays open: it is none of the connections' descriptors.
    client = Client(server.port)
    assert client.call("AUTH", "secret") == "OK" and client.call("SET", "key", "value") == "OK"
    client.close()
    yield server
    server.kill()


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def processor_seconds(server):
    fields = open(f"/proc/{server.process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def assert_at_rest(server):
    before = processor_seconds(server)
    time.sleep(1)
    assert processor_seconds(server) - before < 0.2, "it spins"


def assert_unharmed(server, descriptors_before):
    """Nothing spins, and what the connections had is given back."""
    client = Client(server.port)
    assert client.call("AUTH", "secret") == "OK" and client.call("PING") == "PONG"
    deadline = time.monotonic() + 30
    while descriptors(server) > descriptors_before + 1:
        assert time.monotonic() < deadline, "descriptors are not given back"
        time.sleep(0.01)
    assert b"connected_clients:1\r\n" in client.call("INFO", "clients")
    client.close()
    assert_at_rest(server)


def quiet_descriptors(server):
    """Those that it has without clients."""
    client = Client(server.port)
    client.call("AUTH", "secret")
    deadline = time.monotonic() + 30
    while b"connected_clients:1\r\n" not in client.call("INFO", "clients"):
        assert time.monotonic() < deadline, "another connection stays"
        time.sleep(0.01)
    client.close()
    time.sleep(0.1)
    return descriptors(server)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", REQUESTS)
def test_a_plain_connection_that_ends_after_each_byte(server, name, ending):
    before, request = quiet_descriptors(server), REQUESTS[name]
    stayed = []
    for cut in range(len(request) + 1):
        client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        client.sendall(request[:cut])
        stayed.append(ENDINGS[ending](client))
    for client in filter(None, stayed):
        # It is told what there is to be told, and then the same: that nothing follows.
        while client.recv(1 << 16):
            pass
        client.close()
    assert_unharmed(server, before)


def handshake(server, version):
    """What a client says in a handshake and one request, part by part; before each part it hears what the server says."""
    context = ssl.create_default_context(cafile=server.papers / "ours.pem")
    context.minimum_version = context.maximum_version = version
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(heard, said, server_hostname="localhost")
    while True:
        try:
            tls.do_handshake()
            tls.write(b"AUTH secret\r\nPING\r\n")
            heard.write((yield said.read()))
            return
        except ssl.SSLWantReadError:
            heard.write((yield said.read()))


def say(server, version, count):
    """A client that says so many bytes of a handshake and a request. Tells whether that was all."""
    client = socket.create_connection(("127.0.0.1", server.tls_port), timeout=30)
    parts = handshake(server, version)
    part = next(parts)
    while count >= len(part):
        client.sendall(part)
        count -= len(part)
        try:
            part = parts.send(client.recv(1 << 16))
        except StopIteration:
            return client, True
        # More of what the server says is needed first.
        while not part:
            part = parts.send(client.recv(1 << 16))
    client.sendall(part[:count])
    return client, False


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_an_encrypted_connection_that_ends_after_each_byte(server, version, ending):
    before = quiet_descriptors(server)
    cut, is_whole, stayed = 0, False, []
    while not is_whole:
        client, is_whole = say(server, version, cut)
        stayed.append(ENDINGS[ending](client))
        cut += 1
        if len(stayed) == 100 or is_whole:
            for client in filter(None, stayed):
                try:
                    while client.recv(1 << 16):
                        pass
                except ConnectionResetError:
                    pass
                client.close()
            stayed = []
    assert cut > 300
    assert_unharmed(server, before)


@pytest.mark.parametrize("threads", [1, 3])
def test_without_a_free_descriptor_those_who_are_there_are_served(tmp_path, threads):
    limit = 128
    server = Server(tmp_path, "--threads", threads)
    try:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        clients = []
        for _ in range(limit + 20):
            # Each at once: who says nothing for a second gives way to who comes later.
            clients.append(Client(server.port))
            clients[-1].send("PING")
        served = []
        for client in clients:
            client.socket.settimeout(2 if len(served) > 10 else 30)
            try:
                served.append(client.receive() == "PONG")
            except TimeoutError:
                break
        assert 30 < len(served) < limit and all(served)
        waiting = clients[len(served) :]
        for client in clients[: len(served)]:
            assert client.call("SET", "key", "value") == "OK" and client.call("GET", "key") == b"value"
        assert_at_rest(server)
        # Who waits is served when others go.
        for client in clients[: len(served) - 5]:
            client.close()
        for client in waiting[:20]:
            client.socket.settimeout(30)
            # A reader that timed out reads no more.
            client.reader = client.socket.makefile("rb")
            assert client.receive() == "PONG"
    finally:
        server.kill()
