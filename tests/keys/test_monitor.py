"""MONITOR: to Savanna and to redis-server."""

import re

import pytest

from resp import Client


def words_of(line):
    """Database, client and words of a line."""
    found = re.fullmatch(r"(\d+\.\d{6}) \[(\d+) (\S+)\] (.*)", line)
    assert found, line
    return found[2], found[3], found[4]


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_request_is_shown_to_who_listens(redis, savanna, protocol):
    for server in (redis, savanna):
        clients = [Client(server.port) for _ in range(4)]
        for client in clients:
            client.call("PING")
        monitors = [Client(server.port, protocol) for _ in range(3)]
        for monitor in monitors:
            assert monitor.call("MONITOR") == "OK"
        # The other threads hear of it a moment later.
        seen = set()
        while len(seen) < len(monitors):
            for client in clients:
                client.call("ECHO", "begin")
            for monitor in monitors:
                monitor.socket.settimeout(0.2)
                try:
                    if words_of(monitor.receive())[2] == '"ECHO" "begin"':
                        seen.add(monitor)
                except TimeoutError:
                    pass
                monitor.socket.settimeout(30)
                monitor.reader = monitor.socket.makefile("rb")
        secret = Client(server.port)
        assert secret.call("AUTH", "default", "a password") is not None
        for number, client in enumerate(clients):
            client.call("SELECT", number)
            client.call("SET", f"key:{number}", b"a \"b\"\r\n\x00\xff")
        clients[0].call("EVAL", "return redis.call('GET', KEYS[1])", 1, "key:0")
        clients[0].call("ECHO", "end")
        for monitor in monitors:
            shown = []
            # What threads tell has no order among them.
            while ("0", "lua", '"GET" "key:0"') not in shown or '"ECHO" "end"' not in [words for *_, words in shown]:
                shown.append(words_of(monitor.receive()))
            texts = [(database, words) for database, _, words in shown]
            for number in range(len(clients)):
                assert (str(number), f'"SET" "key:{number}" "a \\"b\\"\\r\\n\\x00\\xff"') in texts
            assert ("0", '"GET" "key:0"') in texts and ("0", "lua", '"GET" "key:0"') in shown
            assert not any("password" in words for _, words in texts)
        assert monitors[0].call("RESET") == "RESET"
        clients[0].call("ECHO", "more")
        assert monitors[0].call("PING") == "PONG"
        for client in (*clients, *monitors, secret):
            client.close()
    assert Client(savanna.port).call("PING") == "PONG"
