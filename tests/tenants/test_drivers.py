"""Tenants behind the PostgreSQL protocol, with psql, psycopg and pgbench."""

import datetime
import decimal
import itertools
import threading
import uuid

import psycopg
import pytest
from psycopg.types import TypeInfo
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.enum import EnumInfo, register_enum


def test_psql_shows_rows_and_errors(server):
    code, out, err = server.run(
        "psql", "-At", "-c", "CREATE TABLE psql (id int PRIMARY KEY, name text)",
        "-c", "INSERT INTO psql VALUES (1, 'one'), (2, NULL) RETURNING id", "-c", "SELECT * FROM psql ORDER BY id",
        "-c", "INSERT INTO psql VALUES (1, 'again')", "-c", "SELECT nothing FROM psql",
    )
    assert code == 1
    assert out.splitlines() == ["CREATE TABLE", "1", "2", "INSERT 0 2", "1|one", "2|"]
    assert 'duplicate key value violates unique constraint "psql_pkey"' in err
    assert 'column "nothing" does not exist' in err


def test_statements_of_one_text_are_one_transaction(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE together (id int PRIMARY KEY)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO together VALUES (1); INSERT INTO together VALUES (2); INSERT INTO together VALUES (1)")
        assert connection.execute("SELECT count(*) FROM together").fetchone() == (0,)


def test_of_statements_of_one_text_only_the_one_that_waits_is_run_again(server):
    with server.connect(autocommit=True) as holder, server.connect(autocommit=True) as waiting:
        holder.execute("CREATE TABLE retried (id int PRIMARY KEY, n int)")
        holder.execute("INSERT INTO retried VALUES (1, 0), (2, 0)")
        with holder.transaction():
            holder.execute("UPDATE retried SET n = 10 WHERE id = 1")
            waiting.pgconn.send_query(b"SELECT 'before'; UPDATE retried SET n = n + 1 WHERE id = 2; UPDATE retried SET n = n + 1 WHERE id = 1; SELECT 'behind'")
            # It has changed the one row, and goes on to the other.
            with pytest.raises(psycopg.errors.LockNotAvailable), server.connect() as other:
                while True:
                    other.execute("SELECT FROM retried WHERE id = 2 FOR UPDATE NOWAIT")
                    other.rollback()
        results = []
        while result := waiting.pgconn.get_result():
            results.append((result.command_status, [result.get_value(row, 0) for row in range(result.ntuples)]))
        assert results == [(b"SELECT 1", [b"before"]), (b"UPDATE 1", []), (b"UPDATE 1", []), (b"SELECT 1", [b"behind"])]
        assert waiting.execute("SELECT n FROM retried ORDER BY id").fetchall() == [(11,), (1,)]


def test_values_of_every_type_survive_text_and_binary(server):
    columns = """id bigint PRIMARY KEY, t text, n numeric, f float8, g real, b bool, ts timestamptz, d date, u uuid, y bytea, i interval, tm time,
                 s smallint, p timestamp, c varchar(5)"""
    row = (1, "tüxt", decimal.Decimal("12.50"), 1.5, 0.25, True, datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.timezone.utc),
           datetime.date(1999, 12, 31), uuid.uuid4(), b"\x00\xff", datetime.timedelta(days=1, seconds=5), datetime.time(1, 2, 3), -7,
           datetime.datetime(2024, 2, 29, 1, 2, 3, 4), "abc")
    with server.connect(autocommit=True) as connection:
        connection.execute(f"CREATE TABLE types ({columns})")
        connection.execute(f"INSERT INTO types VALUES ({', '.join(['%s'] * len(row))})", row)
        for binary in (False, True):
            assert connection.execute("SELECT * FROM types WHERE id = %s", (1,), binary=binary).fetchone() == row


def test_prepared_statements_see_that_a_table_changed(server):
    with server.connect(autocommit=True, prepare_threshold=0) as connection:
        connection.execute("CREATE TABLE prepared (id int PRIMARY KEY, n int)")
        insert = "INSERT INTO prepared (id) VALUES (%s)"
        connection.execute(insert, (1,))
        connection.execute("ALTER TABLE prepared ADD COLUMN c int DEFAULT 3")
        connection.execute(insert, (2,))
        assert connection.execute("SELECT id, c FROM prepared ORDER BY id").fetchall() == [(1, 3), (2, 3)]


