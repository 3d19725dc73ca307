"""Databases are on several nodes: each is owned by one, reached through any, and taken over when its node is gone."""

import os
import random
import signal
import subprocess
import time

import psycopg
import pytest
import requests

from conftest import ANY_PORTS, NODES, SAVANNA, Loop
from test_kills import Transfers, goes_on


def names(cluster, node):
    return {tenant["name"]: tenant for tenant in cluster.get(node, "/api/v1/tenants")["tenants"]}


def tenants(cluster, node):
    """The shards of databases that there are, by number."""
    return {name: shard for name, shard in cluster.shards(node).items() if name.startswith("tenants/") and shard["owner"]}


def create(cluster, node, name):
    """Makes a database, and says which shard it is."""
    before = set(tenants(cluster, node))
    with cluster.tenants(node, autocommit=True) as client:
        client.execute(f"CREATE DATABASE {name}")
    cluster.until(lambda: len(set(tenants(cluster, node)) - before) == 1, "its shard is there")
    return (set(tenants(cluster, node)) - before).pop()


def test_databases_are_spread_over_the_nodes_and_reached_through_all(cluster):
    shards = {f"spread_{number}": create(cluster, NODES[number % 3], f"spread_{number}") for number in range(6)}
    for name, shard in shards.items():
        for asked in NODES:
            with cluster.tenants(asked, name, autocommit=True) as client:
                client.execute("CREATE TABLE IF NOT EXISTS visits (node text PRIMARY KEY)")
                client.execute("INSERT INTO visits VALUES (%s)", [asked])
        with cluster.tenants(NODES[0], name) as client:
            assert {node for (node,) in client.execute("SELECT node FROM visits").fetchall()} == set(NODES)
    for asked in NODES:
        cluster.until(lambda: set(shards.values()) <= set(tenants(cluster, asked)), "every node knows all")
        found = tenants(cluster, asked)
        assert all(found[shard]["state"] == "serving" for shard in shards.values())
        assert all(shard["log"].startswith(f"{shard['owner']}.") for shard in found.values())
        owners = [shard["owner"] for shard in found.values()]
        assert all(2 <= owners.count(node) <= 3 for node in NODES), owners
    assert len({shard["log"] for shard in found.values()}) == 3, "each node appends to a log of its own"
    url = f"http://127.0.0.1:{cluster.ports['n2']['http']}"
    shown = subprocess.run([SAVANNA, "shards", "tenants/", "--url", url], capture_output=True, text=True, check=True).stdout
    shown = {tuple(line.split()[:2]) for line in shown.splitlines()}
    assert {(shard, record["owner"]) for shard, record in found.items()} <= shown


def test_what_is_made_or_removed_through_one_node_is_so_at_all(cluster):
    for number, node in enumerate(NODES):
        create(cluster, node, f"short_{number}")
        other = NODES[(number + 1) % 3]
        with cluster.tenants(other, autocommit=True) as client:
            with pytest.raises(psycopg.errors.DuplicateDatabase):
                client.execute(f"CREATE DATABASE short_{number}")
            with cluster.tenants(NODES[(number + 2) % 3], f"short_{number}", autocommit=True) as guest:
                guest.execute("SELECT 1")
                with pytest.raises(psycopg.errors.ObjectInUse):
                    client.execute(f"DROP DATABASE short_{number}")
            client.execute(f"DROP DATABASE short_{number}")
            with pytest.raises(psycopg.errors.InvalidCatalogName):
                client.execute(f"DROP DATABASE short_{number}")
            client.execute(f"DROP DATABASE IF EXISTS short_{number}")
        for asked in NODES:
            with pytest.raises(psycopg.OperationalError, match="does not exist"):
                cluster.tenants(asked, f"short_{number}")
        # Its name is free, and whoever wants it gets the new one.
        create(cluster, other, f"short_{number}")
        for asked in NODES:
            cluster.tenants(asked, f"short_{number}").close()


def test_the_control_api_has_the_databases_of_all_nodes_at_each(cluster):
    base = {node: f"http://127.0.0.1:{cluster.ports[node]['http']}/api/v1/tenants" for node in NODES}
    assert requests.post(base["n1"], json={"name": "books"}, timeout=30).status_code == 201
    with cluster.tenants("n3", "books", autocommit=True) as client:
        client.execute("CREATE TABLE titles (title text)")
        client.execute("INSERT INTO titles VALUES ('Middlemarch')")
        for node in NODES:
            assert names(cluster, node)["books"]["sessions"] == 1
    assert requests.post(base["n2"], json={"name": "books"}, timeout=30).status_code == 409
    backup = requests.get(f"{base['n2']}/books/backup", timeout=30)
    assert backup.status_code == 200
    restored = requests.post(f"{base['n3']}/copies/restore", data=backup.content, timeout=30)
    assert restored.status_code in (200, 201), restored.text
    with cluster.tenants("n1", "copies") as client:
        assert client.execute("SELECT title FROM titles").fetchall() == [("Middlemarch",)]
    assert requests.delete(f"{base['n2']}/copies", timeout=30).status_code == 204
    for node in NODES:
        cluster.until(lambda: "copies" not in names(cluster, node) and "books" in names(cluster, node), "all know")


