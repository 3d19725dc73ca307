"""pgbench works while its database moves every second: nothing fails, and the sums are right."""

import os
import pathlib
import subprocess
import time

import pytest
import requests

from conftest import NODES
from test_moves import create, go

PROGRAMS = pathlib.Path(os.environ.get("PG_PROGRAMS", "/usr/lib/postgresql/15/bin"))
MOVES = int(os.environ.get("CLUSTER_MOVES", "8"))
SUMS = [("accounts", "abalance"), ("tellers", "tbalance"), ("branches", "bbalance"), ("history", "delta")]


def pgbench(cluster, node, name, *words):
    command = [PROGRAMS / "pgbench", "-h", "127.0.0.1", "-p", str(cluster.ports[node]["tenants"]), "-U", "postgres", *words, name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def figures(cluster, node):
    """Each line of a node's /metrics, and its value."""
    text = requests.get(f"http://127.0.0.1:{cluster.ports[node]['http']}/metrics", timeout=10).text
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))}


def processed(told):
    """Transactions that pgbench has done, and those that have failed."""
    lines = dict(line.split(": ", 1) for line in told.splitlines() if ": " in line)
    count = lines["number of transactions actually processed"].split("/")[0]
    return int(count), int(lines["number of failed transactions"].split()[0])


@pytest.mark.long
@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench_goes_on_while_its_database_moves_every_second(cluster, mode):
    name = f"pgbench{mode}"
    shard = create(cluster, name)
    filling = pgbench(cluster, NODES[0], name, "-i", "-s", "1", "-q")
    _, told = filling.communicate(timeout=180)
    assert filling.returncode == 0, told
    # One at each node, for as long as it takes.
    running = [pgbench(cluster, node, name, "-n", "-M", mode, "-c", "2", "-T", str(2 * MOVES + 10), "--failures-detailed") for node in NODES]
    moves, until = [], time.monotonic() + 2 * MOVES
    while len(moves) < MOVES and time.monotonic() < until:
        time.sleep(1)
        moves.append(go(cluster, shard))
    done = [each.communicate(timeout=180) for each in running]
    for each, (told, errors) in zip(running, done):
        assert each.returncode == 0 and "aborted" not in errors, errors
        count, failed = processed(told)
        assert count > 0 and failed == 0, told
    assert moves and {(move["failed"], move["silent_nodes"]) for move in moves} == {(0, 0)}, moves
    assert sum(move["waited"] for move in moves) > 0 and all(move["wait_max_ms"] >= move["wait_p50_ms"] for move in moves), moves
    print(sorted(move["window_ms"] for move in moves), sorted(move["wait_max_ms"] for move in moves))
    with cluster.tenants(NODES[0], name) as client:
        sums = [client.execute(f"SELECT sum({column}) FROM pgbench_{table}").fetchone()[0] for table, column in SUMS]
        history = client.execute("SELECT count(*) FROM pgbench_history").fetchone()[0]
    assert len(set(sums)) == 1, sums
    assert history == sum(processed(told)[0] for told, _ in done), "each transaction is there once"


def test_the_cache_goes_along_and_costs_are_told(cluster):
    shard = create(cluster, "warm")
    with cluster.tenants(NODES[0], "warm", autocommit=True) as client:
        client.execute("CREATE TABLE t (id int PRIMARY KEY, padding text)")
        client.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) AS i")
        first = go(cluster, shard)
        assert client.execute("SELECT sum(length(padding)) FROM t").fetchone() == (2_000_000,)
        # What was read at that node is what the next one reads beforehand.
        moved = go(cluster, shard)
        assert moved["block_bytes"] > 2_000_000, moved
        assert 2 <= first["rounds"] <= 10 and 2 <= moved["rounds"] <= 10, (first, moved)
        assert (moved["log_bytes"], moved["open_bytes"], moved["failed"]) == (0, 0, 0), moved
        client.execute("BEGIN")
        client.execute("UPDATE t SET padding = 'y' WHERE id = 1")
        moved = go(cluster, shard)
        assert moved["open_bytes"] > 0 and 0 < moved["window_ms"] < moved["took_ms"], moved
        client.execute("ROLLBACK")
    told = [figures(cluster, node) for node in NODES]
    count = lambda line: sum(each.get(line, 0) for each in told)
    assert count('savanna_moves_total{technique="albatross",outcome="moved"}') >= 3
    assert count('savanna_move_window_seconds_count{technique="albatross"}') >= 3
    assert count('savanna_move_bytes_total{technique="albatross",kind="blocks"}') > 2_000_000
    assert count('savanna_moves_total{technique="stop-and-copy",outcome="moved"}') == 0
    listed = cluster.get(NODES[0], "/api/v1/moves")["moves"]
    assert moved in listed, "all nodes are asked"
