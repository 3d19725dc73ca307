"""Encrypted connections: who is let in, and that a pipeline of any length comes through."""

import socket
import ssl

import pytest

from conftest import Server, free_port
from papers import sign
from resp import Client


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    return sign(tmp_path_factory.mktemp("papers"))


def start(papers, tmp_path, clients, threads=2):
    port = free_port()
    server = Server(
        tmp_path, "--threads", threads, "--tls-port", port, "--tls-auth-clients", clients,
        "--tls-cert-file", papers / "ours-server.pem", "--tls-key-file", papers / "ours-server.key",
        "--tls-ca-cert-file", papers / "ours.pem",
    )  # fmt: skip
    server.tls_port = port
    return server


@pytest.fixture(params=["no", "optional", "yes"])
def server(papers, tmp_path, request):
    server = start(papers, tmp_path, request.param)
    server.clients = request.param
    yield server
    server.kill()


def encrypted(server, papers, trusts="ours", shows=None):
    context = ssl.create_default_context(cafile=papers / f"{trusts}.pem")
    if shows:
        context.load_cert_chain(papers / f"{shows}-client.pem", papers / f"{shows}-client.key")
    client = Client(server.port)
    client.close()
    client.socket = context.wrap_socket(socket.create_connection(("127.0.0.1", server.tls_port), timeout=30), server_hostname="localhost")
    client.reader = client.socket.makefile("rb")
    return client


def is_let_in(server, papers, shows):
    try:
        return encrypted(server, papers, shows=shows).call("PING") == "PONG"
    except OSError:
        return False


def test_certificates_decide_who_is_let_in(server, papers):
    assert is_let_in(server, papers, None) == (server.clients != "yes")
    assert is_let_in(server, papers, "ours")
    assert is_let_in(server, papers, "foreign") == (server.clients == "no")
    with pytest.raises(ssl.SSLError):
        encrypted(server, papers, trusts="foreign", shows="ours")
    assert Client(server.port).call("PING") == "PONG"


@pytest.fixture
def open_server(papers, tmp_path):
    server = start(papers, tmp_path, "no")
    yield server
    server.kill()


def test_long_values_and_long_pipelines_come_through(open_server, papers):
    client = encrypted(open_server, papers)
    value = bytes(range(256)) * 20_000
    assert client.call("SET", "long", value) == "OK"
    for _ in range(3):
        client.send("GET", "long")
    for _ in range(3):
        assert client.receive() == value
    for number in range(3000):
        client.send("SET", f"k:{number}", number)
    assert [client.receive() for _ in range(3000)] == ["OK"] * 3000
    # In small pieces.
    for byte in b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n":
        client.socket.sendall(bytes([byte]))
    assert client.receive() == b"hi"


def test_messages_are_encrypted_too(open_server, papers):
    listener, speaker = encrypted(open_server, papers), Client(open_server.port)
    listener.call("SUBSCRIBE", "news")
    while speaker.call("PUBLISH", "news", "x" * 100_000) == 0:
        pass
    assert listener.receive() == [b"message", b"news", b"x" * 100_000]


def test_who_does_not_speak_tls_costs_only_itself(open_server, papers):
    neighbour = encrypted(open_server, papers)
    idle = [socket.create_connection(("127.0.0.1", open_server.tls_port)) for _ in range(50)]
    for number, client in enumerate(idle):
        client.sendall([b"PING\r\n", b"\x16\x03\x01\xff\xff", b"\x16", b"\x16\x03\x01\x00\x02\x01\x00"][number % 4])
    assert neighbour.call("PING") == "PONG"
    idle[0].settimeout(30)
    while idle[0].recv(1000):
        pass


def test_redis_py_speaks_it(open_server, papers):
    redis = pytest.importorskip("redis")
    client = redis.Redis(port=open_server.tls_port, ssl=True, ssl_ca_certs=str(papers / "ours.pem"))
    assert client.set("a", 1) and client.get("a") == b"1"
    assert client.pipeline().incr("a").incr("a").execute() == [2, 3]


def test_settings_that_do_not_fit_are_named(papers, tmp_path):
    for words, named in [
        (["--tls-cert-file", "nowhere"], "tls-cert-file"),
        (["--tls-key-file", str(papers / "foreign-client.key")], "tls-key-file"),
        (["--tls-auth-clients", "yes", "--tls-ca-cert-file", "nowhere"], "tls-ca-cert-file"),
    ]:
        files = ["--tls-cert-file", papers / "ours-server.pem", "--tls-key-file", papers / "ours-server.key"]
        options = ["--tls-port", free_port(), "--tls-auth-clients", "no", *files, *words]
        assert named in Server.refusal(tmp_path, *options)
