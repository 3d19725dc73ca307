"""Source and target of a move end at each of its moments, one by one: what was acknowledged is there once, and nothing is done twice."""

import os
import random
import subprocess
import time

import psycopg
import pytest

from conftest import NODES, SAVANNA, Cluster, Loop
from test_kills import ACCOUNTS, goes_on
from test_moves import Reconnecting, lasting, others

# What a process is told by the file that the environment names (node/src/cluster/moves/points.rs).
BEFORE = ["source: announced", "target: begun", "source: round 0", "target: round 0", "source: round 1", "target: round 1", "source: frozen", "source: exported", "target: part",
          "source: sent", "target: prepared", "target: durable", "source: ready"]  # fmt: skip
BEHIND = ["source: decided", "source: released", "target: decided", "target: serves", "source: saved"]
# Those of every change; the others are tried by the long tests.
USUAL = ["target: durable", "source: decided"]


@pytest.fixture(scope="module")
def ending(tmp_path_factory):
    """A cluster whose nodes end at a moment of a move, and the file that says at which."""
    directory = tmp_path_factory.mktemp("moments")
    moment = directory / "moment"
    os.environ["MOVES_END_AT"] = str(moment)
    try:
        cluster = Cluster(directory / "data")
    finally:
        del os.environ["MOVES_END_AT"]
    yield cluster, moment
    if cluster.process.poll() is None:
        assert cluster.stop() == 0, cluster.logs()


class Looking:
    """Looks at all accounts twice in one snapshot, over a connection that stays: what was committed behind that goes along in the log."""

    def __init__(self, cluster, name, node):
        self.cluster, self.name, self.node, self.client, self.looks = cluster, name, node, None, 0

    def step(self):
        try:
            if self.client is None:
                self.client = self.cluster.tenants(self.node, self.name)
                self.client.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            first = self.look()
            time.sleep(random.uniform(0.1, 0.5))
            assert self.look() == first, "a snapshot has changed"
            assert sum(amount for _, amount in first) == 100 * ACCOUNTS
            self.client.rollback()
            self.looks += 1
        except psycopg.Error:
            if self.client:
                self.client.close()
            self.client = None
            time.sleep(0.05)

    def look(self):
        return self.client.execute("SELECT id, amount FROM accounts ORDER BY id").fetchall()


def check(cluster, name, jobs):
    """Whatever was told is there, once; the jobs go on meanwhile."""
    told = {number for job in jobs for number in job.told}
    with cluster.tenants(NODES[0], name) as client:
        done = [number for (number,) in client.execute("SELECT id FROM transfers").fetchall()]
        total = client.execute("SELECT sum(amount) FROM accounts").fetchone()
    assert len(done) == len(set(done)), "a transfer was done twice"
    assert told <= set(done), "a transfer that was acknowledged is lost"
    assert total == (100 * ACCOUNTS,), "a transaction was done by half, or twice"
    return set(done)


@pytest.mark.parametrize("moment", [moment if moment in USUAL else pytest.param(moment, marks=pytest.mark.long) for moment in BEFORE + BEHIND])
def test_who_ends_at_a_moment_of_a_move_loses_and_doubles_nothing(ending, moment):
    cluster, file = ending
    name = "".join(word for word in moment if word.isalnum())
    shard, jobs, loops = lasting(cluster, name, Reconnecting, 3)
    looking = Looking(cluster, name, NODES[0])
    loops.append(Loop(looking.step))
    told = lambda: sum(len(job.told) for job in jobs)
    try:
        goes_on(cluster, told, 10)
        cluster.until(lambda: looking.looks > 0, "somebody looks")
        source = cluster.owner(shard)
        target = others(source)[0]
        whom = source if moment.startswith("source") else target
        pid = cluster.status(whom)["pid"]
        file.write_text(moment)
        url = f"http://127.0.0.1:{cluster.ports[source]['http']}"
        moving = subprocess.Popen([SAVANNA, "move", shard, "--to", target, "--url", url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cluster.until(lambda: not file.exists(), f"the moment `{moment}` has come")
        cluster.runs_again(whom, pid)
        moving.wait(timeout=180)
        goes_on(cluster, told, 10)
        if moment in BEFORE and whom == target:
            assert cluster.owner(shard) == source, "it was not decided"
        check(cluster, name, jobs)
    finally:
        file.unlink(missing_ok=True)
        for loop in loops:
            loop.end()
    done = check(cluster, name, jobs)
    unknown = {number for job in jobs for number in job.unknown}
    assert done <= {number for job in jobs for number in job.told} | unknown, "a transfer was done that was not committed"
    # It moves the next time.
    owner = cluster.owner(shard)
    again = subprocess.run([SAVANNA, "move", shard, "--to", others(owner)[0], "--url", f"http://127.0.0.1:{cluster.ports[owner]['http']}"],
                           capture_output=True, text=True, timeout=180, check=False)  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
