"""Databases that sleep leave a drained node many at a time: each is served afterwards with its rows, whoever ends or comes meanwhile."""

import concurrent.futures
import itertools
import json
import os
import subprocess
import time

import psycopg
import pytest
import requests

from conftest import NODES, SAVANNA, Cluster, Loop
from test_databases import tenants
from test_drain import drained

COUNT = int(os.environ.get("CLUSTER_ASLEEP", "90"))
IDLE = "tenants.idle=1s"
MOMENTS = ["source: announced", "target: begun", "source: frozen", "target: durable", "source: ready", "source: decided", "source: released", "target: decided"]  # fmt: skip


def name_of(number):
    return f"asleep_{number}"


@pytest.fixture(scope="module")
def resting(tmp_path_factory):
    """A cluster with many databases that sleep, and the file that says at which moment of a move a node ends."""
    directory = tmp_path_factory.mktemp("asleep")
    moment = directory / "moment"
    os.environ["MOVES_END_AT"] = str(moment)
    try:
        cluster = Cluster(directory / "data", IDLE)
    finally:
        del os.environ["MOVES_END_AT"]
    make(cluster)
    yield cluster, moment
    if cluster.process.poll() is None:
        assert cluster.stop() == 0, cluster.logs()


def make(cluster):
    with cluster.tenants(NODES[0], autocommit=True) as client:
        for number in range(COUNT):
            client.execute(f"CREATE DATABASE {name_of(number)}")

    def fill(number):
        with cluster.tenants(NODES[number % 3], name_of(number), autocommit=True) as client:
            client.execute("CREATE TABLE visits (id int PRIMARY KEY)")
            client.execute("INSERT INTO visits VALUES (%s)", [number])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(COUNT)))


def metrics(cluster, node):
    return requests.get(f"http://127.0.0.1:{cluster.ports[node]['http']}/metrics", timeout=10).text


def awake(cluster, node):
    return next(float(line.split()[1]) for line in metrics(cluster, node).splitlines() if line.startswith("savanna_tenants_awake "))


def sleep(cluster):
    cluster.until(lambda: sum(awake(cluster, node) for node in NODES) <= 3, "nearly all sleep")


def drain(cluster, asked, node, *words):
    url = f"http://127.0.0.1:{cluster.ports[asked]['http']}"
    ran = subprocess.run([SAVANNA, "drain", node, *words, "--url", url, "--output", "json"], capture_output=True, text=True)
    return ran, [json.loads(line) for line in ran.stdout.splitlines()]


def check(cluster):
    """Each database is served, by whoever has it, with its rows."""

    def look(number):
        with cluster.tenants(NODES[number % 3], name_of(number)) as client:
            return number, {id for (id,) in client.execute("SELECT id FROM visits").fetchall()}

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for number, ids in pool.map(look, range(COUNT)):
            assert number in ids, f"{name_of(number)} has {ids}"


def fill_again(cluster):
    for node in drained(cluster, NODES[0]):
        drain(cluster, NODES[0], node, "--undo")


def spread(cluster, node):
    """Brings some databases to a node again, asleep, as an operator may."""
    other = max((name for name in NODES if name != node), key=lambda name: len(of(cluster, name)))
    shards = of(cluster, other)[: COUNT // 2]
    for first in range(0, len(shards), 63):
        cluster.post(NODES[0], "/api/v1/moves/asleep", {"shards": shards[first : first + 63], "to": node})


def of(cluster, node):
    return [shard for shard, record in tenants(cluster, NODES[0]).items() if record["owner"] == node]


def test_a_node_with_many_databases_that_sleep_is_drained_in_a_moment_and_who_comes_meanwhile_is_served(resting):
    cluster, _ = resting
    sleep(cluster)
    node = NODES[1]
    had = len(of(cluster, node))
    assert had >= COUNT // 3 - 2
    numbers = itertools.count(1_000)
    failed = []

    def visit():
        number = next(numbers)
        try:
            with cluster.tenants(NODES[number % 3], name_of(number % COUNT), autocommit=True) as client:
                client.execute("INSERT INTO visits VALUES (%s)", [number])
        except psycopg.Error as error:
            failed.append(error)

    visitor = Loop(visit)
    began = time.monotonic()
    try:
        ran, told = drain(cluster, NODES[0], node)
    finally:
        took = time.monotonic() - began
        visitor.end()
    assert ran.returncode == 0 and told[-1]["moved"] >= had - 2 and told[-1]["stayed"] == 0, ran
    asleep = [move for move in told[:-1] if move["technique"] == "asleep"]
    print(f"{len(asleep)} of {had} databases left asleep; the drain took {took:.1f} s, the longest window was {max(move['window_ms'] for move in asleep):.0f} ms")
    assert len(asleep) >= had // 2, "most of them sleep"
    assert not failed, failed
    assert of(cluster, node) == []
    check(cluster)
    assert 'technique="asleep"' in metrics(cluster, node)
    fill_again(cluster)


@pytest.mark.parametrize("moment", MOMENTS)
def test_who_ends_while_many_databases_leave_loses_none(resting, moment):
    cluster, file = resting
    node = NODES[1]
    sleep(cluster)
    spread(cluster, node)
    assert len(of(cluster, node)) > 2
    pids = {name: cluster.status(name)["pid"] for name in NODES}
    file.write_text(moment)
    drain(cluster, NODES[0], node)
    cluster.until(lambda: not file.exists(), f"somebody has ended at {moment}")
    cluster.until(lambda: all(cluster.is_served(name) for name in NODES), "all are there again")
    now = {name: cluster.status(name)["pid"] for name in NODES}
    assert now != pids, "somebody has ended"
    check(cluster)
    fill_again(cluster)
    assert drained(cluster, NODES[0]) == []
