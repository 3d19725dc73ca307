"""Nodes over several machines, which share nothing but etcd and a bucket: a machine that is lost takes nothing along."""

import signal
import time

import pytest

from conftest import NODES, PATIENCE


def test_a_machine_that_is_lost_takes_nothing_along(start_machines):
    cluster = start_machines("keys.appendfsync=always")
    for name in ("shop", "bank", "till"):
        with cluster.tenants("n1", autocommit=True) as client:
            client.execute(f"CREATE DATABASE {name}")
        with cluster.tenants("n2", name) as client:
            client.execute("CREATE TABLE t (id int PRIMARY KEY)")
            client.execute("INSERT INTO t SELECT generate_series(1, 100)")
    for number, node in enumerate(NODES * 4, 1):
        assert cluster.redis(node).incr("visits") == number
    owners = {shard["owner"] for name, shard in cluster.shards("n1").items() if name.startswith("tenants/")}
    assert len(owners) > 1, "not one has all"

    # The one that has the keys, and then the one that has them then: no machine is left that was there before.
    for _ in range(2):
        lost = cluster.owner("keys", asked=cluster.living()[0])
        cluster.lose(lost)
        left = cluster.living()
        cluster.until_served(left)
        for node in left:
            assert cluster.redis(node).get("visits") == "12"
            for name in ("shop", "bank", "till"):
                with cluster.tenants(node, name) as client:
                    assert client.execute("SELECT count(*), sum(id) FROM t").fetchone() == (100, 5050)
        cluster.replace(lost)
    assert cluster.redis(NODES[0]).incr("visits") == 13
    assert set(cluster.stop().values()) == {0}, cluster.logs()


@pytest.mark.long
def test_keys_that_are_spread_outlive_the_machines_that_had_them(start_machines):
    cluster = start_machines("keys.spread=true", "keys.appendfsync=always")

    def are_served(asked):
        own = [shard for name, shard in cluster.shards(asked).items() if name.startswith("keys/v/")]
        return len(own) == 1024 and all(shard["state"] == "serving" for shard in own)

    cluster.until(lambda: all(are_served(node) for node in NODES), "each virtual node of keys is served")
    for number in range(90):
        assert cluster.redis(NODES[number % 3]).set(f"k:{number}", number)
    # No machine is left then that was there before.
    for lost in NODES:
        assert any(shard["owner"] == lost for name, shard in cluster.shards(lost).items() if name.startswith("keys/v/"))
        cluster.lose(lost)
        left = cluster.living()
        cluster.until_served(left)
        cluster.until(lambda: all(are_served(node) for node in left), f"others have what {lost} had")
        for node in left:
            client = cluster.redis(node)
            assert [client.get(f"k:{number}") for number in range(90)] == [str(number) for number in range(90)]
            client.close()
        cluster.replace(lost)
    assert set(cluster.stop().values()) == {0}, cluster.logs()


def test_a_node_joins_through_another_one_and_goes_on_when_that_is_gone(start_machines):
    cluster = start_machines()
    address = next(node["address"] for node in cluster.get("n1", "/api/v1/nodes")["nodes"] if node["name"] == "n1")
    cluster.begin("n4", join=address, store=None)
    cluster.wait_for("n4")
    cluster.until(lambda: len(cluster.get("n4", "/api/v1/nodes")["nodes"]) == 4, "n4 is one of them")
    assert cluster.redis("n4").incr("visits") == 1
    with cluster.tenants("n4", autocommit=True) as client:
        client.execute("CREATE DATABASE shop")
    cluster.lose("n1")
    left = cluster.living()
    cluster.until_served(left)
    assert "n4" in left and cluster.redis("n4").incr("visits") == 2
    with cluster.tenants("n4", "shop") as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
    assert cluster.processes["n4"].poll() is None, "it asks through another one"

    other = cluster.directory / "other"
    other.touch(0o600)
    other.write_text("another secret that is long enough")
    assert "the secret of cluster" in cluster.refused("n5", secret=other)
    assert "expected cluster.store = s3://cluster/data" in cluster.refused("n5", store="s3://cluster/other")
    assert "lease.ttl = 3s" in cluster.refused("n5", settings=["lease.ttl=5s"])
    assert "cluster.secret_file" in cluster.refused("n5", settings=["cluster.secret_file=none"])
    cluster.s3().delete_object(Bucket="cluster", Key="data/cluster")
    assert "came nothing" in cluster.refused("n5")


