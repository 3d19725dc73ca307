"""Rows of streams are given to functions, and to web servers: one node has the streams, and the functions that get them."""

import collections
import http.server
import json
import socket
import subprocess
import threading
import time

import psycopg
import pytest

from conftest import ROLE, zip_of
from functions_server import EXAMPLE, Server
from node import SAVANNA, command
from ports import free_port

pytestmark = pytest.mark.skipif(EXAMPLE, reason="the example serves no streams")

ROWS = 2_000
NUMBERS = f"""CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '{ROWS}', 'fields.n.kind' = 'sequence',
    'fields.n.start' = '1', 'fields.n.end' = '{ROWS}')"""
# It fails the first time that it gets a batch, so that each comes again.
TOLD = """
import json
seen = set()
def handler(event, context):
    if event["key"] not in seen:
        seen.add(event["key"])
        raise ValueError("not yet")
    print("told", json.dumps([event["key"], event["table"], [row["n"] for row in event["rows"]]]))
"""


class Streams(Server):
    """Functions, and streams beside them."""

    def start(self):
        self.sql = free_port()
        settings = {"functions.port": self.port, "pgwire.port": self.sql, "http.port": 0, "functions.retry_minute": "200ms"}
        words = command(self.folder / "data", ["streams", "functions"], settings)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        for port in (self.port, self.sql):
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
                    time.sleep(0.02)

    def connect(self):
        return psycopg.connect(host="127.0.0.1", port=self.sql, user="postgres", dbname="savanna_streams", autocommit=True)


@pytest.fixture
def node(tmp_path):
    server = Streams(tmp_path)
    yield server
    server.kill()


def state_of(connection, query):
    shown = connection.execute("SHOW QUERIES")
    names = [column.name for column in shown.description]
    rows = [dict(zip(names, row)) for row in shown.fetchall()]
    return next((row for row in rows if query in row["statement"]), None)


def ended(connection, query, *otherwise):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state = state_of(connection, query)
        if state and state["state"] in ("finished", "failed", *otherwise):
            return state
        time.sleep(0.05)
    raise AssertionError(f"the query runs on: {state_of(connection, query)}")


@pytest.mark.parametrize("invocation", ["event", "wait"])
def test_each_row_comes_to_a_function_that_fails_at_first(node, invocation):
    node.client().create_function(
        FunctionName="told", Runtime="python3.11", Handler="main.handler", Role=ROLE, Timeout=20, Code={"ZipFile": zip_of({"main.py": TOLD})},
    )
    # Whether a batch was seen is known to the instance that has seen it.
    node.client().put_function_concurrency(FunctionName="told", ReservedConcurrentExecutions=1)
    with node.connect() as connection:
        connection.execute(NUMBERS)
        connection.execute(
            f"""CREATE TABLE told (n BIGINT) WITH ('connector' = 'function', 'function' = 'told', 'endpoint' = '{node.url}',
                'invocation' = '{invocation}', 'batch.rows' = '300')"""
        )
        connection.execute("INSERT INTO told SELECT n FROM numbers")
        assert ended(connection, "INSERT INTO told")["state"] == "finished"
    deadline = time.monotonic() + 60
    while True:
        logs = subprocess.run([SAVANNA, "functions", "logs", "told", "--url", node.url], capture_output=True, text=True, check=True).stdout
        told = [json.loads(line.removeprefix("told ")) for line in logs.splitlines() if line.startswith("told ")]
        if sum(len(numbers) for _, _, numbers in told) >= ROWS or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert collections.Counter(n for _, _, numbers in told for n in numbers) == {n: 1 for n in range(1, ROWS + 1)}
    assert len({key for key, _, _ in told}) == len(told) and all(len(numbers) <= 300 and table == "told" for _, table, numbers in told)


def test_each_row_comes_to_a_web_server_that_is_busy_at_first(node):
    came, refused = [], set()

    class Busy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            key, body = self.headers["Idempotency-Key"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_first = key not in refused
            refused.add(key)
            if not is_first:
                came.extend(row["n"] for row in body)
            self.send_response(503 if is_first else 204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with node.connect() as connection:
            connection.execute(NUMBERS)
            url = f"http://127.0.0.1:{server.server_port}/rows"
            connection.execute(f"CREATE TABLE hook (n BIGINT) WITH ('connector' = 'webhook', 'url' = '{url}', 'batch.rows' = '500')")
            connection.execute("INSERT INTO hook SELECT n FROM numbers")
            assert ended(connection, "INSERT INTO hook")["state"] == "finished"
            assert sorted(came) == list(range(1, ROWS + 1))
            # A server that is not there: the query waits for it, and can be stopped.
            connection.execute("CREATE TABLE away (n BIGINT) WITH ('connector' = 'webhook', 'url' = 'http://127.0.0.1:1')")
            connection.execute("INSERT INTO away SELECT n FROM numbers")
            time.sleep(1)
            state = state_of(connection, "INSERT INTO away")
            assert state["state"] == "running", state
            connection.execute(f"STOP QUERY '{state['query']}'")
            assert ended(connection, "INSERT INTO away", "cancelled")["state"] == "cancelled"
    finally:
        server.shutdown()
