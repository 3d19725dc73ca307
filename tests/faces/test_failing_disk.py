"""A disk that fails under one service of a running node: the others stay, the service comes back by itself when the disk does,
and nothing that was acknowledged is lost."""

import json
import pathlib
import subprocess
import time
import urllib.request

import psycopg
import pytest
import redis

from node import Node

FAULTS = pathlib.Path(__file__).parent / "faults" / "faults.c"
# Long enough for anything that comes at all.
PATIENCE = 60
UNREACHABLE = (OSError, redis.RedisError, psycopg.Error)


@pytest.fixture(scope="session")
def faults(tmp_path_factory):
    """What is loaded before the C library."""
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, FAULTS], check=True)
    return library


class Disk:
    """The disk of a node, as the tests want it."""

    def __init__(self, control):
        self.control = control

    def fails(self, calls, part):
        """From now on: which calls (w: writes, s: flushes), on paths with this part."""
        whole = self.control.with_suffix(".new")
        whole.write_text(f"{calls} {part}\n")
        whole.rename(self.control)

    def works(self):
        self.control.unlink()


@pytest.fixture
def node_and_disk(faults, tmp_path):
    control = tmp_path / "control"
    node = Node(tmp_path, {"LD_PRELOAD": str(faults), "FAULTS": str(control)})
    node.again = lambda: Node(tmp_path)
    yield node, Disk(control)
    node.kill()


class Keys:
    """Acknowledged keys of a node."""

    folder = "/data/keys/"

    def __init__(self, node):
        self.port = node.ports["keys"]
        self.told = []
        with self.client() as client:
            client.config_set("appendfsync", "always")

    def client(self):
        return redis.Redis(port=self.port, socket_timeout=3, single_connection_client=True)

    def write(self):
        with self.client() as client:
            assert client.set(f"key:{len(self.told)}", "x" * 1000)
        self.told.append(len(self.told))

    def read(self):
        with self.client() as client:
            return {at for at in range(len(self.told) + 1) if client.exists(f"key:{at}")}


class Tenants:
    """Acknowledged rows of a node."""

    folder = "/data/tenants/log/"

    def __init__(self, node):
        self.port = node.ports["tenants"]
        self.told = []
        with self.connection() as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, filling text)")

    def connection(self):
        return psycopg.connect(
            f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres connect_timeout=10", autocommit=True
        )

    def write(self):
        with self.connection() as connection:
            # One that was not acknowledged may be there all the same.
            connection.execute("INSERT INTO t VALUES (%s, %s) ON CONFLICT DO NOTHING", (len(self.told), "x" * 1000))
        self.told.append(len(self.told))

    def read(self):
        with self.connection() as connection:
            return {id for (id,) in connection.execute("SELECT id FROM t")}


def eventually(attempt, *errors):
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except errors:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def refusal(service):
    """Writes until that fails, and says why."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            service.write()
        except UNREACHABLE as error:
            return str(error)
    raise AssertionError("a disk that fails took everything")


def status(node):
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['http']}/api/v1/status", timeout=10) as answer:
        return json.load(answer)


@pytest.mark.parametrize("calls", ["s", "w"], ids=["flush", "write"])
@pytest.mark.parametrize(("failing", "other"), [(Keys, Tenants), (Tenants, Keys)], ids=["keys", "tenants"])
def test_a_service_restarts_itself(node_and_disk, failing, other, calls):
    node, disk = node_and_disk
    service, neighbour = failing(node), other(node)
    for _ in range(20):
        service.write()
    neighbour.write()
    disk.fails(calls, service.folder)
    refusal(service)
    neighbour.write()
    assert neighbour.read() == set(neighbour.told)
    name = failing.__name__.lower()

    def says_why():
        assert "Input/output error" in json.dumps(status(node)["services"]), status(node)

    eventually(says_why, AssertionError)
    assert node.process.poll() is None
    disk.works()
    eventually(service.write, *UNREACHABLE)
    assert service.read() >= set(service.told), f"{name} lost what it acknowledged"
    neighbour.write()
    assert node.process.poll() is None
    node.kill()
    after = node.again()
    try:
        service.port, neighbour.port = after.ports[name], after.ports[other.__name__.lower()]
        assert service.read() >= set(service.told) and neighbour.read() >= set(neighbour.told)
    finally:
        after.kill()
