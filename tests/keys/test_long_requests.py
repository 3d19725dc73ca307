"""A megabyte of anything is answered or refused, and others are served meanwhile; `HANG` only guards against what never ends."""

import random
import socket
import threading

import pytest

from conftest import THREADS, Server
from resp import Client

SIZE = 1 << 20
HANG = 60


@pytest.fixture(scope="module", params=THREADS, ids=lambda threads: f"{threads}-threads")
def server(request, tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("long"), "--threads", request.param)
    yield server
    server.kill()


def client_of(server):
    client = Client(server.port)
    client.socket.settimeout(HANG)
    return client


def filled(piece):
    return piece * (SIZE // len(piece))


SCRIPTS = {
    "parentheses": "return " + filled("("), "closed": "return " + "(" * (SIZE // 2) + "1" + ")" * (SIZE // 2),
    "sums": "return 1" + filled("+1"), "texts": "return 'a'" + filled("..'a'"), "powers": "return 1" + filled("^1"),
    "nots": "return " + filled("not ") + "1", "minuses": "return " + filled("- ") + "1", "tables": "return " + filled("{"),
    "blocks": filled("do "), "functions": filled("function() "), "calls": "return f" + filled("()"), "fields": "return f" + filled(".a"),
    "locals": filled("local a "), "ands": "return 1" + filled(" and 1"), "long texts": "return [" + filled("="),
    "comments": filled("--[["), "labels": filled("if a then "), "lists": "return {" + filled("1,") + "}", "zeros": filled("\0"),
    "digits": "return " + filled("1"), "arguments": "return f(" + filled("1,") + "1)", "newlines": filled("\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts(server, name):
    client, other = client_of(server), client_of(server)
    client.send("EVAL", SCRIPTS[name], 0)
    assert other.call("PING") == "PONG"
    client.receive()
    assert other.call("PING") == "PONG"


def test_words_behind_every_command(server):
    other = client_of(server)
    ends = {"quit", "shutdown", "subscribe", "psubscribe", "ssubscribe", "multi", "psync"}
    names = sorted({entry[0].decode() for entry in other.call("COMMAND")} - ends)
    for name in names:
        for words in (["k", *["1"] * (SIZE // 8)], ["k", "*" * SIZE], ["k", "0", "MATCH", "*a" * (SIZE // 2)]):
            client = client_of(server)
            client.send(name, *words)
            # Behind it, so that also what is answered with many replies has come to its end.
            client.send("ECHO", "the end")
            assert other.call("PING") == "PONG"
            while client.receive() not in (b"the end", [b"pong", b"the end"]):
                pass
            client.close()
    assert other.call("FLUSHALL") == "OK"


GARBAGE = {
    "lines": b"x\r\n", "empty": b"\r\n", "blanks": b" ", "quotes": b'"', "pings": b"PING\r\n", "stars": b"*", "empty lists": b"*0\r\n",
    "null lists": b"*-1\r\n", "lists of one": b"*1\r\n$1\r\nx\r\n", "empty words": b"*1\r\n$0\r\n\r\n", "zeros": b"\0", "digits": b"*1",
    "lists of lists": b"*1\r\n*1\r\n", "nothing": b"*3\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n", "multi": b"MULTI\r\n", "exec": b"MULTI\r\nEXEC\r\n",
    "hello": b"HELLO 3\r\n", "eval": b"EVAL x 0\r\n", "ends of lines": b"\n",
    "random": random.Random(1).randbytes(SIZE), "random lines": bytes(random.Random(2).choices(b"\r\n*$1 abcGET", k=SIZE)),
}  # fmt: skip


def read_all(client):
    try:
        while client.recv(1 << 20):
            pass
    except OSError:
        pass


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage(server, name):
    other = client_of(server)
    client = socket.create_connection(("127.0.0.1", server.port), timeout=HANG)
    reading = threading.Thread(target=read_all, args=[client])
    reading.start()
    try:
        client.sendall(filled(GARBAGE[name]))
        assert other.call("PING") == "PONG"
        client.shutdown(socket.SHUT_WR)
    except OSError:
        # It was refused, and the connection ended.
        pass
    reading.join(HANG)
    assert not reading.is_alive()
    assert other.call("PING") == "PONG"
    client.close()
    assert other.call("PING") == "PONG"