def test_copy_takes_and_gives_rows(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE copied (id int PRIMARY KEY, t text)")
        rows = [(1, "tab\tand\\back"), (2, None), (3, "line\nbreak"), (4, "\\N")]
        with connection.cursor().copy("COPY copied FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        with connection.cursor().copy("COPY copied TO STDOUT") as copy:
            copy.set_types(["int4", "text"])
            assert list(copy.rows()) == rows
        with pytest.raises(psycopg.errors.UniqueViolation):
            with connection.cursor().copy("COPY copied FROM STDIN") as copy:
                copy.write_row((5, "new"))
                copy.write_row((1, "old"))
        assert connection.execute("SELECT count(*) FROM copied").fetchone() == (4,)


@pytest.mark.parametrize("binary", [False, True])
def test_named_cursors_fetch_some_rows_at_a_time(server, binary):
    with server.connect() as connection:
        with connection.cursor("many", binary=binary) as cursor:
            cursor.itersize = 7
            cursor.execute("SELECT g, g || 'x' FROM generate_series(1, %s) AS g", (20,))
            assert cursor.fetchmany(3) == [(1, "1x"), (2, "2x"), (3, "3x")]
            assert [row[0] for row in cursor] == list(range(4, 21))
        with connection.cursor("never executed"):
            pass
        with connection.cursor("held", withhold=True, scrollable=True) as cursor:
            cursor.execute("SELECT * FROM (VALUES (1), (2), (3)) AS v ORDER BY 1")
            connection.commit()
            assert cursor.fetchall() == [(1,), (2,), (3,)]
            cursor.scroll(0, mode="absolute")
            assert cursor.fetchone() == (1,)


@pytest.mark.parametrize("prepare", [False, True])
def test_statements_whose_rows_are_not_counted_say_no_count(server, postgresql, prepare):
    for statement in ("SHOW timezone", "EXPLAIN SELECT 1", "SELECT 1", "VALUES (1), (2)"):
        answers = []
        for cluster in (server, postgresql):
            with cluster.connect(autocommit=True) as connection:
                answers.append(connection.execute(statement, prepare=prepare, params=() if prepare else None).statusmessage)
        assert answers[0] == answers[1], statement


def test_a_statement_that_waits_can_be_cancelled(server):
    with server.connect() as holder, server.connect() as waiter:
        holder.execute("CREATE TABLE held (id int PRIMARY KEY)")
        holder.execute("INSERT INTO held VALUES (1)")
        holder.commit()
        holder.execute("SELECT * FROM held FOR UPDATE")
        timer = threading.Timer(0.3, waiter.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            waiter.execute("SELECT * FROM held FOR UPDATE")
        timer.join()


def test_a_client_that_hangs_up_frees_its_rows(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE freed (id int PRIMARY KEY)")
        connection.execute("INSERT INTO freed VALUES (1)")
        gone = server.connect()
        gone.execute("SELECT * FROM freed FOR UPDATE")
        gone.close()
        assert connection.execute("SELECT id FROM freed FOR UPDATE").fetchone() == (1,)


def test_databases_are_apart(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
        with pytest.raises(psycopg.errors.DuplicateDatabase):
            connection.execute("CREATE DATABASE shop")
        connection.execute("CREATE TABLE mine (id int)")
        with server.connect("shop", autocommit=True) as shop:
            with pytest.raises(psycopg.errors.UndefinedTable):
                shop.execute("SELECT * FROM mine")
            with pytest.raises(psycopg.errors.ObjectInUse):
                connection.execute("DROP DATABASE shop")
        # The client that has just closed its connection may still be on its way out.
        connection.execute("DROP DATABASE shop")
        with pytest.raises(psycopg.errors.ObjectInUse, match="currently open"):
            connection.execute("DROP DATABASE postgres")
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            server.connect("shop")


def test_pgbench_runs_in_every_mode(server):
    code, _, err = server.run("pgbench", "-i", "-s", "1", "-q")
    assert code == 0, err
    for mode in ("simple", "extended", "prepared"):
        code, out, err = server.run("pgbench", "-n", "-c", "4", "-t", "50", "-M", mode)
        assert code == 0 and "processed: 200/200" in out, err
    with server.connect() as connection:
        sums = [connection.execute(f"SELECT sum({column}) FROM pgbench_{table}").fetchone()[0]
                for table, column in (("accounts", "abalance"), ("tellers", "tbalance"), ("branches", "bbalance"), ("history", "delta"))]
        assert len(set(sums)) == 1
        assert connection.execute("SELECT count(*) FROM pgbench_history").fetchone() == (600,)


def test_results_of_a_pipeline_leave_at_its_end(server):
    with server.connect(autocommit=True) as connection, server.connect(autocommit=True) as other:
        with connection.pipeline() as pipeline:
            cursors = [connection.cursor(), connection.cursor()]
            cursors[0].execute("SELECT 1")
            other.execute("SELECT 1")
            cursors[1].execute("SELECT 2")
            assert len(pipeline.result_queue) == 2, "none of them came before it was asked for"
            pipeline.sync()
            assert [cursor.fetchone() for cursor in cursors] == [(1,), (2,)]
def test_times_are_those_of_the_clients_zone(server):
    with server.connect(autocommit=True, options="-c timezone=Europe/Berlin") as connection:
        assert connection.info.parameter_status("TimeZone") == "Europe/Berlin"
        noon = datetime.datetime(2024, 7, 15, 12, tzinfo=datetime.timezone.utc)
        for binary in (False, True):
            read = connection.execute("SELECT '2024-07-15 14:00'::timestamptz", binary=binary).fetchone()[0]
            assert (read, read.utcoffset()) == (noon, datetime.timedelta(hours=2))
        connection.execute("SET timezone = 'Asia/Tokyo'")
        assert connection.info.parameter_status("TimeZone") == "Asia/Tokyo"
        assert connection.execute("SELECT %s::timestamptz::text", (noon,)).fetchone() == ("2024-07-15 21:00:00+09",)


def test_psycopg_sends_and_gets_rows_of_composite_types(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TYPE pair AS (a int, b text); CREATE TYPE outer_pair AS (p pair, ps pair[], at timestamptz)")
        connection.execute("CREATE TABLE paired (id int PRIMARY KEY, o outer_pair, t text DEFAULT 'x')")
        for name in ("pair", "outer_pair", "paired"):
            register_composite(CompositeInfo.fetch(connection, name), connection)
        info = CompositeInfo.fetch(connection, "outer_pair")
        assert list(info.field_names) == ["p", "ps", "at"] and CompositeInfo.fetch(connection, "nosuch") is None
        pair = CompositeInfo.fetch(connection, "pair")
        register_composite(pair, connection)
        one, none = pair.python_type(1, 'q"\\ ,()'), pair.python_type(None, None)
        register_composite(info, connection)
        at = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
        value = info.python_type(one, [none, one, None], at)
        for place, (send, get) in enumerate(itertools.product(["%s", "%t", "%b"], [False, True])):
            connection.execute(f"INSERT INTO paired (id, o) VALUES ({place}, {send})", (value,))
            with connection.cursor(binary=get) as cursor:
                got = cursor.execute("SELECT o, (o).ps, paired FROM paired WHERE id = %s", (place,)).fetchone()
            assert got == (value, [none, one, None], (place, value, "x"))
        bytes_of = (1).to_bytes(4) + pair.oid.to_bytes(4) + b"\xff" * 4
        wrong = connection.pgconn.exec_params(b"SELECT $1", [bytes_of], [pair.oid], [1])
        assert wrong.error_field(67) == b"42804"
        connection.execute("DROP TABLE paired; DROP TYPE outer_pair; DROP TYPE pair")


@pytest.mark.parametrize("form", ["TEXT", "CSV", "BINARY"])
def test_copy_takes_only_values_of_a_domain(server, form):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0); CREATE DOMAIN said AS text NOT NULL; CREATE TABLE ruled (p positive, s said)")

        def copied(*row):
            with connection.cursor().copy(f"COPY ruled FROM STDIN (FORMAT {form})") as copy:
                if form == "CSV":
                    return copy.write("\n" if row == (None, None) else ",".join("" if value is None else str(value) for value in row) + "\n")
                copy.set_types(["int4", "text"])
                copy.write_row(row)

        copied(1, "a")
        with pytest.raises(psycopg.errors.CheckViolation, match='value for domain positive violates check constraint "positive_check"'):
            copied(0, "a")
        with pytest.raises(psycopg.errors.NotNullViolation, match="domain said does not allow null values"):
            copied(2, None)
        assert connection.execute("SELECT * FROM ruled").fetchall() == [(1, "a")]
        connection.execute("DROP TABLE ruled; DROP DOMAIN positive, said")


def test_psycopg_finds_types_by_their_names(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")
        assert EnumInfo.fetch(connection, '"Mood"') is None
        info = EnumInfo.fetch(connection, "Mood")
        assert info.labels == ["sad", "happy"]
        register_enum(info, connection, None)
        assert [member.name for member in connection.execute("SELECT ARRAY['happy', 'sad']::mood[]").fetchone()[0]] == ["happy", "sad"]
        assert EnumInfo.fetch(connection, "nosuch") is None
        for name in ("timestamptz", "timestamp with time zone"):
            assert TypeInfo.fetch(connection, name).oid == 1184
        connection.execute("DROP TYPE mood")
