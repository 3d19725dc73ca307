"""Statements with rows that they have no memory for: these go to files that are gone with the statement, however it ends."""

import os
import threading
import time

import psycopg
import pytest

from conftest import Server
from test_gone_clients import within

MEMORY = 16 << 20
# Some 60 MiB of rows.
ROWS = "SELECT g, repeat('x', 100) FROM generate_series(1, 400000) g"
SORT = f"SELECT count(*), sum(g) FROM ({ROWS} ORDER BY g % 1000 OFFSET 0) s"
SORTED = (400000, 400000 * 400001 // 2)


class Spilling(Server):
    def __init__(self, directory, **settings):
        super().__init__(directory, {"tenants.spills": "true", "tenants.statements_memory": f"{MEMORY}B", **settings})

    def files(self):
        """Bytes of the files of statements that the process has open, each."""
        folder, found = str(self.data / "spills"), []
        descriptors = f"/proc/{self.process.pid}/fd"
        for descriptor in os.listdir(descriptors):
            try:
                if os.readlink(f"{descriptors}/{descriptor}").startswith(folder):
                    found.append(os.stat(f"{descriptors}/{descriptor}").st_size)
            except FileNotFoundError:
                pass
        return found

    def has_no_files(self):
        """Large files are closed by a thread of their own: soon, not at once."""
        within(60, lambda: self.files() == [])

    def named(self):
        return os.listdir(self.data / "spills")


@pytest.fixture
def server(tmp_path):
    server = Spilling(tmp_path)
    server.start()
    server.listen()
    yield server
    server.kill()


def in_background(work):
    failed = []

    def run():
        try:
            work()
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failed


def test_a_process_that_is_killed_leaves_no_file(tmp_path):
    server = Spilling(tmp_path)
    for _ in range(3):
        server.start()
        server.listen()
        with server.connect(autocommit=True) as connection:
            assert connection.execute(SORT).fetchone() == SORTED
            server.has_no_files()
            sorting, _ = in_background(lambda: connection.execute(SORT))
            within(60, lambda: sum(server.files()) > MEMORY)
            assert server.named() == [], "they have no names"
            server.kill()
            sorting.join()
        assert server.named() == []


def test_a_statement_that_is_cancelled_or_fails_leaves_no_file(server):
    with server.connect(autocommit=True) as connection:
        sorting, failed = in_background(lambda: connection.execute(SORT))
        within(60, lambda: sum(server.files()) > MEMORY)
        connection.cancel_safe()
        sorting.join()
        assert isinstance(failed[0], psycopg.errors.QueryCanceled)
        server.has_no_files()
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute(f"SELECT sum(1 / (400000 - g)) FROM ({ROWS} ORDER BY g DESC OFFSET 0) s")
        server.has_no_files()
        connection.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled, match="timeout"):
            connection.execute(SORT)
        server.has_no_files()


def test_an_answer_in_a_file_is_sent_as_it_is_read_and_can_be_cancelled(server):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        rows = list(cursor.stream(ROWS))
        assert len(rows) == 400000
        server.has_no_files()
        taken = []
        with pytest.raises(psycopg.errors.QueryCanceled):
            for row in cursor.stream(ROWS):
                taken.append(row)
                if len(taken) == 1:
                    assert sum(server.files()) > MEMORY, "nothing is kept elsewhere"
                    connection.cancel_safe()
        assert 0 < len(taken) < 400000
        server.has_no_files()
        assert connection.execute("SELECT 1").fetchone() == (1,)
        # In a transaction it has failed then.
        connection.execute("BEGIN")
        with pytest.raises(psycopg.errors.QueryCanceled):
            for _ in cursor.stream(ROWS):
                connection.cancel_safe()
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
        connection.execute("ROLLBACK")


def test_a_cursor_gives_its_rows_from_a_file_until_it_is_closed(server):
    with server.connect() as connection:
        connection.execute(f"DECLARE c SCROLL CURSOR FOR {ROWS} ORDER BY g")
        assert sum(server.files()) > MEMORY
        assert connection.execute("FETCH 2 FROM c").fetchall() == [(1, "x" * 100), (2, "x" * 100)]
        assert len(connection.execute("FETCH ALL FROM c").fetchall()) == 399998
        assert [g for g, _ in connection.execute("FETCH BACKWARD 3 FROM c").fetchall()] == [400000, 399999, 399998]
        assert connection.execute("MOVE BACKWARD ALL FROM c").statusmessage == "MOVE 399997"
        connection.rollback()
        server.has_no_files()


def test_others_are_answered_while_a_file_is_read(server):
    with server.connect(autocommit=True) as administration:
        administration.execute("CREATE DATABASE other")
    with server.connect() as connection, server.connect("other", autocommit=True) as other:
        connection.execute(f"DECLARE c SCROLL CURSOR FOR {ROWS} ORDER BY g")
        reading, _ = in_background(lambda: connection.execute("FETCH ALL FROM c"))
        longest = 0
        while reading.is_alive():
            began = time.monotonic()
            other.execute("SELECT 1")
            longest = max(longest, time.monotonic() - began)
        reading.join()
        print(f"the longest of its neighbour's statements took {longest * 1000:.0f} ms")
        assert longest < 2
        connection.rollback()


def test_a_database_has_no_more_in_files_than_it_may(tmp_path):
    server = Spilling(tmp_path, **{"tenants.spill_limit": "24MiB"})
    server.start()
    server.listen()
    try:
        with server.connect(autocommit=True) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="24 MiB") as refused:
                connection.execute(f"INSERT INTO t {SORT.replace('count(*), sum(g)', 'count(*)::int')}")
            assert "tenants.spill_limit" in refused.value.diag.message_hint
            server.has_no_files()
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    finally:
        server.kill()
