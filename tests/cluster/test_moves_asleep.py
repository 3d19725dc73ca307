"""Databases that sleep leave a drained node many at a time: each is served afterwards with its rows, whoever ends or comes meanwhile."""

import collections
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
# Those of every change; the others are tried by the long tests.
USUAL = ["source: decided", "target: decided"]


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


class Visits:
    """Clients that come to one database after the other while these move, and leave a row: what they asked for, and what they were told is there."""

    def __init__(self, cluster):
        self.cluster, self.numbers = cluster, itertools.count(1_000)
        self.asked, self.told, self.failed = collections.defaultdict(set), collections.defaultdict(set), []

    def visit(self):
        number = next(self.numbers)
        database = number % COUNT
        self.asked[database].add(number)
        try:
            with self.cluster.tenants(NODES[number % 3], name_of(database), autocommit=True) as client:
                client.execute("INSERT INTO visits VALUES (%s)", [number])
            self.told[database].add(number)
        except (psycopg.Error, OSError) as error:
            self.failed.append(error)


def check(cluster, visits):
    """Each database is served, by whoever has it, with its rows: each that somebody was told of, and no other than was asked for."""

    def look(number):
        with cluster.tenants(NODES[number % 3], name_of(number)) as client:
            return number, {id for (id,) in client.execute("SELECT id FROM visits").fetchall()}

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for number, ids in pool.map(look, range(COUNT)):
            assert {number} | visits.told[number] <= ids, f"{name_of(number)} lacks {({number} | visits.told[number]) - ids}"
            assert ids <= {number} | visits.asked[number], f"{name_of(number)} has {ids}"


@pytest.fixture(scope="module")
def visits(resting):
    return Visits(resting[0])


def asleep_of(told):
    return [move for move in told if move.get("technique") == "asleep"]


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


def test_a_node_with_many_databases_that_sleep_is_drained_in_a_moment_and_who_comes_meanwhile_is_served(resting, visits):
    cluster, _ = resting
    sleep(cluster)
    node = NODES[1]
    had = len(of(cluster, node))
    assert had >= COUNT // 3 - 2
    visitor = Loop(visits.visit)
    began = time.monotonic()
    try:
        ran, told = drain(cluster, NODES[0], node)
    finally:
        took = time.monotonic() - began
        visitor.end()
    assert ran.returncode == 0 and told[-1]["moved"] >= had - 2 and told[-1]["stayed"] == 0, ran
    asleep = asleep_of(told)
    print(f"{len(asleep)} of {had} databases left asleep; the drain took {took:.1f} s, the longest window was {max(move['window_ms'] for move in asleep):.0f} ms")
    assert len(asleep) >= had // 2, "most of them sleep"
    assert not visits.failed, visits.failed
    assert visits.told, "somebody came"
    assert of(cluster, node) == []
    check(cluster, visits)
    assert 'technique="asleep"' in metrics(cluster, node)
    fill_again(cluster)


@pytest.mark.parametrize("moment", [moment if moment in USUAL else pytest.param(moment, marks=pytest.mark.long) for moment in MOMENTS])
def test_who_ends_while_many_databases_leave_loses_none(resting, visits, moment):
    cluster, file = resting
    node = NODES[1]
    sleep(cluster)
    spread(cluster, node)
    assert len(of(cluster, node)) > 2
    pids = {name: cluster.status(name)["pid"] for name in NODES}
    # Before anybody comes: the first that moves are those that sleep.
    file.write_text(moment)
    visitor = Loop(visits.visit)
    try:
        drain(cluster, NODES[0], node)
        cluster.until(lambda: not file.exists(), f"somebody has ended at {moment}")
    finally:
        visitor.end()
    cluster.until(lambda: all(cluster.is_served(name) for name in NODES), "all are there again")
    now = {name: cluster.status(name)["pid"] for name in NODES}
    assert now != pids, "somebody has ended"
    check(cluster, visits)
    fill_again(cluster)
    assert drained(cluster, NODES[0]) == []
