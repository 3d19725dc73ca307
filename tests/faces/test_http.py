"""The control API, metrics and health over HTTP."""

import json
import urllib.request


def get(node, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{node.ports['http']}{path}", timeout=10) as reply:
        return reply.status, reply.read().decode()


def test_the_node_is_healthy_and_says_what_it_serves(node):
    assert get(node, "/healthz")[0] == 200
    status = json.loads(get(node, "/api/v1/status")[1])
    names = {service["service"] for service in status["services"]}
    assert {"http", "pgwire"} <= names


def test_the_document_describes_the_api(node):
    document = json.loads(get(node, "/api/v1/openapi.json")[1])
    assert "/api/v1/status" in document["paths"]


def test_metrics_are_prometheus_text(node):
    text = get(node, "/metrics")[1]
    assert "# TYPE savanna_" in text
