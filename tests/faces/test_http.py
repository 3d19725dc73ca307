"""The control API, metrics and health over HTTP."""

import json
import re
import time
import urllib.request

import psycopg
import redis

from conftest import NESTED_ROWS, ROOT, nested_table
from node import Node
from openmetrics import families
from postgresql import PostgreSQL


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


def scrape(node):
    """Each line of /metrics: the name and the labels of a figure, and its value."""
    lines = [line for line in get(node, "/metrics")[1].splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def documented_metrics():
    section = (ROOT / "docs" / "operating.md").read_text().split("## Metrics")[1]
    return set(re.findall(r"`((?:savanna|process)_[a-z_]+)`", section))


def total(figures, name):
    return sum(value for line, value in figures.items() if line.split("{")[0] == name)


def test_metrics_tell_what_keys_and_tenants_did(node):
    keys = redis.Redis(port=node.ports["keys"])
    tenant = psycopg.connect(f"host=127.0.0.1 port={node.ports['tenants']} dbname=postgres user=postgres", autocommit=True)
    with keys, tenant:
        tenant.execute("CREATE TABLE scraped (id int)")
        for _ in range(10):
            tenant.execute("INSERT INTO scraped VALUES (1)")
            keys.set("scraped", "1")
        # Of so many requests some are looked at for the keys that are asked for most.
        with keys.pipeline(transaction=False) as many:
            for _ in range(2_000):
                many.get("scraped")
            many.execute()
        hot = 'savanna_keys_hot_key_requests{key="scraped"}'
        figures = scrape(node)
        deadline = time.monotonic() + 30
        # Threads tell their figures now and then; other tests may have sent as many commands before.
        while hot not in figures and time.monotonic() < deadline:
            time.sleep(0.05)
            figures = scrape(node)
        assert total(figures, "savanna_keys_commands_total") >= 2_010
        assert figures[hot] >= 256
        assert total(figures, "savanna_keys_keys") >= 1
        assert total(figures, "savanna_keys_clients") >= 1
        assert total(figures, "savanna_keys_log_bytes_total") > 0
        assert figures['savanna_tenants_commits_total{database="postgres"}'] >= 11
        assert figures['savanna_tenants_sessions{database="postgres"}'] >= 1
        assert figures["savanna_tenants_databases"] >= figures["savanna_tenants_awake"] >= 1
        assert figures["savanna_tenants_log_flushes_total"] >= 1
        assert figures["savanna_tenants_log_flush_seconds_count"] == figures["savanna_tenants_log_flushes_total"]
        assert figures["savanna_tenants_log_appends_total"] >= 11
        of_database = ("cpu_seconds_total", "written_bytes_total", "wakes_total", "memory_bytes")
        assert all(figures[f'savanna_tenants_{name}{{database="postgres"}}'] > 0 for name in of_database)
        assert figures['savanna_store_requests_total{request="get"}'] > 0
        assert 0 < figures["savanna_lease_left_seconds"] < 60
        assert figures["process_resident_memory_bytes"] > 1 << 20
        assert figures["process_open_fds"] > 10
        tenant.execute("DROP TABLE scraped")


def post(node, path, body):
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.ports['http']}/api/v1{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.loads(reply.read())


def shown_metrics(text):
    return {name + ("_total" if family.type == "counter" else "") for name, family in families(text).items()}


def metrics_of_files(directory):
    """What a node shows that serves files, with their names in a database, which nodes do only when they are asked to."""
    database = PostgreSQL("secret")
    try:
        database.connect().close()
        address = f"postgres://postgres:secret@127.0.0.1:{database.port}/postgres"
        services = {"SAVANNA_SERVICES": "streams,keys,tenants,files", "SAVANNA_FILES_DATABASE": address}
        node = Node(directory, {**services, "SAVANNA_FILES_PORT": "0", "SAVANNA_FILES_DATA_PORT": "0", "SAVANNA_FILES_HTTP_PORT": "0", "SAVANNA_FILES_AUDIT": "true"})
        try:
            return {name for name in shown_metrics(get(node, "/metrics")[1]) if name.startswith("savanna_files")}
        finally:
            node.kill()
    finally:
        database.stop()


def test_the_page_on_operating_lists_every_metric_and_no_other(node, tmp_path):
    (tmp_path / "scraped.csv").write_text("at\n2026-01-01 00:00:01\n2026-01-01 00:00:02\n")
    scraped = f"""CREATE TABLE scraped (at TIMESTAMP(3), WATERMARK FOR at AS at)
                  WITH ('connector' = 'file', 'path' = '{tmp_path}/scraped.csv', 'format' = 'csv', 'follow' = 'true')"""
    session = post(node, "/sql/sessions", {})["session"]
    kept = f"CREATE TABLE kept (at TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = '{tmp_path}/kept', 'format' = 'csv')"
    windows = "INSERT INTO kept SELECT window_start, count(*) FROM TABLE(TUMBLE(TABLE scraped, DESCRIPTOR(at), INTERVAL '1' SECOND)) GROUP BY window_start, window_end"
    for statement in (scraped, "CREATE TEMPORARY MATERIALIZED VIEW seen AS SELECT at FROM scraped", kept, "SET 'query.name' = 'kept'", "SET 'snapshot-interval' = '50ms'",
                      windows, "RESET 'query.name'", "SELECT * FROM scraped"):
        post(node, f"/sql/sessions/{session}/execute", {"sql": statement})
    deadline = time.monotonic() + 30
    while "query_watermark" not in (text := get(node, "/metrics")[1]) and time.monotonic() < deadline:
        time.sleep(0.05)
    post(node, f"/sql/sessions/{session}/execute", {"sql": "DROP QUERY 'kept'"})
    # Nothing moves where a node is alone; tests/cluster looks for that, and tests/functions for functions.
    elsewhere = ("savanna_move", "savanna_functions")
    assert shown_metrics(text) | metrics_of_files(tmp_path) == {name for name in documented_metrics() if not name.startswith(elsewhere)}


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
