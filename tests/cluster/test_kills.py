"""Nodes that are killed or stand still while clients work: nothing that was acknowledged is lost, nothing happens twice."""

import os
import random
import signal
import time

import psycopg
import redis

from conftest import NODES, Loop

# How often nodes are killed; `make suites` kills more.
KILLS = int(os.environ.get("CLUSTER_KILLS", "3"))
# When keys are on the disk; what a process has acknowledged outlives it, whichever it is.
SYNC = os.environ.get("CLUSTER_SYNC", "everysec")
ACCOUNTS = 8
# What a command of keys is answered with, or a connection ends with, when nothing was done.
NOT_DONE = ("TRYAGAIN", "refused")


class Counter:
    """Counts in keys, each time by another node."""

    def __init__(self, cluster, key, through=NODES):
        self.cluster, self.key, self.through = cluster, key, through
        self.told, self.unknown = [], 0

    def step(self):
        try:
            with self.cluster.redis(random.choice(self.through), retry=None) as client:
                for _ in range(20):
                    self.told.append(client.incr(self.key))
        except (redis.RedisError, OSError) as error:
            if not any(word in str(error) for word in NOT_DONE):
                self.unknown += 1
            time.sleep(0.05)

    def check(self):
        count = int(self.cluster.redis(NODES[0]).get(self.key))
        assert self.told == sorted(set(self.told)), "a value was told twice, or went back"
        assert len(self.told) <= count <= len(self.told) + self.unknown, (len(self.told), count, self.unknown)
        assert count >= self.told[-1]
        return len(self.told)


class Transfers:
    """Moves money in a database, each time by another node, and writes down each transfer."""

    def __init__(self, cluster, name, through=NODES):
        self.cluster, self.name, self.through = cluster, name, through
        self.number, self.told, self.unknown = 0, [], set()
        with cluster.tenants(NODES[0], name) as client:
            client.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int NOT NULL)")
            # Without a key: what is done twice is there twice.
            client.execute("CREATE TABLE transfers (id int)")
            client.execute("INSERT INTO accounts SELECT i, 100 FROM generate_series(1, %s) AS s(i)", [ACCOUNTS])

    def step(self):
        try:
            self.transfers()
        except psycopg.Error:
            time.sleep(0.05)

    def transfers(self):
        with self.cluster.tenants(random.choice(self.through), self.name) as client:
            for _ in range(10):
                self.transfer(client)

    def transfer(self, client):
        self.number += 1
        giver, taker = random.sample(range(1, ACCOUNTS + 1), 2)
        client.execute("UPDATE accounts SET amount = amount - 1 WHERE id = %s", [giver])
        client.execute("UPDATE accounts SET amount = amount + 1 WHERE id = %s", [taker])
        client.execute("INSERT INTO transfers VALUES (%s)", [self.number])
        self.commit(client)

    def commit(self, client):
        self.unknown.add(self.number)
        try:
            client.commit()
        except psycopg.errors.AdminShutdown:
            # It is said that the transaction was rolled back; what nobody knows is 08007.
            self.unknown.remove(self.number)
            raise
        self.unknown.remove(self.number)
        self.told.append(self.number)

    def check(self):
        with self.cluster.tenants(NODES[0], self.name) as client:
            rows = [number for (number,) in client.execute("SELECT id FROM transfers").fetchall()]
            total, least = client.execute("SELECT sum(amount), count(*) FROM accounts").fetchone()
        done = set(rows)
        assert len(rows) == len(done), "a transfer was done twice"
        assert set(self.told) <= done, "a transfer that was acknowledged is lost"
        assert done <= set(self.told) | self.unknown, "a transfer was done that was not committed"
        assert (total, least) == (100 * ACCOUNTS, ACCOUNTS)
        return len(self.told)


class Clients:
    """Clients of keys and of databases. Half of them go to any node; the others to none that is left out, and so never wait for one that stands still."""

    def __init__(self, cluster):
        for name in ("bank", "till"):
            with cluster.tenants(NODES[0], autocommit=True) as client:
                client.execute(f"CREATE DATABASE {name}")
        self.cluster, self.reached = cluster, list(NODES)
        self.steady = [Counter(cluster, "first", self.reached), Transfers(cluster, "bank", self.reached)]
        self.jobs = [*self.steady, Counter(cluster, "second"), Transfers(cluster, "till")]
        self.loops = [Loop(job.step) for job in self.jobs]

    def told(self):
        """How much has been acknowledged to those that wait for no node."""
        return sum(len(job.told) for job in self.steady)

    def leave_out(self, node):
        """Returns when no steady client is at the node any more."""
        self.reached.remove(node)
        # The steps that were under way then have to end.
        before = [loop.steps for loop in self.loops[: len(self.steady)]]
        self.cluster.until(lambda: all(loop.steps > count for loop, count in zip(self.loops, before)), f"clients leave {node}")

    def take_in(self, node):
        self.reached.append(node)

    def end(self):
        for loop in self.loops:
            loop.end()


def work(cluster, disturb):
    """Lets clients work while nodes are disturbed."""
    clients = Clients(cluster)
    try:
        disturb(clients)
    finally:
        clients.end()
    cluster.until(lambda: all(cluster.is_served(node) for node in NODES), "every shard is served")
    return [job.check() for job in clients.jobs]


def goes_on(cluster, told, more=40):
    """Waits until clients are told more than before."""
    before = told()
    cluster.until(lambda: told() >= before + more, "clients go on")


def test_nodes_that_are_killed_one_after_the_other_take_nothing_along(start):
    cluster = start(f"keys.appendfsync={SYNC}")

    def disturb(clients):
        goes_on(cluster, clients.told)
        for number in range(KILLS):
            # The one that runs the coordinator, then those that own most.
            shards = cluster.shards(NODES[0])
            owners = [cluster.coordinator(), shards["keys"]["owner"], shards["tenants/2"]["owner"], shards["tenants"]["owner"]]
            node = owners[number % len(owners)]
            pid = cluster.signal(node, signal.SIGKILL)
            cluster.runs_again(node, pid)
            goes_on(cluster, clients.told)

    assert all(count > 0 for count in work(cluster, disturb))
    assert cluster.stop() == 0, cluster.logs()


def test_a_node_that_stands_still_past_its_lease_tells_nobody_anything(start):
    cluster = start(f"keys.appendfsync={SYNC}")

    def disturb(clients):
        goes_on(cluster, clients.told)
        for shard in ("keys", "tenants", "tenants/2"):
            node = cluster.owner(shard)
            other = next(name for name in NODES if name != node)
            before = cluster.shards(other)[shard]["epoch"]
            clients.leave_out(node)
            pid = cluster.signal(node, signal.SIGSTOP)
            cluster.until(
                lambda: cluster.shards(other)[shard]["epoch"] > before and cluster.shards(other)[shard]["state"] == "serving",
                f"another node owns {shard}",
            )
            goes_on(cluster, clients.told)
            os.kill(pid, signal.SIGCONT)
            cluster.runs_again(node, pid)
            clients.take_in(node)
            goes_on(cluster, clients.told)

    assert all(count > 0 for count in work(cluster, disturb))


def test_nodes_that_are_all_killed_at_once_are_there_again_with_what_was_told(start):
    cluster = start(f"keys.appendfsync={SYNC}")

    def disturb(clients):
        goes_on(cluster, clients.told)
        pids = {node: cluster.status(node)["pid"] for node in NODES}
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        for node, pid in pids.items():
            cluster.runs_again(node, pid)
        goes_on(cluster, clients.told)

    assert all(count > 0 for count in work(cluster, disturb))
