"""What clients of streams have begun ends with the node that they are connected to."""

import signal
import threading

import psycopg

from conftest import NODES


def test_what_a_client_waits_for_ends_at_the_owner_when_the_clients_node_is_killed(start):
    cluster = start()
    owner = cluster.owner("streams")
    front = next(node for node in NODES if node not in (owner, cluster.coordinator()))
    with cluster.streams(owner) as client:
        client.execute("CREATE TABLE endless (event_type INT) WITH ('connector' = 'nexmark')")
    running = lambda: [query for query in cluster.get(owner, "/api/v1/queries")["queries"] if query["state"] == "running"]
    lost = []

    def wait():
        try:
            cluster.streams(front).execute("SELECT event_type FROM endless WHERE event_type = 7")
        except psycopg.Error as error:
            lost.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    cluster.until(lambda: len(running()) == 1, "the query runs")
    pid = cluster.signal(front, signal.SIGKILL)
    waiting.join()
    assert lost, "its node is gone"
    cluster.until(lambda: not running(), "the query has ended at the owner")
    cluster.runs_again(front, pid)
    with cluster.streams(front) as client:
        assert client.execute("SHOW TABLES").fetchall(), "the tables are the owner's, and stay"
