"""Large transactions of a database whose node changes: by moves while they are written and committed, and when it is killed."""

import os
import signal

import psycopg
import pytest

from conftest import NODES, Cluster, Loop
from test_moves import create, move, others

ROWS = 5000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A cluster that puts the writes of nearly every transaction into parts."""
    os.environ["TENANTS_PARTS_FROM"] = "4096"
    try:
        cluster = Cluster(tmp_path_factory.mktemp("large") / "data")
    finally:
        del os.environ["TENANTS_PARTS_FROM"]
    yield cluster
    if cluster.process.poll() is None:
        assert cluster.stop() == 0, cluster.logs()


class Batches:
    """Writes batches of rows, each in a transaction, and notes which were acknowledged."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.number, self.told, self.unknown, self.client = 0, set(), set(), None
        with cluster.tenants(NODES[0], name) as client:
            client.execute("CREATE TABLE t (batch int, id int, PRIMARY KEY (batch, id))")

    def step(self):
        self.number += 1
        try:
            self.client = self.client or self.cluster.tenants(NODES[0], self.name)
            self.client.execute("INSERT INTO t SELECT %s, g FROM generate_series(1, %s) g", [self.number, ROWS])
            self.unknown.add(self.number)
            self.client.commit()
            self.told.add(self.number)
        except psycopg.Error:
            if self.client:
                self.client.close()
            self.client = None

    def check(self):
        told = set(self.told)
        with self.cluster.tenants(NODES[1], self.name) as client:
            found = dict(client.execute("SELECT batch, count(*) FROM t GROUP BY batch").fetchall())
        assert set(found.values()) <= {ROWS}, "a transaction is there by half"
        assert told <= set(found), "a transaction that was acknowledged is lost"
        assert set(found) <= self.unknown | self.told, "a transaction is there that was not committed"
        return found


@pytest.mark.long
def test_large_transactions_go_on_while_their_database_moves(large):
    shard = create(large, "moves")
    batches = Batches(large, "moves")
    loop = Loop(batches.step)
    moved = 0
    try:
        for _ in range(6):
            before = len(batches.told)
            large.until(lambda: len(batches.told) >= before + 2, "batches are written")
            owner = large.owner(shard)
            said = move(large, shard, others(owner)[0], owner)
            # A commit may be in the way for too long.
            went = large.owner(shard) != owner
            moved += went
            assert went or "in the way" in str(said), said
    finally:
        loop.end()
    assert moved
    batches.check()


def test_who_adopts_a_database_has_the_large_commits_of_a_node_that_was_killed(large):
    shard = create(large, "kills")
    batches = Batches(large, "kills")
    loop = Loop(batches.step)
    try:
        for _ in range(int(os.environ.get("CLUSTER_KILLS", "3"))):
            before = len(batches.told)
            large.until(lambda: len(batches.told) >= before + 2, "batches are written")
            owner = large.owner(shard)
            pid = large.signal(owner, signal.SIGKILL)
            large.runs_again(owner, pid)
            batches.check()
    finally:
        loop.end()
    batches.check()
