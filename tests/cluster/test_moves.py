"""Databases that change their node while clients are connected: nobody notices but those whom something keeps at their node."""

import json
import os
import signal
import subprocess
import threading
import time

import psycopg
import pytest

from conftest import NODES, SAVANNA, Loop
from test_kills import Transfers, goes_on


def move(cluster, what, to, asked=NODES[0], *words):
    url = f"http://127.0.0.1:{cluster.ports[asked]['http']}"
    command = [SAVANNA, "move", what, "--to", to, "--url", url, "--output", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def create(cluster, name):
    """Makes a database; its shard."""
    before = set(cluster.shards(NODES[0]))
    with cluster.tenants(NODES[0], autocommit=True) as client:
        client.execute(f"CREATE DATABASE {name}")
    cluster.until(lambda: set(cluster.shards(NODES[0])) - before, "its shard is there")
    return next(iter(set(cluster.shards(NODES[0])) - before))


def others(node):
    return [name for name in NODES if name != node]


def test_sessions_go_along_with_their_database_from_wherever_they_came(cluster):
    shard = create(cluster, "shop")
    clients = {node: cluster.tenants(node, "shop", autocommit=True) for node in NODES}
    first = clients[NODES[0]]
    first.execute("CREATE TABLE t (id serial PRIMARY KEY, name text)")
    pids = {}
    for node, client in clients.items():
        client.execute(f"SET application_name = 'at {node}'")
        client.execute("SET search_path = public, pg_catalog")
        client.execute(f"SET my.own = '{node}'")
        client.execute("PREPARE plus AS SELECT $1::int + 1")
        client.execute("INSERT INTO t (name) VALUES (%s)", [node], prepare=True)
        pids[node] = client.execute("SELECT currval('t_id_seq'), pg_backend_pid()").fetchone()
    for _ in range(2):
        for _ in NODES:
            owner = cluster.owner(shard)
            to = NODES[(NODES.index(owner) + 1) % 3]
            moved = move(cluster, "shop", to, others(to)[0])
            assert moved["stayed"] is None and (moved["from"], moved["to"]) == (owner, to), moved
            for node, client in clients.items():
                assert client.execute("SHOW application_name").fetchone() == (f"at {node}",)
                assert client.execute("SHOW search_path").fetchone() == ("public, pg_catalog",)
                assert client.execute("SHOW my.own").fetchone() == (node,)
                assert client.execute("EXECUTE plus(41)").fetchone() == (42,)
                assert client.execute("SELECT currval('t_id_seq'), pg_backend_pid()").fetchone() == pids[node]
                client.execute("INSERT INTO t (id, name) VALUES (1000 + (SELECT count(*) FROM t), %s)", [node], prepare=True)
    assert first.execute("SELECT count(*) FROM t").fetchone() == (3 + 2 * 3 * 3,)
    assert cluster.shards(NODES[1])[shard]["epoch"] == 7
    for client in clients.values():
        client.close()


def test_what_keeps_a_session_ends_it_and_the_database_goes(cluster):
    shard = create(cluster, "kept")
    owner = cluster.owner(shard)
    with cluster.tenants(owner, "kept", autocommit=True) as client:
        client.execute("CREATE TABLE t (id int)")
    kept = []
    for words in ("BEGIN; INSERT INTO t VALUES (1)", "CREATE TEMPORARY TABLE mine (id int)", "SELECT pg_advisory_lock(1)"):
        for node in NODES:
            if "lock" in words and node != owner:
                continue
            client = cluster.tenants(node, "kept", autocommit=True)
            client.execute(words)
            kept.append(client)
    moved = move(cluster, shard, others(owner)[0])
    assert moved["stayed"] is None
    for client in kept:
        with pytest.raises(psycopg.OperationalError, match="moves to another node"):
            client.execute("SELECT 1")
    with cluster.tenants(owner, "kept") as client:
        assert client.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_transactions_that_end_soon_are_waited_for(cluster):
    shard = create(cluster, "soon")
    owner = cluster.owner(shard)
    clients = [cluster.tenants(node, "soon") for node in NODES]
    for number, client in enumerate(clients):
        client.execute(f"CREATE TABLE t{number} (id int)")
        client.commit()
        client.execute(f"INSERT INTO t{number} VALUES (1)")
    moving = threading.Thread(target=move, args=(cluster, shard, others(owner)[1]))
    moving.start()
    time.sleep(1)
    for number, client in enumerate(clients):
        client.execute(f"INSERT INTO t{number} VALUES (2)")
        client.commit()
    moving.join()
    assert cluster.owner(shard) == others(owner)[1]
    for number, client in enumerate(clients):
        assert client.execute(f"SELECT sum(id) FROM t{number}").fetchone() == (3,)


def test_a_cancel_request_finds_a_session_that_has_moved(cluster):
    shard = create(cluster, "cancelled")
    for node in NODES:
        with cluster.tenants(node, "cancelled", autocommit=True) as client:
            client.execute("SELECT 1")
            move(cluster, shard, others(cluster.owner(shard))[0])
            timer = threading.Timer(1, client.cancel)
            timer.start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute("SELECT count(*) FROM generate_series(1, 1000000000)")
            assert client.execute("SELECT 1").fetchone() == (1,)


def test_errors_say_what_was_expected(cluster):
    assert "nothing" in move(cluster, "nothing", "n2")
    assert "expected one of the nodes n1, n2, n3, came n9" in move(cluster, "postgres", "n9")
    owner = cluster.owner("tenants/1")
    assert f"the database is on node {owner} already" in move(cluster, "postgres", owner)


class Unnoticing(Transfers):
    """Transfers over connections that stay, of which not one may fail."""

    def __init__(self, cluster, name, node):
        super().__init__(cluster, name, through=[node])
        self.client = cluster.tenants(node, name)

    def step(self):
        self.transfer(self.client)


def test_a_database_that_moves_again_and_again_loses_and_doubles_nothing(cluster):
    names = [f"bank{number}" for number in range(3)]
    shards = [create(cluster, name) for name in names]
    jobs = [Unnoticing(cluster, name, node) for name, node in zip(names, NODES)]
    loops = [Loop(job.step) for job in jobs]
    told = lambda: sum(len(job.told) for job in jobs)
    windows = []
    try:
        for round in range(int(os.environ.get("CLUSTER_MOVES", "8"))):
            goes_on(cluster, told, 10)
            for shard in shards:
                moved = move(cluster, shard, others(cluster.owner(shard))[round % 2])
                assert moved["stayed"] is None, moved
                windows.append(moved["window_ms"])
        goes_on(cluster, told, 10)
    finally:
        for loop in loops:
            loop.end()
    print(sorted(windows))
    assert all(job.check() > 0 for job in jobs)


def test_a_node_that_was_drained_can_be_killed_and_no_client_of_the_others_notices(cluster):
    names = [f"drained{number}" for number in range(6)]
    shards = [create(cluster, name) for name in names]
    node = cluster.owner(shards[0])
    jobs = [Unnoticing(cluster, name, others(node)[number % 2]) for number, name in enumerate(names)]
    loops = [Loop(job.step) for job in jobs]
    told = lambda: sum(len(job.told) for job in jobs)
    try:
        goes_on(cluster, told, 10)
        url = f"http://127.0.0.1:{cluster.ports[others(node)[0]]['http']}"
        done = subprocess.run([SAVANNA, "drain", node, "--url", url], capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert node not in {shard["owner"] for name, shard in cluster.shards(NODES[0]).items() if name.startswith("tenants/")}
        pid = cluster.signal(node, signal.SIGKILL)
        goes_on(cluster, told, 100)
        cluster.runs_again(node, pid)
        goes_on(cluster, told, 10)
    finally:
        for loop in loops:
            loop.end()
    assert all(job.check() > 0 for job in jobs)


@pytest.mark.parametrize("whom", ["source", "target", "coordinator"])
def test_whoever_is_killed_during_moves_nothing_that_was_told_is_lost(start, whom):
    cluster = start()
    shard = create(cluster, "bank")
    job = Transfers(cluster, "bank")
    loop = Loop(job.step)
    told = lambda: len(job.told)
    try:
        for round in range(3):
            goes_on(cluster, told, 10)
            owner = cluster.owner(shard)
            to = others(owner)[round % 2]
            node = {"source": owner, "target": to, "coordinator": cluster.coordinator()}[whom]
            pid = cluster.status(node)["pid"]
            # At any moment of it, by the clock: which it was, nobody knows.
            moving = subprocess.Popen(
                [SAVANNA, "move", shard, "--to", to, "--url", f"http://127.0.0.1:{cluster.ports[owner]['http']}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.02 + 0.03 * round)
            os.kill(pid, signal.SIGKILL)
            cluster.runs_again(node, pid)
            moving.wait(timeout=180)
            goes_on(cluster, told, 10)
    finally:
        loop.end()
    cluster.until(lambda: all(cluster.is_served(node) for node in NODES), "every shard is served")
    assert job.check() > 0
