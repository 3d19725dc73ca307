"""Commands that wait, with several clients, to Savanna and to redis-server."""

import pytest

from resp import Client, Refused

KEYS = ["a", "b", "c", "d", "e"]


@pytest.fixture(params=["redis", "savanna"])
def server(request, redis, savanna):
    server = {"redis": redis, "savanna": savanna}[request.param]
    Client(server.port).call("FLUSHALL")
    return server


def wait(server, *words):
    """A client that asks for something and does not look for the reply, and its number."""
    client = Client(server.port)
    number = client.call("CLIENT", "ID")
    client.send(*words)
    return client, number


def until_blocked(server, count):
    """Returns when so many clients wait."""
    other = Client(server.port)
    while True:
        text = next(line for line in other.call("INFO", "clients").decode().split() if line.startswith("blocked_clients"))
        if int(text.split(":")[1]) == count:
            return


def test_the_first_to_wait_is_served_first(server):
    clients = []
    for index in range(5):
        clients.append(wait(server, "BLPOP", *KEYS, "0")[0])
        until_blocked(server, index + 1)
    assert Client(server.port).call("RPUSH", "c", "1", "2", "3", "4", "5") == 5
    assert [client.receive() for client in clients] == [[b"c", b"%d" % n] for n in range(1, 6)]
    assert Client(server.port).call("EXISTS", "c") == 0


@pytest.mark.parametrize("waiting, pushing", [
    (["BLMPOP", "0", "3", "a", "b", "c", "LEFT"], ["RPUSH"]), (["BRPOP", "a", "b", "c", "0"], ["RPUSH"]),
    (["BZMPOP", "0", "3", "a", "b", "c", "MIN"], ["ZADD", "1"]), (["BZPOPMIN", "a", "b", "c", "0"], ["ZADD", "1"]),
])  # fmt: skip
def test_the_key_that_a_transaction_pushed_to_first_serves(server, waiting, pushing):
    other = Client(server.port)
    for keys in (["b", "a", "c"], ["c", "b", "a"], ["a", "c", "b"]):
        client, _ = wait(server, *waiting)
        until_blocked(server, 1)
        other.call("MULTI")
        for key in [*keys, keys[0]]:
            other.call(pushing[0], key, *pushing[1:], f"{key}1")
        other.call("EXEC")
        assert client.receive()[0].decode() == keys[0]
        other.call("FLUSHALL")


def test_a_client_that_went_away_takes_nothing(server):
    gone, _ = wait(server, "BLPOP", "a", "b", "0")
    until_blocked(server, 1)
    there, _ = wait(server, "BLPOP", "a", "b", "0")
    until_blocked(server, 2)
    gone.close()
    until_blocked(server, 1)
    assert Client(server.port).call("LPUSH", "a", "x") == 1
    assert there.receive() == [b"a", b"x"]


def test_waiting_ends_with_the_time_or_by_another_client(server):
    other = Client(server.port)
    assert other.call("BLPOP", "a", "b", "0.05") is None
    assert other.call("BZPOPMAX", "a", "b", "0.05") is None
    for how, expected in ((["TIMEOUT"], None), ([], None), (["ERROR"], Refused("UNBLOCKED client unblocked via CLIENT UNBLOCK"))):
        client, number = wait(server, "BLMOVE", "a", "b", "LEFT", "RIGHT", "0")
        until_blocked(server, 1)
        assert other.call("CLIENT", "UNBLOCK", number, *how) == 1
        assert client.receive() == expected
        assert other.call("CLIENT", "UNBLOCK", number, *how) == 0
    assert other.call("CLIENT", "UNBLOCK", "1", "x") == Refused("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")


def test_a_chain_of_moves_runs_to_its_end(server):
    clients = [wait(server, "BLMOVE", key, then, "LEFT", "RIGHT", "0")[0] for key, then in zip(KEYS, KEYS[1:])]
    until_blocked(server, 4)
    other = Client(server.port)
    assert other.call("RPUSH", "a", "x") == 1
    assert [client.receive() for client in clients] == [b"x"] * 4
    assert other.call("LRANGE", "e", "0", "-1") == [b"x"]


def test_what_a_transaction_pushes_is_given_when_it_is_over(server):
    client, _ = wait(server, "BZPOPMIN", "a", "b", "0")
    until_blocked(server, 1)
    other = Client(server.port)
    other.call("MULTI")
    other.call("ZADD", "b", "2", "two")
    other.call("ZADD", "b", "1", "one")
    other.call("SET", "c", "x")
    other.call("EXEC")
    assert client.receive() == [b"b", b"one", b"1"]
