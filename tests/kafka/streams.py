"""What the tests of Kafka ask of a node."""

import contextlib
import json
import time

import psycopg

from node import Node


def connect(node):
    return psycopg.connect(host="127.0.0.1", port=node.ports["pgwire"], user="postgres", dbname="savanna_streams", autocommit=True)


def run(node, *statements):
    with connect(node) as connection:
        for statement in statements:
            connection.execute(statement)


@contextlib.contextmanager
def a_node(directory, **more):
    """A node that is stopped at the end, or killed if the test fails."""
    node = Node(directory, **more)
    try:
        yield node
        assert node.stop() == 0, node.log.read_text()
    finally:
        if node.process.poll() is None:
            node.kill()


def queries(node):
    """What is shown of queries, by name."""
    with connect(node) as connection:
        shown = connection.execute("SHOW QUERIES")
        names = [column.name for column in shown.description]
        rows = [dict(zip(names, row)) for row in shown.fetchall()]
    return {row["name"] or row["query"]: row for row in rows}


def until(is_so, what="", patience=60):
    deadline = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.1)


def numbers(broker, topic):
    """The column `n` of all messages that count, sorted."""
    return sorted(json.loads(value)["n"] for _, value in broker.read(topic))


def rows(*values):
    return [json.dumps({"n": value}).encode() for value in values]
