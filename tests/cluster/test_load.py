"""Databases go to the node that does least, and every node knows what all do."""

import subprocess
import threading

import pytest

from conftest import NODES, SAVANNA
from test_databases import create, tenants


@pytest.mark.long
def test_a_new_database_does_not_go_to_the_node_that_is_busy_though_it_has_fewest(start):
    cluster = start()
    shards = {name: create(cluster, NODES[0], name) for name in ("one", "two", "three", "four")}
    owners = [shard["owner"] for shard in tenants(cluster, NODES[0]).values()]
    assert sorted(owners.count(node) for node in NODES) == [1, 2, 2], "as long as nobody does much, the numbers count"
    busy = min(NODES, key=owners.count)
    names = {shard: name for name, shard in shards.items()}
    database = next(names.get(name, "postgres") for name, shard in tenants(cluster, NODES[0]).items() if shard["owner"] == busy)

    def loads(asked):
        return {node["name"]: node["load"] for node in cluster.get(asked, "/api/v1/nodes")["nodes"]}

    ended = threading.Event()

    def work():
        with cluster.tenants(busy, database, autocommit=True) as client:
            while not ended.is_set():
                client.execute("SELECT sum(i * i) FROM generate_series(1, 20000) AS s(i)").fetchone()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for asked in NODES:
            cluster.until(lambda: loads(asked)[busy]["cpu_micros"] > 250_000, f"{asked} knows what {busy} does")
        others = [node for node in NODES if node != busy]
        asked = busy
        for number in range(2):
            shard = create(cluster, asked, f"next_{number}")
            assert tenants(cluster, asked)[shard]["owner"] in others, loads(asked)
        url = f"http://127.0.0.1:{cluster.ports[asked]['http']}"
        shown = subprocess.run([SAVANNA, "nodes", "--url", url], capture_output=True, text=True, check=True).stdout
        assert shown.splitlines()[0].split()[4] == "cpu" and "%" in shown
    finally:
        ended.set()
        worker.join()
