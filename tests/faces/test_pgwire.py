"""The PostgreSQL face with psql and psycopg."""

import datetime
import decimal
import os
import subprocess
import threading
import time

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


ENDLESS = """CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50',
             'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000000')"""
TEN = """CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100000',
         'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '10')"""


def psql(node, *arguments):
    command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(node.ports["pgwire"]), "-U", "postgres", "-d", "savanna_streams"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)


def first_lines(node, count, *arguments):
    """What psql prints first of a result that never ends."""
    command = ["psql", "-X", "-At", "-h", "127.0.0.1", "-p", str(node.ports["pgwire"]), "-U", "postgres", "-d", "savanna_streams"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as running:
        try:
            return [running.stdout.readline().rstrip("\n") for _ in range(count)]
        finally:
            running.kill()


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


@pytest.mark.parametrize("binary", [False, True])
def test_decimals_have_all_of_their_digits(connection, binary):
    values = ["9" * 38, "-" + "9" * 38, "0." + "0" * 37 + "1", "-0.5", "19.90", "100000", "0.00"]
    select = "SELECT " + ", ".join(values)
    assert connection.execute(select, binary=binary).fetchone() == tuple(decimal.Decimal(value) for value in values)


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


def test_psql_prints_an_endless_select_as_it_comes(node, connection):
    connection.execute(ENDLESS.format(name="psql_endless"))
    assert first_lines(node, 3, "-v", "FETCH_COUNT=1", "-c", "SELECT n FROM psql_endless") == ["1", "2", "3"]
    assert first_lines(node, 3, "-c", "COPY (SELECT n FROM psql_endless) TO STDOUT") == ["1", "2", "3"]


def test_a_cursor_gives_its_rows_in_parts(connection):
    connection.execute(TEN.format(name="cursor_rows"))
    with connection.transaction():
        connection.execute("DECLARE c NO SCROLL CURSOR FOR SELECT n FROM cursor_rows")
        connection.execute("DECLARE held CURSOR WITH HOLD FOR SELECT n FROM cursor_rows")
        assert connection.execute("FETCH 3 FROM c").fetchall() == [(1,), (2,), (3,)]
        assert connection.execute("MOVE FORWARD 2 IN c").statusmessage == "MOVE 2"
        fetched = connection.execute("FETCH c")
        assert (fetched.fetchall(), fetched.statusmessage) == ([(6,)], "FETCH 1")
        assert connection.execute("FETCH ALL FROM c").fetchall() == [(7,), (8,), (9,), (10,)]
        assert connection.execute("FETCH 5 FROM c").fetchall() == []
    with pytest.raises(psycopg.errors.InvalidCursorName):
        connection.execute("FETCH c")
    assert connection.execute("FETCH 2 FROM held").fetchall() == [(1,), (2,)]
    assert connection.execute("CLOSE held").statusmessage == "CLOSE CURSOR"
    connection.execute("DECLARE outside CURSOR FOR SELECT n FROM cursor_rows")
    with pytest.raises(psycopg.errors.DuplicateCursor):
        connection.execute("DECLARE outside CURSOR FOR SELECT n FROM cursor_rows")
    assert connection.execute("FETCH FORWARD 1 FROM outside").fetchall() == [(1,)]
    assert connection.execute("CLOSE ALL").statusmessage == "CLOSE CURSOR ALL"


def test_a_closed_cursor_ends_its_query(connection):
    connection.execute(ENDLESS.format(name="closed_rows"))
    connection.execute("DECLARE c CURSOR FOR SELECT n AS closed_by_name FROM closed_rows")
    assert connection.execute("FETCH c").fetchall() == [(1,)]
    connection.execute("CLOSE c")
    while any(row[1] == "running" and "closed_by_name" in row[6] for row in connection.execute("SHOW QUERIES").fetchall()):
        pass


def test_a_server_side_cursor_of_a_driver_reads_an_endless_select(connection):
    connection.execute(ENDLESS.format(name="driver_endless"))
    with connection.cursor("rows") as cursor:
        cursor.execute("SELECT n FROM driver_endless WHERE n > %s", (3,))
        assert [column.name for column in cursor.description] == ["n"]
        assert cursor.fetchmany(3) == [(4,), (5,), (6,)]
        assert cursor.fetchone() == (7,)


def test_copy_writes_text_and_csv(node, connection):
    connection.execute(TEN.format(name="copied"))
    query = "SELECT n, CASE WHEN n = 2 THEN NULL ELSE 'a,\"b\\' END AS s FROM copied WHERE n < 3"
    with connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT") as rows:
        assert b"".join(rows) == b"1\ta,\"b\\\\\n2\t\\N\n"
    with connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv, HEADER)") as rows:
        assert b"".join(rows) == b'n,s\n1,"a,""b\\"\n2,\n'
    done = psql(node, "-c", "COPY copied (n) TO STDOUT WITH CSV HEADER")
    assert done.stdout.splitlines() == ["n", *map(str, range(1, 11))], done.stderr
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("COPY copied FROM STDIN")


