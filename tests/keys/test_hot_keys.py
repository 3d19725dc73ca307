"""Keys that are read very often get replicas on all threads by themselves within a budget, and lose them again; redis-py's clients see no difference."""

import multiprocessing
import random
import time

import pytest
import redis

from conftest import Server

THREADS = 3
SETTINGS = ("--threads", THREADS, "--hot-keys-memory", "1mb", "--hot-keys-min-requests", "20000", "--appendfsync", "always")


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path, *SETTINGS)
    yield server
    server.kill()


def clients(server, count=2 * THREADS):
    return [redis.Redis(port=server.port) for _ in range(count)]


def read(port, keys, seconds):
    """Reads keys in batches, as several clients."""
    connections = [redis.Redis(port=port) for _ in range(THREADS)]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for connection in connections:
            pipeline = connection.pipeline(transaction=False)
            for key in keys:
                pipeline.get(key)
            pipeline.execute()


def replicas(client, key):
    return client.execute_command("SAV.REPLICAS", key)


def heat(server, keys, until, seconds=60):
    """Reads keys until something is so."""
    deadline = time.monotonic() + seconds
    reader = multiprocessing.get_context("spawn").Process(target=read, args=(server.port, keys, seconds))
    reader.start()
    try:
        while not until():
            assert time.monotonic() < deadline, "it did not become so"
            time.sleep(0.1)
    finally:
        reader.kill()
        reader.join()


def stats(client):
    return {name: value for name, value in client.info("stats").items() if name.startswith("hot_keys")}


def test_a_hot_key_gets_replicas_and_all_clients_see_what_is_written(server):
    own = clients(server)
    for number in range(1000):
        own[0].set(f"cold:{number}", "x")
    own[0].set("hot", "before")
    load = ["hot"] * 60 + [f"cold:{number}" for number in range(40)]
    heat(server, load, lambda: replicas(own[0], "hot") == THREADS)
    assert stats(own[0]) == {"hot_keys_replicated": 1, "hot_keys_replications": 1, "hot_keys_undone": 0}
    assert all(replicas(own[0], f"cold:{number}") == 1 for number in range(40))
    time.sleep(0.5)
    # Who writes sees it at once; the others within the time that changes take.
    for number in range(50):
        writer = random.choice(own)
        value = f"value {number}".encode()
        writer.set("hot", value)
        assert writer.get("hot") == value
        deadline = time.monotonic() + 10
        while any(client.get("hot") != value for client in own):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_what_is_larger_than_the_budget_is_not_replicated(server):
    own = clients(server)
    own[0].config_set("hot-keys-min-requests", "2000")
    own[0].set("large", "x" * 80_000)
    own[0].set("hot", "x")
    heat(server, ["hot", "large"], lambda: replicas(own[0], "hot") == THREADS)
    time.sleep(2)
    assert replicas(own[0], "large") == 1


def test_nothing_is_replicated_without_a_budget(tmp_path):
    server = Server(tmp_path, "--threads", THREADS, "--hot-keys-min-requests", "1000")
    own = clients(server)
    own[0].set("hot", "x")
    read(server.port, ["hot"] * 100, 4)
    assert replicas(own[0], "hot") == 1
    server.kill()


def test_replicas_go_when_the_budget_goes(server):
    own = clients(server)
    own[0].set("hot", "x")
    heat(server, ["hot"] * 100, lambda: replicas(own[0], "hot") == THREADS)
    own[0].config_set("hot-keys-memory", "0")
    deadline = time.monotonic() + 30
    while replicas(own[0], "hot") > 1:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert stats(own[0])["hot_keys_replicated"] == 0
    assert all(client.get("hot") == b"x" for client in own)


@pytest.mark.long
def test_a_key_that_has_cooled_loses_its_replicas(server):
    own = clients(server)
    own[0].set("hot", "x")
    heat(server, ["hot"] * 100, lambda: replicas(own[0], "hot") == THREADS)
    # Counts halve each minute.
    deadline = time.monotonic() + 900
    while replicas(own[0], "hot") > 1:
        assert time.monotonic() < deadline
        time.sleep(1)
    assert all(client.get("hot") == b"x" for client in own)


def test_a_kill_loses_nothing_that_was_acknowledged_to_a_hot_key(server):
    own = clients(server)
    own[0].sadd("hot", "first")
    deadline = time.monotonic() + 60
    while replicas(own[0], "hot") < THREADS:
        assert time.monotonic() < deadline
        pipelines = [client.pipeline(transaction=False) for client in own]
        for pipeline in pipelines:
            for _ in range(500):
                pipeline.sismember("hot", "first")
            pipeline.execute()
    for round in range(3):
        acknowledged = [f"{round}:{number}" for number in range(100)]
        for member in acknowledged:
            random.choice(own).sadd("hot", member)
        server.kill()
        server.start()
        own = clients(server)
        for client in own:
            deadline = time.monotonic() + 10
            while not set(acknowledged) <= {member.decode() for member in client.smembers("hot")}:
                assert time.monotonic() < deadline, "something is missing"
                time.sleep(0.05)
