"""The PostgreSQL face with psql and psycopg."""

import subprocess

import psycopg
import pytest

from conftest import NESTED_COLUMNS, NESTED_ROWS, nested_table

TABLE = """CREATE TABLE {name} (n BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND)
           WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv', 'csv.header' = 'true')"""
ROWS = "n,at\n1,2026-01-01 00:00:01\n2,2026-01-01 00:00:02\n3,2026-01-01 00:00:11\n"


@pytest.fixture
def connection(node):
    address = f"host=127.0.0.1 port={node.ports['pgwire']} user=postgres dbname=savanna_streams"
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection


def test_psql_runs_a_windowed_query(node, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    statement = """SELECT window_start, count(*) AS c FROM TABLE(TUMBLE(TABLE psql_rows, DESCRIPTOR(at), INTERVAL '10' SECOND))
                   GROUP BY window_start, window_end"""
    done = subprocess.run(
        ["psql", "-h", "127.0.0.1", "-p", str(node.ports["pgwire"]), "-U", "postgres", "-d", "savanna_streams", "-At",
         "-v", "ON_ERROR_STOP=1", "-c", TABLE.format(name="psql_rows", path=path), "-c", statement],
        capture_output=True, text=True, timeout=60, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "2026-01-01 00:00:00.000000|2", "2026-01-01 00:00:10.000000|1", "CREATE TABLE",
    ]


def test_a_prepared_statement_returns_typed_values(connection, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    connection.execute(TABLE.format(name="driver_rows", path=path))
    rows = connection.execute("SELECT n, n * 1.5 AS x, at FROM driver_rows WHERE n > 1", prepare=True).fetchall()
    assert [(n, float(x), at.second) for n, x, at in rows] == [(2, 3.0, 2), (3, 4.5, 11)]


@pytest.mark.parametrize("binary", [False, True])
def test_arrays_are_arrays_and_what_holds_rows_or_maps_is_json(connection, tmp_path, binary):
    name = f"nested_{binary}"
    connection.execute(nested_table(name, tmp_path))
    with connection.cursor(binary=binary) as cursor:
        cursor.execute(f"SELECT * FROM {name}")
        assert [column.type_display for column in cursor.description] == ["int8", "json", "int4[]", "json", "json", "json", "json"]
        assert [dict(zip(NESTED_COLUMNS, row)) for row in cursor.fetchall()] == NESTED_ROWS


def test_an_error_carries_sqlstate_and_position(connection):
    with pytest.raises(psycopg.errors.UndefinedTable) as error:
        connection.execute("SELECT * FROM nowhere")
    assert error.value.diag.statement_position == "15"


def test_a_streaming_select_can_be_cancelled(connection):
    connection.execute("CREATE TABLE endless WITH ('connector' = 'nexmark')")
    with connection.cursor() as cursor:
        rows = cursor.stream("SELECT bid.auction FROM endless WHERE event_type = 2")
        assert next(rows)
        connection.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            for _ in rows:
                pass
    assert connection.execute("SHOW TABLES").fetchall()
