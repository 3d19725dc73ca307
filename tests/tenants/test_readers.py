"""Queries that take long and only read: their database goes on meanwhile, and they see what was there when they began."""

import contextlib
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from conftest import ENDLESS, busy_with_endless, running
from test_gone_clients import active, within

ROWS = 40_000
SHARE = 100
# Each row is read as often, by its key.
LONG = "SELECT count(*), sum(t.n), min(t.n) FROM generate_series(1, 8) g, t JOIN t AS o ON o.id = t.id"


@pytest.fixture(scope="module")
def shop(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE DATABASE readers")
    with server.connect("readers", autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, n int, k int)")
        connection.execute("INSERT INTO t SELECT g, %s, g %% 100 FROM generate_series(1, %s) g", (SHARE, ROWS))
        connection.execute("CREATE INDEX t_k ON t (k)")
    return server


@contextlib.contextmanager
def writers(shop, count=2):
    """Clients that move something from row to row, and read their rows. Yields what each statement has taken, in seconds."""
    taken, over, failed = [], threading.Event(), []

    def write(number):
        with shop.connect("readers", autocommit=True) as connection:
            at = number
            while not over.is_set():
                at += 1
                began = time.monotonic()
                a, b = 1 + at * 37 % ROWS, 1 + at * 101 % ROWS
                with connection.transaction():
                    for id, by in sorted([(a, -1), (b, 1)]):
                        connection.execute("UPDATE t SET n = n + %s, k = (k + 1) %% 100 WHERE id = %s", (by, id))
                assert connection.execute("SELECT id FROM t WHERE id = %s", (a,)).fetchone() == (a,)
                taken.append(time.monotonic() - began)

    def run(number):
        try:
            write(number * ROWS // count)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield taken
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failed, failed[0]


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_database_goes_on_while_a_query_reads_its_snapshot(shop, level, prepare):
    with shop.connect("readers") as reader, writers(shop) as taken:
        for _ in range(3):
            before = len(taken)
            with reader.transaction():
                reader.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
                count, total, _ = reader.execute(LONG, prepare=prepare).fetchone()
            assert (count, total) == (8 * ROWS, 8 * ROWS * SHARE)
            # Those that wait for each other's rows aside.
            assert len(taken) > before + 20
        assert sorted(taken)[len(taken) // 2] < 0.5


def test_clients_come_and_work_while_a_query_runs(shop):
    with shop.connect("readers", autocommit=True) as reader, busy_with_endless(reader, ENDLESS):
        within(60, lambda: active(shop, "readers"))
        for _ in range(5):
            with shop.connect("readers", autocommit=True) as client:
                client.execute("CREATE TABLE gone (id int PRIMARY KEY)")
                client.execute("INSERT INTO gone SELECT * FROM generate_series(1, 20000)")
                assert client.execute("SELECT count(*) FROM gone").fetchone() == (20_000,)
                client.execute("DROP TABLE gone")


def test_a_query_that_was_alone_lets_its_database_go_when_somebody_comes(server):
    with server.connect(autocommit=True) as administration:
        administration.execute("CREATE DATABASE alone")
    with server.connect("alone", autocommit=True) as reader:
        reader.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 10000) g")
        query = "SELECT count(*) FROM t, generate_series(1, 600) WHERE id >= 0"
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(lambda: reader.execute(query).fetchone())
            within(60, lambda: active(server, "alone"))
            time.sleep(0.3)
            began = time.monotonic()
            with server.connect("alone", autocommit=True) as client:
                client.execute("DELETE FROM t WHERE id > 10")
                assert client.execute("SELECT count(*) FROM t").fetchone() == (10,)
            assert not answer.done() and time.monotonic() - began < 5
            # It has begun again, in its snapshot.
            assert answer.result() == (6_000_000,)


def test_a_table_that_goes_or_changes_is_read_as_it_was(shop):
    changes = ["TRUNCATE going", "ALTER TABLE going DROP COLUMN n", "DROP TABLE going"]
    with shop.connect("readers", autocommit=True) as reader, shop.connect("readers", autocommit=True) as other:
        for change in changes:
            other.execute("DROP TABLE IF EXISTS going")
            other.execute("CREATE TABLE going AS SELECT g AS id, 1 AS n FROM generate_series(1, 20000) g")
            with ThreadPoolExecutor(1) as pool:
                query = "SELECT sum(n) FROM going, generate_series(1, 50)"
                answer = pool.submit(lambda query=query: reader.execute(query).fetchone())
                within(60, lambda: reader.info.backend_pid in active(shop, "readers"))
                time.sleep(0.1)
                other.execute(change)
                assert not answer.done(), "the query was over before"
                assert answer.result() == (1_000_000,)
        with pytest.raises(psycopg.errors.UndefinedTable):
            reader.execute("SELECT sum(n) FROM going")


def test_a_serializable_reader_that_writes_fails_if_what_it_read_has_changed(shop):
    with shop.connect("readers") as reader, shop.connect("readers", autocommit=True) as other:
        reader.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(lambda: reader.execute(LONG).fetchone())
            within(60, lambda: reader.info.backend_pid in active(shop, "readers"))
            other.execute("UPDATE t SET n = n + 0 WHERE id = 7")
            assert answer.result()[0] == 8 * ROWS
        with pytest.raises(psycopg.errors.SerializationFailure):
            reader.execute("UPDATE t SET n = n + 0 WHERE id = 1")
            reader.commit()
        reader.rollback()


def test_a_query_beside_a_long_write_waits_for_it_and_goes_on(shop):
    with shop.connect("readers", autocommit=True) as reader, shop.connect("readers", autocommit=True) as other:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(lambda: reader.execute(LONG).fetchone())
            for _ in range(3):
                other.execute("UPDATE t SET k = (k + 1) % 100")
            assert answer.result()[:2] == (8 * ROWS, 8 * ROWS * SHARE)


def test_what_a_query_beside_computes_is_in_the_figures(shop):
    def used():
        text = shop.ask("GET", "/metrics").text
        return float(re.search(r'^savanna_tenants_cpu_seconds_total{database="readers"} (\S+)$', text, re.MULTILINE)[1])

    with shop.connect("readers", autocommit=True) as reader, shop.connect("readers", autocommit=True) as other:
        before = used()
        with busy_with_endless(reader, ENDLESS):
            within(60, lambda: other.execute("SELECT 1") and used() > before + 1)


def test_rows_that_are_not_in_memory_are_read_beside(tmp_path):
    settings = {"tenants.rows_memory": "12MiB", "tenants.blocks_memory": "1MiB", "tenants.log_distance": "1MiB"}
    with running(tmp_path, settings=settings) as server, server.connect(autocommit=True) as client:
        client.execute("CREATE TABLE t (id int PRIMARY KEY, n int, b text)")
        start = 0
        while start < 40_000:
            values = "SELECT g, 1, repeat(md5(g::text), 20) FROM generate_series(%s + 1, %s + 1000) g"
            try:
                client.execute(f"INSERT INTO t {values}", (start, start))
                start += 1_000
            except psycopg.errors.OutOfMemory:
                # The store comes after.
                time.sleep(0.2)
        with server.connect(autocommit=True) as reader, ThreadPoolExecutor(1) as pool:
            answer = pool.submit(lambda: reader.execute("SELECT sum(n), sum(length(b)) FROM t").fetchone())
            for id in range(1, 200):
                client.execute("UPDATE t SET n = n + 1 WHERE id = %s", (id * 200,))
            total, length = answer.result()
            assert 40_000 <= total <= 40_200 and length == 40_000 * 640
        assert client.execute("SELECT sum(n) FROM t").fetchone() == (40_199,)


def test_a_server_that_is_killed_beside_a_reader_has_everything(tmp_path):
    with running(tmp_path) as server:
        with server.connect(autocommit=True) as client:
            client.execute("CREATE TABLE t (id int PRIMARY KEY)")
            reader = server.connect(autocommit=True)
            reader.pgconn.send_query(ENDLESS.encode())
            within(60, lambda: reader.info.backend_pid in active(server, "postgres"))
            for id in range(100):
                client.execute("INSERT INTO t VALUES (%s)", (id,))
            server.kill()
        server.start()
        server.listen()
        with server.connect(autocommit=True) as client:
            assert client.execute("SELECT count(*) FROM t").fetchone() == (100,)
