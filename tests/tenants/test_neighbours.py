"""What a tenant does to others that live on the same thread."""

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from conftest import Server, busy_with_endless


@pytest.fixture
def names(server):
    """One more tenant than there are threads for them."""
    names = [f"neighbour{number}" for number in range(1 + len(os.sched_getaffinity(0)))]
    with server.connect(autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")
    yield names
    with server.connect(autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name}")


def test_a_statement_that_takes_long_is_in_no_other_tenants_way(server, names):
    with server.connect(names[0]) as busy:
        with busy_with_endless(busy):
            for round in range(50):
                for name in names[1:]:
                    with server.connect(name, autocommit=True) as neighbour:
                        neighbour.execute("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)")
                        neighbour.execute("INSERT INTO t VALUES (%s)", (round,))
        busy.rollback()
        assert busy.execute("SELECT 1").fetchone() == (1,)


def test_a_text_that_takes_long_to_read_is_in_no_other_tenants_way(server, names):
    values = ", ".join(map(str, range(300_000)))
    with server.connect(names[0], autocommit=True) as busy, contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        neighbours = [stack.enter_context(server.connect(name, autocommit=True)) for name in names[1:]]
        for prepare in (False, True):
            reading = pool.submit(busy.execute, f"SELECT 7 IN ({values})", prepare=prepare)
            answers = 0
            while not reading.done():
                for neighbour in neighbours:
                    neighbour.execute("SELECT 1")
                answers += 1
            assert reading.result().fetchone() == (True,)
            # Each would wait for all of it.
            assert answers > 20


def test_clients_of_the_tenant_itself_wait_or_go(server, names):
    with server.connect(names[0], autocommit=True) as busy:
        with busy_with_endless(busy):
            with server.connect(autocommit=True) as administration:
                administration.execute("SELECT 1")
            waiting = [threading.Thread(target=lambda: server.connect(names[0]).close()) for _ in range(3)]
            for each in waiting:
                each.start()
        for each in waiting:
            each.join()


def test_what_a_long_statement_logs_is_there_after_a_kill(tmp_path):
    server = Server(tmp_path, {"tenants.log_distance": "64KiB"})
    server.start()
    server.listen()
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE DATABASE busy")
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, b text)")
    with server.connect("busy", autocommit=True) as busy:
        busy.execute("CREATE SEQUENCE s")
        answers = []
        query = "SELECT max(nextval('s')) FROM generate_series(1, 300000)"
        # From now on it is known to take long.
        busy.execute(query)
        thread = threading.Thread(target=lambda: answers.append(busy.execute(query).fetchone()[0]))
        with server.connect(autocommit=True) as neighbour:
            # The log is cut again and again: at first until nobody needs it for the sequence, then behind what the query logs.
            for id in range(2000):
                neighbour.execute("INSERT INTO t VALUES (%s, %s)", (id, "x" * 50_000))
                if id == 200:
                    thread.start()
                if answers:
                    break
        thread.join()
    server.kill()
    server.start()
    server.listen()
    with server.connect("busy") as connection:
        assert connection.execute("SELECT nextval('s')").fetchone()[0] > answers[0] >= 600_000
    server.kill()
