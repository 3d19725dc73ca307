"""Any node takes any client."""

import socket
import struct
import subprocess
import time

import psycopg
import pytest
import redis

from conftest import NODES, SAVANNA, SERVICES


def test_the_nodes_are_there_and_each_knows_who_owns_what(cluster):
    for node in NODES:
        nodes = cluster.get(node, "/api/v1/nodes")["nodes"]
        assert [entry["name"] for entry in nodes] == NODES
        assert [entry["name"] for entry in nodes if entry["is_this"]] == [node]
        shards = cluster.shards(node)
        assert set(shards) >= SERVICES
        assert all(shard["state"] == "serving" for shard in shards.values())
        assert len({shards[service]["owner"] for service in SERVICES}) == 3, "each node has one"
        assert shards["tenants/1"]["owner"] == shards["tenants"]["owner"], "the database of administrators"
        for shard in ("keys", "tenants/1"):
            assert shards[shard]["log"].startswith(shards[shard]["owner"] + ".")
        assert shards["streams"]["log"] is None and shards["tenants"]["log"] is None, "they keep nothing"


def test_the_command_line_shows_nodes_and_shards(cluster):
    url = f"http://127.0.0.1:{cluster.ports['n2']['http']}"
    run = lambda *words: subprocess.run([SAVANNA, *words, "--url", url], capture_output=True, text=True, check=True).stdout
    nodes = run("nodes").splitlines()
    load = ["cpu", "transactions/s", "log", "KiB/s", "rows", "MiB"]
    assert nodes[0].split() == ["node", "epoch", "address", "services", *load]
    assert [line.split()[0] for line in nodes[1:]] == NODES and "answers" in nodes[2]
    shards = run("shards").splitlines()
    assert shards[0].split() == ["shard", "owner", "epoch", "state", "log"] and {line.split()[0] for line in shards[1:]} >= SERVICES
    assert len(run("shards", "ke").splitlines()) == 2


def test_keys_are_the_same_whichever_node_is_asked(cluster):
    for number, node in enumerate(NODES):
        client = cluster.redis(node)
        assert client.set(f"from:{node}", number)
        assert client.incr("visits") == number + 1
        pipeline = client.pipeline(transaction=True)
        pipeline.lpush("list", node)
        pipeline.llen("list")
        assert pipeline.execute() == [number + 1, number + 1]
    for node in NODES:
        assert cluster.redis(node).mget([f"from:{other}" for other in NODES]) == ["0", "1", "2"]


def test_what_cannot_be_asked_of_another_node_is_said(cluster):
    owner = cluster.owner("keys")
    other = next(node for node in NODES if node != owner)
    assert cluster.redis(owner).blpop(["nothing"], timeout=0.1) is None
    with pytest.raises(redis.ResponseError, match="ELSEWHERE|another node"):
        cluster.redis(other).blpop(["nothing"], timeout=0.1)


def test_a_database_is_the_same_whichever_node_is_asked(cluster):
    with cluster.tenants("n1", autocommit=True) as first:
        first.execute("CREATE DATABASE shop")
    for number, node in enumerate(NODES):
        with cluster.tenants(node, "shop", autocommit=True) as client:
            client.execute("CREATE TABLE IF NOT EXISTS sales (node text PRIMARY KEY)")
            client.execute("INSERT INTO sales VALUES (%s)", [node])
            assert client.execute("SELECT count(*) FROM sales").fetchone() == (number + 1,)
            with pytest.raises(psycopg.errors.UniqueViolation):
                client.execute("INSERT INTO sales VALUES (%s)", [node])
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        cluster.tenants("n3", "nowhere")


def test_streams_are_the_same_whichever_node_is_asked(cluster):
    with cluster.streams("n1") as client:
        client.execute("CREATE TABLE events (event_type INT) WITH ('connector' = 'nexmark', 'events.num' = '2000')")
    for node in NODES:
        with cluster.streams(node) as client:
            assert len(client.execute("SELECT event_type FROM events").fetchall()) == 2000
            with pytest.raises(psycopg.Error, match="nothing"):
                client.execute("SELECT nothing FROM events")


class RawSession:
    """A client that knows its key."""

    def __init__(self, cluster, node, database, face="tenants"):
        self.socket = socket.create_connection(("127.0.0.1", cluster.ports[node][face]), timeout=60)
        startup = struct.pack("!i", 3 << 16) + f"user\0postgres\0database\0{database}\0\0".encode()
        self.socket.sendall(struct.pack("!i", len(startup) + 4) + startup)
        self.input = self.socket.makefile("rb")
        while (message := self.read())[0] != b"Z":
            if message[0] == b"K":
                self.key = message[1]

    def read(self):
        kind, length = struct.unpack("!ci", self.input.read(5))
        return kind, self.input.read(length - 4)

    def ask(self, text):
        self.socket.sendall(b"Q" + struct.pack("!i", len(text) + 5) + text.encode() + b"\0")

    def error(self):
        while (message := self.read())[0] != b"E":
            assert message[0] != b"Z", "it is done"
        return next(field[1:].decode() for field in message[1].split(b"\0") if field[:1] == b"C")


def cancel(cluster, node, key, face="tenants"):
    with socket.create_connection(("127.0.0.1", cluster.ports[node][face]), timeout=10) as connection:
        connection.sendall(struct.pack("!ii", 16, 80_877_102) + key)
        assert connection.recv(1) == b"", "nothing is said"


def test_a_cancel_request_ends_a_statement_through_any_node(cluster):
    for front in NODES:
        for asked in NODES:
            session = RawSession(cluster, front, "postgres")
            session.ask("SELECT count(*) FROM generate_series(1, 1000000000000)")
            time.sleep(0.2)
            wrong = session.key[:4] + bytes(4)
            cancel(cluster, asked, wrong)
            time.sleep(0.1)
            cancel(cluster, asked, session.key)
            assert session.error() == "57014", (front, asked)
            session.socket.close()


def test_a_cancel_request_of_a_client_of_streams_ends_its_statement_through_any_node_whoever_owns_them(cluster):
    with cluster.streams("n1") as client:
        client.execute("CREATE TABLE endless (event_type INT) WITH ('connector' = 'nexmark')")
    running = lambda: [query for query in cluster.get("n1", "/api/v1/queries")["queries"] if query["state"] == "running"]
    for front in NODES:
        for asked in NODES:
            session = RawSession(cluster, front, "savanna_streams", face="pgwire")
            session.ask("SELECT event_type FROM endless WHERE event_type = 7")
            cluster.until(lambda: len(running()) == 1, "the query runs")
            cancel(cluster, asked, session.key[:4] + bytes(4), face="pgwire")
            time.sleep(0.1)
            assert len(running()) == 1, "the key was wrong"
            cancel(cluster, asked, session.key, face="pgwire")
            assert session.error() == "57014", (front, asked)
            cluster.until(lambda: not running(), "the query has ended")
            session.socket.close()
