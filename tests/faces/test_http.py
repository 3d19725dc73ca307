"""The control API, metrics and health over HTTP."""

import json
import urllib.request

from conftest import NESTED_ROWS, nested_table


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


def post(node, path, body):
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.ports['http']}/api/v1{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.loads(reply.read())


def test_rows_arrays_and_maps_are_objects_and_arrays(node, tmp_path):
    session = post(node, "/sql/sessions", {})["session"]
    post(node, f"/sql/sessions/{session}/execute", {"sql": nested_table("nested_http", tmp_path)})
    started = post(node, f"/sql/sessions/{session}/execute", {"sql": "SELECT * FROM nested_http"})
    assert [column["type"] for column in started["columns"]] == [
        "BIGINT", "ROW<a INT, b VARCHAR>", "ARRAY<INT>", "MAP<VARCHAR, INT>", "MAP<INT, VARCHAR>",
        "ARRAY<ROW<a INT, t TIMESTAMP(3)>>", "ROW<xs ARRAY<INT>, m MAP<VARCHAR, ARRAY<DOUBLE>>>",
    ]
    lines = get(node, f"/api/v1/sql/sessions/{session}/cursors/{started['cursor']}/stream")[1].splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row for row in rows if row.pop("op") == "+I"] == NESTED_ROWS