@pytest.mark.parametrize("binary", [False, True])
def test_parameters_have_declared_or_inferred_types(connection, binary):
    connection.execute(TEN.format(name=f"bound_{binary}"))
    placeholder = "%b" if binary else "%t"
    with connection.cursor(binary=binary) as cursor:
        rows = cursor.execute(f"SELECT n FROM bound_{binary} WHERE n > {placeholder} AND n <= {placeholder}", (3, 5)).fetchall()
        assert rows == [(4,), (5,)]
        values = (-7, 2.5, decimal.Decimal("-12345.6780"), True, datetime.datetime(2026, 1, 2, 3, 4, 5, 600), datetime.date(1999, 2, 3))
        query = ", ".join([placeholder] * len(values))
        assert cursor.execute(f"SELECT {query}", values).fetchall() == [values]
        # A text leaves its type open: it is what it is compared with, or cast to.
        assert cursor.execute(f"SELECT n, %s::varchar FROM bound_{binary} WHERE n = %s", ("it's", "2")).fetchall() == [(2, "it's")]
        assert cursor.execute("SELECT %s, %s::bigint", (None, None)).fetchall() == [(None, None)]
        with pytest.raises(psycopg.errors.InvalidParameterValue) as error:
            cursor.execute(f"SELECT n FROM bound_{binary} WHERE n = %s", ("two",))
        assert "BIGINT" in str(error.value)


def test_an_insert_takes_parameters(connection):
    connection.execute(TEN.format(name="inserted"))
    connection.execute("CREATE TABLE swallowed (n BIGINT, s VARCHAR) WITH ('connector' = 'blackhole')")
    done = connection.execute("INSERT INTO swallowed SELECT n, %s FROM inserted WHERE n > %s", ("text", 2))
    assert done.statusmessage == "INSERT 0 0"


def test_a_statement_without_all_its_parameters_is_refused(connection):
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        psycopg.ClientCursor(connection).execute("SELECT $1")
    result = connection.pgconn.exec_params(b"SELECT $1::int", [])
    assert result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"08P01"


def test_a_portal_gives_as_many_rows_as_are_asked_for(connection):
    connection.execute(ENDLESS.format(name="portal_rows"))
    with connection.cursor() as cursor:
        rows = cursor.stream("SELECT n FROM portal_rows")
        assert [next(rows) for _ in range(3)] == [(1,), (2,), (3,)]
        rows.close()


@pytest.fixture
def endless_statement(tmp_path):
    """A statement that is at work until somebody writes to the pipe that it samples."""
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    yield f"CREATE TABLE never_made WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv')"
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def test_a_statement_is_cancelled_while_it_is_planned(connection, endless_statement):
    began = time.monotonic()
    timer = threading.Timer(0.3, connection.cancel_safe)
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(endless_statement)
    assert time.monotonic() - began < 5
    timer.join()
    assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("prepare", [False, True])