@pytest.mark.long
def test_a_node_whose_way_stands_still_asks_through_another_one_and_keeps_its_name(start_machines):
    cluster = start_machines("keys.appendfsync=always")
    address = next(node["address"] for node in cluster.get("n1", "/api/v1/nodes")["nodes"] if node["name"] == "n1")
    cluster.begin("n4", join=address, store=None)
    cluster.wait_for("n4")
    cluster.until(lambda: len(cluster.get("n2", "/api/v1/nodes")["nodes"]) == 4, "n4 is one of them")
    with cluster.tenants("n4", autocommit=True) as client:
        client.execute("CREATE DATABASE shop")
    epoch = cluster.status("n4")["lease"]["epoch"]
    # All of them: the one that is asked at first, and whoever is asked then.
    for still in NODES:
        cluster.processes[still].send_signal(signal.SIGSTOP)
        began = time.monotonic()
        left = [name for name in cluster.living() if name != still]
        cluster.until_served(left)
        # Nothing that n4 asks waits for the one that stands still, long after the lease that n4 had.
        while time.monotonic() < began + 8:
            lease = cluster.status("n4")["lease"]
            assert (lease["epoch"], lease["serving"]) == (epoch, True), cluster.logs()
            time.sleep(0.1)
        with cluster.tenants("n4", autocommit=True) as client:
            client.execute(f"CREATE DATABASE without_{still}")
        assert {node["name"] for node in cluster.get("n4", "/api/v1/nodes")["nodes"]} == set(left)
        assert cluster.redis("n4").incr("visits") > 0
        with cluster.tenants("n4", "shop") as client:
            assert client.execute("SELECT 1").fetchone() == (1,)
        cluster.processes[still].send_signal(signal.SIGCONT)
        assert cluster.processes[still].wait(timeout=PATIENCE) == 3, "its lease is over"
        cluster.begin(still)
        cluster.wait_for(still)
        everyone = {*NODES, "n4"}
        cluster.until(lambda: {node["name"] for node in cluster.get("n4", "/api/v1/nodes")["nodes"]} == everyone, f"{still} is there again")
        cluster.until_served(everyone)


def test_a_database_moves_over_etcd_and_a_bucket_and_its_clients_stay(start_machines):
    cluster = start_machines()
    with cluster.tenants("n1", autocommit=True) as client:
        client.execute("CREATE DATABASE shop")
    # Who is asked hears of it a moment later.
    made = lambda: [name for name in cluster.shards("n1") if name.startswith("tenants/") and name != "tenants/1"]
    cluster.until(made, "n1 knows the database")
    (shard,) = made()
    clients = {node: cluster.tenants(node, "shop", autocommit=True) for node in NODES}
    clients["n1"].execute("CREATE TABLE t (id int PRIMARY KEY)")
    for number in range(6):
        owner = cluster.owner(shard, asked="n1")
        to = NODES[(NODES.index(owner) + 1) % 3]
        moved = cluster.post("n1", "/api/v1/moves", {"shard": "shop", "to": to})
        assert moved["stayed"] is None and moved["to"] == to, moved
        for place, node in enumerate(NODES):
            clients[node].execute("INSERT INTO t VALUES (%s)", [10 * number + place], prepare=True)
    # What was committed there is in the bucket, whoever is lost.
    lost = cluster.owner(shard, asked="n1")
    cluster.lose(lost)
    left = cluster.living()
    cluster.until_served(left)
    with cluster.tenants(left[0], "shop") as client:
        assert client.execute("SELECT count(*) FROM t").fetchone() == (18,)
