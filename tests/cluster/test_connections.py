"""Administrators see the connections to databases on all nodes, and end them."""

import os
import pathlib
import signal
import threading
import time

import psycopg
import pytest

from conftest import NODES
from test_databases import create, tenants

ACTIVITY = "SELECT pid, datname, usename FROM pg_stat_activity"


def test_connections_of_all_nodes_are_seen_and_ended(start):
    cluster = start()
    shards = {name: create(cluster, NODES[0], name) for name in ("one", "two", "three", "four")}
    owners = {name: tenants(cluster, NODES[0])[shard]["owner"] for name, shard in shards.items()}
    assert set(owners.values()) == set(NODES)
    clients = {name: cluster.tenants(NODES[0], name, autocommit=True) for name in shards}
    pids = {name: client.execute("SELECT pg_backend_pid()").fetchone()[0] for name, client in clients.items()}
    for asked in shards:
        rows = clients[asked].execute(ACTIVITY).fetchall()
        assert {(pids[name], name, "postgres") for name in shards} <= set(rows), asked
        assert len({pid for pid, _, _ in rows}) == len(rows)

    # A statement, and then the connection, of a database on another node.
    here = "one"
    there = next(name for name, owner in owners.items() if owner != owners[here])
    with pytest.raises(psycopg.errors.QueryCanceled):
        with cluster.tenants(NODES[0], there, autocommit=True) as slow:
            pid = slow.execute("SELECT pg_backend_pid()").fetchone()[0]
            def cancel():
                time.sleep(1)
                assert clients[here].execute("SELECT pg_cancel_backend(%s)", [pid]).fetchone() == (True,)

            thread = threading.Thread(target=cancel)
            thread.start()
            try:
                slow.execute("SELECT count(*) FROM generate_series(1, 2000000000)")
            finally:
                thread.join()
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s"
    assert clients[here].execute(ended, [pids[there]]).fetchall() == [(True,)]
    with pytest.raises(psycopg.OperationalError):
        for _ in range(50):
            clients[there].execute("SELECT 1")
            time.sleep(0.1)
    assert clients[here].execute("SELECT pg_terminate_backend(1)").fetchone() == (False,)


def test_nobody_else_sees_or_ends_connections_of_other_databases(start):
    cluster = start()
    shards = {name: create(cluster, NODES[0], name) for name in ("one", "two", "three", "four")}
    owners = {name: tenants(cluster, NODES[0])[shard]["owner"] for name, shard in shards.items()}
    there = next(name for name, owner in owners.items() if owner != owners["one"])
    with cluster.tenants(NODES[0], "one", autocommit=True) as client:
        client.execute("CREATE USER ann PASSWORD 'secret'")
    with cluster.tenants(NODES[0], there, autocommit=True) as other:
        pid = other.execute("SELECT pg_backend_pid()").fetchone()[0]
        port = cluster.ports[NODES[0]]["tenants"]
        with psycopg.connect(host="127.0.0.1", port=port, user="ann", password="secret", dbname="one", autocommit=True) as ann:
            assert {name for _, name, _ in ann.execute(ACTIVITY).fetchall()} == {"one"}
            assert ann.execute("SELECT pg_terminate_backend(%s)", [pid]).fetchone() == (False,)
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_a_node_that_does_not_answer_is_left_out_with_a_warning(start):
    cluster = start("lease.ttl=30s")
    shards = {name: create(cluster, NODES[0], name) for name in ("one", "two", "three", "four")}
    owners = {name: tenants(cluster, NODES[0])[shard]["owner"] for name, shard in shards.items()}
    still = next(node for node in NODES if node not in (owners["one"], cluster.coordinator()))
    notices = []
    with cluster.tenants(owners["one"], "one", autocommit=True) as client:
        client.add_notice_handler(lambda notice: notices.append((notice.severity, notice.message_primary)))
        client.execute(ACTIVITY)
        assert notices == []
        pid = cluster.signal(still, signal.SIGSTOP)
        try:
            tasks = pathlib.Path(f"/proc/{pid}/task")
            cluster.until(lambda: all(") T " in (task / "stat").read_text() for task in tasks.iterdir()), f"{still} stands still")
            began = time.monotonic()
            rows = client.execute(ACTIVITY).fetchall()
            took = time.monotonic() - began
            assert 0.9 < took < 2.5
        finally:
            os.kill(pid, signal.SIGCONT)
        assert "one" in {name for _, name, _ in rows}
        assert notices == [("WARNING", f"node {still} has not said which connections it has; they are left out")]
