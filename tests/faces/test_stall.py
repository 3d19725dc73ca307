"""What holds a node up for a while is no take-over: it goes on when it can, and starts again at once when it was killed."""

import json
import os
import resource
import signal
import time
import urllib.request

import pytest
import redis

from node import Node

# Short, so that the tests are quick.
LEASE = {"SAVANNA_LEASE_TTL": "600ms", "SAVANNA_LEASE_MARGIN": "100ms"}
STALL = 3.0


@pytest.fixture
def own_node(tmp_path):
    node = Node(tmp_path, LEASE)
    yield node
    node.kill()


def lease(node):
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['http']}/api/v1/status", timeout=60) as answer:
        return json.load(answer)["lease"]


def serves_again(node, client, epoch):
    """On the connections that there were, under the same epoch."""
    assert client.incr("count") == 2
    while not lease(node)["serving"]:
        time.sleep(0.05)
    # One that gives up takes a moment to end.
    time.sleep(STALL)
    assert node.process.poll() is None, node.log.read_text()
    assert lease(node) == {**lease(node), "epoch": epoch, "serving": True}
    assert client.incr("count") == 3


def test_a_stopped_node_goes_on_when_it_is_continued(own_node):
    epoch = lease(own_node)["epoch"]
    with redis.Redis(port=own_node.ports["keys"]) as client:
        assert client.incr("count") == 1
        own_node.process.send_signal(signal.SIGSTOP)
        time.sleep(STALL)
        own_node.process.send_signal(signal.SIGCONT)
        serves_again(own_node, client, epoch)


def test_a_node_without_a_free_descriptor_keeps_its_lease(own_node):
    epoch = lease(own_node)["epoch"]
    pid = own_node.process.pid
    with redis.Redis(port=own_node.ports["keys"]) as client:
        assert client.incr("count") == 1
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))
        time.sleep(STALL)
        assert client.get("count") == b"1"
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        serves_again(own_node, client, epoch)
    assert "not renewed" not in own_node.log.read_text()


def test_who_follows_a_killed_node_does_not_wait(own_node, tmp_path):
    with redis.Redis(port=own_node.ports["keys"]) as client:
        client.config_set("appendfsync", "always")
        assert client.incr("count") == 1
    before = lease(own_node)["epoch"]
    own_node.kill()
    next_node = Node(tmp_path, {"SAVANNA_LEASE_TTL": "1h", "SAVANNA_LEASE_MARGIN": "100ms"})
    try:
        assert lease(next_node)["epoch"] == before + 1
        with redis.Redis(port=next_node.ports["keys"]) as client:
            assert client.incr("count") == 2
    finally:
        next_node.kill()
