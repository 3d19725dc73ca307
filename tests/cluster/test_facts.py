"""What each node tells of itself is to be had through any node."""

import json
import os
import signal
import subprocess
import time

import requests

from conftest import NODES, SAVANNA
from openmetrics import families


def run(cluster, asked, *words):
    url = f"http://127.0.0.1:{cluster.ports[asked]['http']}"
    return subprocess.run([SAVANNA, *words, "--url", url], capture_output=True, text=True)


def test_every_node_tells_of_every_node(cluster):
    for number, node in enumerate(NODES):
        for _ in range(100 * number):
            cluster.get(node, "/api/v1/nodes")
    for node in NODES:
        own = cluster.status(node)
        settings = cluster.get(node, "/api/v1/config")
        for asked in NODES:
            status = cluster.get(asked, f"/api/v1/nodes/{node}/status")
            assert {**status, "uptime_seconds": 0} == {**own, "uptime_seconds": 0}
            assert cluster.get(asked, f"/api/v1/nodes/{node}/config") == settings
            reply = requests.get(f"http://127.0.0.1:{cluster.ports[asked]['http']}/api/v1/nodes/{node}/metrics", timeout=10)
            assert reply.headers["content-type"].startswith("application/openmetrics-text")
            before, told = requests_of(own_metrics(cluster, node)), requests_of(reply.text)
            # What each node was asked tells them apart.
            assert told <= before and told > before - 20, (node, asked, told, before)


def own_metrics(cluster, node):
    return requests.get(f"http://127.0.0.1:{cluster.ports[node]['http']}/metrics", timeout=10).text


def requests_of(text):
    return sum(families(text)["savanna_http_requests"].samples.values())


def test_the_command_line_shows_another_node(cluster):
    shown = run(cluster, "n1", "status", "--node", "n2")
    assert shown.returncode == 0 and shown.stdout.startswith("node n2 "), shown
    settings = json.loads(run(cluster, "n1", "config", "show", "--node", "n3", "--output", "json").stdout)["settings"]
    assert {"key": "node.name", "value": "n3"}.items() <= next(setting for setting in settings if setting["key"] == "node.name").items()
    own = run(cluster, "n2", "config", "show").stdout
    assert any(line.split()[:2] == ["node.name", "n2"] for line in own.splitlines())
    metrics = run(cluster, "n1", "metrics", "--node", "n2")
    assert "savanna_node_uptime_seconds" in families(metrics.stdout)
    samples = [json.loads(line) for line in run(cluster, "n1", "metrics", "--output", "json").stdout.splitlines()]
    assert {"metric": "savanna_node_service_up", "labels": {"service": "http"}, "value": 1.0} in samples
    unknown = run(cluster, "n1", "status", "--node", "n9")
    assert unknown.returncode == 1 and "n1, n2, n3, came n9" in unknown.stderr, unknown


def stands_still(cluster, node):
    try:
        requests.get(f"http://127.0.0.1:{cluster.ports[node]['http']}/healthz", timeout=0.3)
        return False
    except requests.Timeout:
        return True


def test_a_node_that_stands_still_is_named_with_how_long_it_was_asked(cluster):
    others = [node for node in NODES if node != cluster.coordinator()]
    node, asked = others[0], others[1]
    pid = cluster.signal(node, signal.SIGSTOP)
    try:
        cluster.until(lambda: stands_still(cluster, node), f"{node} stands still")
        began = time.monotonic()
        silent = requests.get(f"http://127.0.0.1:{cluster.ports[asked]['http']}/api/v1/nodes/{node}/status", timeout=10)
        assert time.monotonic() - began < 6
        assert silent.status_code == 504, silent.text
        detail = silent.json()["detail"]
        assert f"node {node} did not tell its status within 3s" in detail and "look whether its process runs" in detail
    finally:
        os.kill(pid, signal.SIGCONT)
    cluster.until(lambda: cluster.is_served(asked) and cluster.is_served(node), "all is served again")
