"""Arrays and enumerations as drivers send and read them, in the text and the binary format."""

import datetime
import decimal
import enum
import uuid

import psycopg
import pytest
from psycopg.types.enum import EnumInfo, register_enum

UTC = datetime.timezone.utc
ARRAYS = {
    "int[]": [1, None, -3],
    "bigint[]": [2**40, 0],
    "smallint[]": [1, 2],
    "text[]": ["a", "b c", 'q"\\', "NULL", "", None],
    "varchar(5)[]": ["abc"],
    "numeric[]": [decimal.Decimal("1.50"), decimal.Decimal("-2")],
    "real[]": [0.5],
    "double precision[]": [0.1, 1e300],
    "boolean[]": [True, False, None],
    "date[]": [datetime.date(2024, 2, 29)],
    "time[]": [datetime.time(1, 2, 3)],
    "timestamp[]": [datetime.datetime(2024, 2, 29, 1, 2, 3)],
    "timestamptz[]": [datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)],
    "interval[]": [datetime.timedelta(days=1, seconds=5)],
    "uuid[]": [uuid.UUID(int=7)],
    "bytea[]": [b"\x00\xff", b""],
    "int[] /* nested */": [[1, 2], [3, 4]],
}


@pytest.mark.parametrize("of", ARRAYS)
def test_arrays_survive_text_and_binary(server, of):
    with server.connect(autocommit=True) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS kept (id int); DROP TABLE kept; CREATE TABLE kept (id int PRIMARY KEY, a {of})")
        for number, form in enumerate(("%s", "%t", "%b")):
            connection.execute(f"INSERT INTO kept VALUES ({number}, {form})", (ARRAYS[of],))
        for binary in (False, True):
            rows = connection.execute("SELECT a FROM kept ORDER BY id", binary=binary).fetchall()
            assert rows == [(ARRAYS[of],)] * 3


def test_rows_are_found_by_lists(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE listed (id int PRIMARY KEY, name text UNIQUE)")
        connection.execute("INSERT INTO listed SELECT n, 'n' || n FROM generate_series(1, 1000) n")
        for prepare in (False, True):
            for form in ("%s", "%b"):
                found = connection.execute(f"SELECT id FROM listed WHERE id = ANY({form}) ORDER BY id", ([7, 7, 2000, 3],), prepare=prepare)
                assert found.fetchall() == [(3,), (7,)]
                found = connection.execute(f"SELECT id FROM listed WHERE name = ANY({form}) ORDER BY id", (["n5", "x", "n1000"],), prepare=prepare)
                assert found.fetchall() == [(5,), (1000,)]
        assert connection.execute("SELECT count(*) FROM listed WHERE id <> ALL(%s)", ([1, 2],)).fetchone() == (998,)
        assert connection.execute("DELETE FROM listed WHERE id = ANY(%s)", (list(range(500, 600)),)).rowcount == 100


def test_rows_come_as_arrays(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE many (id int PRIMARY KEY, name text, price numeric)")
        columns = ([1, 2, 3], ["a", None, "c"], [decimal.Decimal("1.5"), None, decimal.Decimal("2")])
        connection.execute("INSERT INTO many SELECT * FROM unnest(%s::int[], %s::text[], %s::numeric[])", columns)
        assert connection.execute("SELECT array_agg(name ORDER BY id) FROM many").fetchone() == (["a", None, "c"],)
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute("SELECT %s::int[]", ("{1,x}",))


def test_enumerations_are_those_of_the_program(server):
    Mood = enum.Enum("Mood", ["sad", "ok", "happy"])
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        connection.execute("CREATE TABLE person (id int PRIMARY KEY, m mood, all_of mood[])")
        info = EnumInfo.fetch(connection, "mood")
        assert list(info.labels) == ["sad", "ok", "happy"]
        register_enum(info, connection, Mood)
        for number, form in enumerate(("%s", "%t", "%b")):
            connection.execute(f"INSERT INTO person VALUES ({number}, {form}, {form})", (Mood.ok, [Mood.happy, Mood.sad]))
        for binary in (False, True):
            rows = connection.execute("SELECT m, all_of FROM person WHERE m = %s", (Mood.ok,), binary=binary).fetchall()
            assert rows == [(Mood.ok, [Mood.happy, Mood.sad])] * 3
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            connection.execute("SELECT %s::mood", ("angry",))
