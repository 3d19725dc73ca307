"""A connection that ends after any byte of any handshake is let go: it takes no processor time, no descriptor, and nobody's place."""

import base64
import functools
import hashlib
import hmac
import socket
import ssl
import struct
import time

import pytest

from conftest import PASSWORD, TOKEN, USER
from node import Node

SSL_REQUEST = struct.pack(">ii", 8, 80877103)
ANYBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ANYBODY.check_hostname, ANYBODY.verify_mode = False, ssl.CERT_NONE


class Ended(Exception):
    """All bytes that the client was to send are sent."""


class Cut:
    """A connection over which so many bytes are sent, and then nothing more."""

    def __init__(self, port, bytes_max):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.left = bytes_max
        self.tls = None

    def encrypt(self):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = ANYBODY.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.pump(self.tls.do_handshake)
        self.raw_send(self.outgoing.read())

    def pump(self, step):
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.raw_send(self.outgoing.read())
                self.incoming.write(self.raw_receive())

    def raw_send(self, data):
        part = data[:self.left]
        self.socket.sendall(part)
        self.left -= len(part)
        if len(part) < len(data):
            raise Ended

    def raw_receive(self):
        data = self.socket.recv(65536)
        assert data, "the node ended the connection"
        return data

    def send(self, data):
        if self.tls is None:
            return self.raw_send(data)
        self.tls.write(data)
        return self.raw_send(self.outgoing.read())

    def receive(self):
        return self.raw_receive() if self.tls is None else self.pump(lambda: self.tls.read(65536))


@functools.cache
def salted(salt, iterations):
    return hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, iterations)


def postgresql(client, database, encrypted, guarded):
    """Logs in (RFC 5802), and says goodbye."""
    if encrypted or not guarded:
        client.send(SSL_REQUEST)
        assert client.receive() == (b"S" if encrypted else b"N")
    if encrypted:
        client.encrypt()
    received = b""

    def message(kind):
        nonlocal received
        while True:
            if len(received) >= 5:
                length = 1 + struct.unpack(">i", received[1:5])[0]
                if len(received) >= length:
                    found, received = received[:length], received[length:]
                    if found[:1] == kind:
                        return found[5:]
                    assert found[:1] != b"E", found
                    continue
            received += client.receive()

    def say(kind, body):
        client.send(kind + struct.pack(">i", 4 + len(body)) + body)

    say(b"", struct.pack(">i", 3 << 16) + f"user\0{USER}\0database\0{database}\0\0".encode())
    if guarded:
        header, mechanism, bound = b"n,,", b"SCRAM-SHA-256", b""
        if encrypted:
            header, mechanism = b"p=tls-server-end-point,,", b"SCRAM-SHA-256-PLUS"
            bound = hashlib.sha256(client.tls.getpeercert(True)).digest()
        offered = message(b"R")
        assert mechanism + b"\0" in offered
        first = b"n=,r=abc"
        say(b"p", mechanism + b"\0" + struct.pack(">i", len(header + first)) + header + first)
        challenge = message(b"R")[4:]
        nonce, salt, iterations = (part[2:] for part in challenge.split(b","))
        key = hmac.digest(salted(base64.b64decode(salt), int(iterations)), b"Client Key", "sha256")
        last = b"c=" + base64.b64encode(header + bound) + b",r=" + nonce
        signature = hmac.digest(hashlib.sha256(key).digest(), b",".join([first, challenge, last]), "sha256")
        say(b"p", last + b",p=" + base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))))
    message(b"Z")
    say(b"X", b"")


def http(client, encrypted, guarded):
    if encrypted:
        client.encrypt()
    token = f"authorization: Bearer {TOKEN}\r\n" if guarded else ""
    client.send(f"POST /api/v1/sql/split HTTP/1.1\r\nhost: localhost\r\n{token}content-type: application/json\r\n"
                'content-length: 12\r\nconnection: close\r\n\r\n{"sql":"a;"}'.encode())
    assert client.receive().startswith(b"HTTP/1.1 200 ")


FACES = {
    "pgwire": functools.partial(postgresql, database="savanna_streams"),
    "tenants": functools.partial(postgresql, database="postgres"),
    "http": http,
}


def speak(port, face, bytes_max, slam, **how):
    """Whether the conversation came to its end. If not, the client goes away, with or without a word to the other side."""
    client = Cut(port, bytes_max)
    try:
        FACES[face](client, **how)
        return True
    except Ended:
        if slam:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            client.socket.shutdown(socket.SHUT_WR)
            try:
                while client.socket.recv(65536):
                    pass
            except ConnectionResetError:
                pass
        return False
    finally:
        client.socket.close()


def quiet_within(node, seconds=1):
    """Processor time in some seconds in which nobody asks for anything."""
    before = node.processor_seconds()
    time.sleep(seconds)
    return node.processor_seconds() - before


@pytest.fixture(scope="module")
def locked(papers, tmp_path_factory):
    """A node on the loopback that asks for passwords, and for no encryption."""
    settings = {name: value for name, value in papers[0].items() if "HTTP" not in name}
    node = Node(tmp_path_factory.mktemp("locked"), settings)
    yield node
    node.kill()


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("asks_for", ["nothing", "a password", "encryption"])
@pytest.mark.parametrize("slam", [False, True], ids=["says it ends", "is reset"])
def test_a_connection_that_ends_anywhere_in_a_handshake_is_let_go(node, locked, guarded, face, asks_for, slam):
    server = {"nothing": node, "a password": locked, "encryption": guarded}[asks_for]
    port, how = server.ports[face], {"encrypted": server is guarded, "guarded": server is not node}
    assert speak(port, face, 1 << 20, slam, **how)
    idle, descriptors = quiet_within(server), server.descriptors()
    cuts = 0
    while not speak(port, face, cuts, slam, **how):
        cuts += 1
        assert cuts < 5_000
    assert cuts > 40
    for _ in range(300):
        if server.descriptors() <= descriptors:
            break
        time.sleep(0.1)
    assert server.descriptors() <= descriptors, "descriptors are given back"
    assert quiet_within(server) <= idle + 0.3, "nobody spins"
    assert speak(port, face, 1 << 20, slam, **how)