def test_roles_of_a_database_let_its_clients_in_through_any_node(cluster):
    create(cluster, "n1", "guarded")
    with cluster.tenants("n2", "guarded", autocommit=True) as client:
        client.execute("CREATE USER ann PASSWORD 'secret'")
    for node in NODES:
        address = f"host=127.0.0.1 port={cluster.ports[node]['tenants']} user=ann dbname=guarded connect_timeout=30"
        with psycopg.connect(address, password="secret") as client:
            assert client.execute("SELECT current_user").fetchone() == ("ann",)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(address, password="wrong")


class Undisturbed(Transfers):
    """Transfers of which none may fail: their database and its clients are on nodes that nobody kills."""

    def step(self):
        self.transfers()


class Makers:
    """Makes databases and removes them, each time through another node."""

    def __init__(self, cluster):
        self.cluster, self.number, self.told = cluster, 0, []
        # What is there, what is not, and what nobody knows of.
        self.there, self.gone, self.unknown = set(), set(), set()

    def step(self):
        try:
            with self.cluster.tenants(random.choice(NODES), autocommit=True) as client:
                self.number += 1
                self.do(client, "CREATE", f"made_{self.number}", self.there)
                if self.number % 3:
                    self.do(client, "DROP", f"made_{self.number}", self.gone)
        except psycopg.Error:
            time.sleep(0.05)

    def do(self, client, what, name, outcome):
        self.there.discard(name)
        self.unknown.add(name)
        client.execute(f"{what} DATABASE {name}")
        self.unknown.remove(name)
        outcome.add(name)
        self.told.append(name)

    def check(self):
        for node in NODES:
            self.cluster.until(lambda: self.is_so(set(names(self.cluster, node))), f"{node} knows what was acknowledged")
        for name in random.sample(sorted(self.there), min(5, len(self.there))):
            self.cluster.tenants(random.choice(NODES), name).close()

    def is_so(self, listed):
        return self.there <= listed and not self.gone & listed


def test_a_node_whose_host_does_not_start_gets_no_databases(start):
    cluster = start()
    # Of the others it has the fewest databases: none.
    join = [SAVANNA, "node", "--join", cluster.directory, "--name", "n4", *ANY_PORTS, "--set", "tenants.store=s3://none/there", "--output", "json"]
    nowhere = {**os.environ, "AWS_ENDPOINT": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "c"}
    broken = subprocess.Popen(join, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=nowhere)
    try:
        cluster.until(lambda: "n4" in {entry["name"] for entry in cluster.get("n1", "/api/v1/nodes")["nodes"]}, "the node has joined")
        # It has a log soon, and tries on.
        cluster.until(lambda: any((cluster.directory / "tenants" / "logs").glob("n4.*")), "the node has begun a log")
        for number, node in enumerate(NODES):
            create(cluster, node, f"healthy_{number}")
            cluster.tenants(node, f"healthy_{number}").close()
        node = next(name for name in NODES[1:] if name != cluster.coordinator())
        cluster.signal(node, signal.SIGKILL)
        others = [name for name in NODES if name != node]
        cluster.until(lambda: node not in {shard["owner"] for shard in tenants(cluster, others[0]).values()}, "its databases go to others")
        assert "n4" not in {shard["owner"] for shard in tenants(cluster, others[0]).values()}
        for number in range(3):
            cluster.tenants(others[number % 2], f"healthy_{number}").close()
    finally:
        broken.kill()
        broken.wait()


KILLS = int(os.environ.get("CLUSTER_KILLS", "3"))


def test_a_node_that_is_killed_is_noticed_by_its_own_clients_alone(start):
    cluster = start()
    log_folders = cluster.directory / "tenants" / "logs"
    for number in range(KILLS):
        # The owner of the database of administrators among them, which everybody asks who comes in.
        node = tenants(cluster, NODES[0])["tenants/1"]["owner"] if number % 2 == 0 else random.choice(NODES)
        others = [name for name in NODES if name != node]
        killed, steady = [], []
        # The node with fewest gets each: some are soon on all.
        while len(killed) < 2 or len(steady) < 2:
            name = f"bank_{number}_{len(killed)}_{len(steady)}"
            shard = create(cluster, others[0], name)
            if tenants(cluster, others[0])[shard]["owner"] == node:
                killed.append(Transfers(cluster, name, through=NODES))
            else:
                steady.append(Undisturbed(cluster, name, through=others))
        makers = Makers(cluster)
        jobs = [*killed, *steady, makers]
        loops = [Loop(job.step) for job in jobs]
        before = {name: shard for name, shard in tenants(cluster, others[0]).items() if shard["owner"] == node}
        try:
            told = lambda: sum(len(job.told) for job in jobs)
            goes_on(cluster, told)
            pid = cluster.signal(node, signal.SIGKILL)
            goes_on(cluster, lambda: sum(len(job.told) for job in steady))
            cluster.runs_again(node, pid)
            for job in jobs:
                goes_on(cluster, lambda: len(job.told), 3)
        finally:
            for loop in loops:
                loop.end()
        assert all(job.check() > 0 for job in (*killed, *steady))
        makers.check()
        after = tenants(cluster, others[0])
        assert all(after[name]["log"] != shard["log"] for name, shard in before.items() if name in after), "they are in other logs now"
        former = {shard["log"].split("/")[0] for shard in before.values()}
        cluster.until(lambda: not any((log_folders / log).exists() for log in former), "the log that nobody needs is removed")
        with cluster.tenants(random.choice(NODES), autocommit=True) as client:
            for name in [*(job.name for job in (*killed, *steady)), *sorted(makers.there)]:
                client.execute(f"DROP DATABASE {name}")
    assert cluster.stop() == 0, cluster.logs()
