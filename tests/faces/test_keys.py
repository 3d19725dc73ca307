"""The Redis face with redis-py and redis-cli."""

import subprocess
import threading
import time

import pytest
import redis

from node import Node


@pytest.fixture
def client(node):
    with redis.Redis(port=node.ports["keys"], decode_responses=True, protocol=3) as client:
        yield client


def test_redis_cli_writes_and_reads(node):
    cli = ["redis-cli", "-p", str(node.ports["keys"])]
    run = lambda *words: subprocess.run([*cli, *words], capture_output=True, text=True, timeout=60, check=True).stdout
    assert run("SET", "cli:greeting", "hello") == "OK\n"
    assert run("GET", "cli:greeting") == "hello\n"


def test_keys_of_several_threads_change_as_one(client):
    names = [f"account:{number}" for number in range(16)]
    with client.pipeline() as transaction:
        for name in names:
            transaction.incrby(name, 5)
        assert transaction.execute() == [5] * len(names)
    assert client.mget(names) == ["5"] * len(names)
    with client.pipeline() as transaction:
        transaction.watch(*names)
        client.incr(names[3])
        transaction.multi()
        transaction.delete(*names)
        with pytest.raises(redis.WatchError):
            transaction.execute()


def test_a_message_reaches_who_listens(client):
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe("news")
        assert listener.get_message(timeout=60) is None
        assert client.publish("news", "rain") == 1
        assert listener.get_message(timeout=60)["data"] == "rain"


def test_nothing_acknowledged_is_lost_when_the_process_is_killed_under_everysec(tmp_path):
    """Nothing is flushed before the reply: the operating system has it."""
    told = [0] * 4

    def write(thread, port):
        try:
            with redis.Redis(port=port, retry=None) as client:
                while True:
                    client.set(f"{thread}:{told[thread]}", "x" * 100)
                    told[thread] += 1
        except redis.ConnectionError:
            pass

    for _ in range(3):
        node = Node(tmp_path)
        before = sum(told)
        with redis.Redis(port=node.ports["keys"]) as client:
            assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
            names = [f"{thread}:{number}" for thread, count in enumerate(told) for number in range(count)]
            assert not names or client.exists(*names) == len(names)
        threads = [threading.Thread(target=write, args=(thread, node.ports["keys"])) for thread in range(len(told))]
        for thread in threads:
            thread.start()
        while sum(told) < before + 1000:
            time.sleep(0.001)
        node.kill()
        for thread in threads:
            thread.join()
    node = Node(tmp_path)
    try:
        with redis.Redis(port=node.ports["keys"]) as client:
            names = [f"{thread}:{number}" for thread, count in enumerate(told) for number in range(count)]
            assert client.exists(*names) == len(names)
    finally:
        node.kill()
