"""A node that is drained gets nothing new until that is undone, or until it starts again."""

import json
import signal
import subprocess

import requests

from conftest import NODES, SAVANNA
from test_databases import create, tenants


def drain(cluster, asked, node, *words):
    url = f"http://127.0.0.1:{cluster.ports[asked]['http']}"
    ran = subprocess.run([SAVANNA, "drain", node, *words, "--url", url, "--output", "json"], capture_output=True, text=True)
    return ran, json.loads(ran.stdout.splitlines()[-1]) if ran.stdout else None


def drained(cluster, asked):
    return [node["name"] for node in cluster.get(asked, "/api/v1/nodes")["nodes"] if node["is_drained"]]


def owners(cluster, asked):
    return {shard["owner"] for shard in tenants(cluster, asked).values()}


def test_a_drained_node_gets_nothing_new_until_that_is_undone_or_it_starts_again(start):
    cluster = start()
    for name in ("one", "two", "three", "four"):
        create(cluster, NODES[0], name)
    node = next(node for node in NODES if node != cluster.coordinator() and node != cluster.owner("tenants"))
    asked, third = (other for other in NODES if other != node)
    ran, report = drain(cluster, asked, node)
    assert ran.returncode == 0 and report["drained"] and report["moved"] >= 1 and report["stayed"] == 0, ran
    for other in NODES:
        cluster.until(lambda other=other: drained(cluster, other) == [node], f"{other} knows that {node} is drained")
    shown = subprocess.run([SAVANNA, "nodes", "--url", f"http://127.0.0.1:{cluster.ports[asked]['http']}"], capture_output=True, text=True).stdout
    assert [line.split()[0] for line in shown.splitlines() if line.rstrip().endswith("drained")] == [node], shown

    # The node that was asked makes a database, where nodes are alike; this one does not.
    for number in range(4):
        made = create(cluster, node, f"new_{number}")
        assert tenants(cluster, node)[made]["owner"] != node
    refused = cluster.post(asked, "/api/v1/moves", {"shard": "one", "to": node})
    assert f"`savanna drain {node} --undo`" in refused["detail"], refused
    url = f"http://127.0.0.1:{cluster.ports[node]['http']}/api/v1/tenants/restored/restore"
    refused = requests.post(url, data=b"nothing", timeout=10)
    assert refused.status_code == 409 and "is drained" in refused.json()["detail"], refused.text

    # Nor does it get those of a node that is gone.
    pid = cluster.signal(third, signal.SIGKILL)
    cluster.until(lambda: owners(cluster, asked) == {asked}, f"{asked} has all")
    cluster.runs_again(third, pid)
    assert drained(cluster, asked) == [node] and node not in owners(cluster, asked)

    _, report = drain(cluster, asked, node, "--undo")
    assert report == {"node": node, "drained": False, "moved": 0, "stayed": 0}
    assert drained(cluster, asked) == []
    assert cluster.post(asked, "/api/v1/moves", {"shard": "one", "to": node})["stayed"] is None

    ran, report = drain(cluster, third, node)
    assert ran.returncode == 0 and report["moved"] == 1, ran
    pid = cluster.signal(node, signal.SIGKILL)
    cluster.runs_again(node, pid)
    cluster.until(lambda: all(drained(cluster, other) == [] for other in NODES), "it has started again")


def test_the_last_node_that_takes_databases_is_not_drained(start):
    cluster = start()
    first, second, last = NODES
    for node in (first, second):
        ran, _ = drain(cluster, last, node)
        assert ran.returncode == 0, ran
    ran, _ = drain(cluster, first, last)
    assert ran.returncode == 2 and "no other node" in ran.stderr, ran
    assert set(drained(cluster, last)) == {first, second}
    assert owners(cluster, last) == {last}
