"""What each node of a cluster tells of itself."""

import re

import requests

from conftest import NODES, ROOT
from openmetrics import families

# Streams tell of queries only, and keys of keys that are asked for much.
OF_USE = {"savanna_keys_hot_key_requests"}


def scrape(cluster, node):
    reply = requests.get(f"http://127.0.0.1:{cluster.ports[node]['http']}/metrics", timeout=10)
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    return families(reply.text)


def documented():
    section = (ROOT / "docs" / "operating.md").read_text().split("## Metrics")[1]
    return set(re.findall(r"`((?:savanna|process)_[a-z_]+)`", section))


def total(family):
    return sum(family.samples.values())


def test_each_node_tells_every_family(cluster):
    with cluster.tenants(NODES[0], autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS scraped (id int)")
        connection.execute("INSERT INTO scraped VALUES (1)")
    for node in NODES:
        cluster.redis(node).set("scraped", node)
    # Some nodes have just come.
    for node in NODES:
        cluster.until(lambda node=node: total(scrape(cluster, node)["savanna_lease_renewals"]) > 0, f"{node} has renewed its lease")
    nodes = {node: scrape(cluster, node) for node in NODES}
    for node, shown in nodes.items():
        told = {name + ("_total" if family.type == "counter" else "") for name, family in shown.items()}
        assert told <= documented(), node
        prefixes = ("savanna_node_", "savanna_lease_", "savanna_rpc_", "savanna_store_", "savanna_tenants_log_", "process_")
        wanted = {name for name in documented() - OF_USE if name.startswith(prefixes)}
        assert wanted <= told, node
        calls = shown["savanna_rpc_calls"].samples
        assert calls['savanna_rpc_calls_total', '{class="coordinator"}'] > 0, node
        assert total(shown["savanna_rpc_sent_bytes"]) > 0 and total(shown["savanna_rpc_connections"]) > 0, node
        assert 0 < total(shown["savanna_lease_left_seconds"]) < 60, node
    # Only its owner has a log of keys, and `postgres`.
    assert total(nodes[cluster.owner("keys")]["savanna_keys_log_bytes"]) > 0
    commits = [shown["savanna_tenants_commits"] for shown in nodes.values() if "savanna_tenants_commits" in shown]
    assert sum(total(family) for family in commits) >= 2
