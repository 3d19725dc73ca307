"""Many streaming queries at once: how many threads they have, and what is left of their memory when they have ended."""

import time

import psycopg
import pytest

from node import Node

QUERIES = 200
MEBIBYTE = 1 << 10


@pytest.fixture
def own_node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.kill()


def standing(node):
    """Threads and resident KiB of the node."""
    with open(f"/proc/{node.process.pid}/status", encoding="ascii") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["Threads"]), int(lines["VmRSS"].split()[0])


@pytest.mark.long
def test_queries_have_few_threads_and_give_their_memory_back(own_node):
    address = f"host=127.0.0.1 port={own_node.ports['pgwire']} user=postgres dbname=savanna_streams"
    connections = [psycopg.connect(address, autocommit=True) for _ in range(QUERIES)]
    connections[0].execute("CREATE TABLE bids (a BIGINT, s STRING, at TIMESTAMP(3)) WITH ('connector' = 'datagen', 'rows-per-second' = '20000')")
    threads_before, memory_before = standing(own_node)
    for connection in connections:
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SELECT * FROM bids")
        assert len(connection.execute("FETCH 10 FROM c").fetchall()) == 10
    threads, memory = standing(own_node)
    # A few read the sources of all queries. Statements have threads that end, and the runtime has some that may be new.
    assert threads - threads_before <= 60
    assert memory - memory_before <= QUERIES * 40 * MEBIBYTE
    for connection in connections:
        connection.close()
    deadline = time.monotonic() + 60
    while True:
        threads, memory = standing(own_node)
        if threads - threads_before <= 60 and memory - memory_before <= 200 * MEBIBYTE:
            break
        assert time.monotonic() < deadline, (threads_before, threads, memory_before, memory)
        time.sleep(0.2)
    assert own_node.process.poll() is None, own_node.log.read_text()