def test_a_statement_ends_at_its_timeout(connection, endless_statement, prepare):
    connection.execute("SET statement_timeout = '300ms'")
    with pytest.raises(psycopg.errors.QueryCanceled) as error:
        connection.execute(endless_statement, prepare=prepare)
    assert "longer than 300 ms" in str(error.value)
    connection.execute(ENDLESS.format(name=f"timed_{prepare}"))
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(f"SELECT n FROM timed_{prepare}", prepare=prepare)
    connection.execute("SET statement_timeout = 0")
    assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        connection.execute("SET statement_timeout = 'soon'")


def test_a_client_that_goes_away_while_it_waits_is_noticed(node, connection, endless_statement):
    """Its session ends: the query of its cursor is cancelled."""
    connection.execute(ENDLESS.format(name="left_behind"))
    address = f"host=127.0.0.1 port={node.ports['pgwire']} user=postgres dbname=savanna_streams"
    gone = psycopg.connect(address, autocommit=True)
    gone.execute("DECLARE c CURSOR FOR SELECT n AS left_by_its_client FROM left_behind")
    gone.pgconn.send_query(endless_statement.encode())
    gone.pgconn.flush()
    time.sleep(0.2)
    gone.pgconn.finish()
    until = time.monotonic() + 20
    while any(row[1] == "running" and "left_by_its_client" in row[6] for row in connection.execute("SHOW QUERIES").fetchall()):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_long_chain_of_names_is_answered_in_time(connection):
    chain = ", ".join(f"a{n} AS (SELECT * FROM a{n - 1})" for n in range(1, 60_000))
    began = time.monotonic()
    with pytest.raises(psycopg.errors.StatementTooComplex):
        connection.execute(f"WITH a0 AS (SELECT 1), {chain} SELECT * FROM a59999")
    # The build under test may be an unoptimised one, on a busy machine.
    assert time.monotonic() - began < 20


def test_a_query_that_fails_in_the_background_says_so_in_the_log(node, connection, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("n\n1\nlamp\n")
    connection.execute(f"CREATE TABLE bad_rows (n BIGINT) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv')")
    connection.execute("CREATE TABLE gone_rows (n BIGINT) WITH ('connector' = 'blackhole')")
    connection.execute("INSERT INTO gone_rows SELECT n FROM bad_rows")
    until = time.monotonic() + 20

    def failures():
        # It may be another node that runs it.
        texts = [log.read_text() for log in node.log.parent.glob("*.log")]
        return [line for text in texts for line in text.splitlines() if "a query failed" in line]

    while not failures():
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.2)
    lines = failures()
    assert len(lines) == 1 and "gone_rows" in lines[0] and "lamp" in lines[0], lines


@pytest.mark.parametrize(
    ("statement", "position", "message"),
    [
        ("CREATE TABLE x (a INT) WITH ('connector' = 'fle')", "44", "did you mean 'file'?"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'file', 'pth' = '/x')", "52", "did you mean path?"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'file', 'path' = '/x', 'format' = 'cvs')", "67", "did you mean 'csv'?"),
        ("INSERT INTO spelld SELECT n FROM spelled", "13", "did you mean spelled?"),
        ("DROP TABLE spelld", "12", "did you mean spelled?"),
        ("SELECT other FROM spelled", "8", "the columns here are n"),
        ("SELECT uper('a')", "8", "did you mean upper?"),
        ("SELECT n + TIMESTAMP '2026-01-01 00:00:00' FROM spelled", "8", "there is no BIGINT + TIMESTAMP"),
        ("SELECT 1;\nSELECT CAST('x' AS INT)", "23", "'x' is not a valid INT"),
    ],
)
def test_errors_have_a_place_and_near_names(connection, statement, position, message):
    connection.execute("CREATE TABLE IF NOT EXISTS spelled (n BIGINT) WITH ('connector' = 'blackhole')")
    with pytest.raises(psycopg.Error) as error:
        psycopg.ClientCursor(connection).execute(statement)
    assert message in str(error.value)
    assert error.value.diag.statement_position == position
