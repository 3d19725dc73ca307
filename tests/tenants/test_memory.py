"""Rows in memory: all databases together have a bound, also where nothing can be moved to the storage."""

import itertools
import time

import psycopg
import pytest

from conftest import running

ROWS_BYTES = 4 << 20
BATCH = "INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(%s::int, %s::int) g"


@pytest.fixture
def server(tmp_path):
    with running(tmp_path, settings={"tenants.rows_memory": f"{ROWS_BYTES}B"}) as server:
        yield server


def make(server, name):
    with server.connect(autocommit=True) as administration:
        administration.execute(f"CREATE DATABASE {name}")
    connection = server.connect(name, autocommit=True)
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, filler text)")
    return connection


def test_an_old_snapshot_does_not_let_one_database_fill_the_memory(server):
    with make(server, "large") as writer, make(server, "small") as neighbour, server.connect("large") as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (0,)
        with pytest.raises(psycopg.errors.OutOfMemory, match="more than its share") as refused:
            for start in itertools.count(0, 100):
                assert start * 1000 < 40 * ROWS_BYTES, "it was never refused"
                writer.execute(BATCH, (start, start + 99))
                # Somebody looks ten times a second.
                time.sleep(0.005)
        assert "old snapshot" in refused.value.diag.message_hint
        assert writer.execute("SELECT count(*) >= 4000 FROM t").fetchone() == (True,)
        # Who has less than its share writes, and so does everybody when the snapshot is gone.
        neighbour.execute(BATCH, (0, 99))
        reader.rollback()
        for _ in range(600):
            try:
                writer.execute(BATCH, (-100, -1))
                break
            except psycopg.errors.OutOfMemory:
                time.sleep(0.1)
        assert writer.execute("SELECT count(*) FROM t WHERE id < 0").fetchone() == (100,)
