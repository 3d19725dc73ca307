"""Names are those of PostgreSQL: of columns of results, and those that are too long."""

import pytest

ATOMS = ["a", "t.a", "1", "'x'", "NULL", "true", "1.5", "current_date", "now()", "abs(a)", "date '2000-01-01'", "interval '1 day'", "array[a]",
         "row(a, 1)", "(select a)", "(select 1)", "(select 1 as z)", "(select count(*))", "coalesce(a, 1)", "nullif(a, 1)", "greatest(a, 1)",
         "least(a, 1)", "exists (select 1)", "array(select 1)", "case when true then a end", "case when true then 1 else a end",
         "case when true then 1 else 2 end", "case a when 1 then 2 else abs(a) end", "a + 1", "- a", "not true", "a = 1", "a is null", "a in (1)",
         "a between 1 and 2", "'x' like 'y'", "'x' || 'y'", "a = any (array[1])", "extract(year from now())", "substring('abc' from 2)",
         "position('a' in 'b')", "trim('a')", "trim(leading 'a' from 'b')", "trim(trailing 'a' from 'b')", "trim(both 'a' from 'b')",
         "overlay('abc' placing 'x' from 1)", "now() at time zone 'UTC'", "(a)", "((1))", "(array[a])[1]", "current_user", "localtimestamp",
         "count(*)", "sum(a)", "row_number() over ()", "'{1}'::int[]", "1::numeric(10,2)", "'x'::varchar(3)", "'x'::char(3)", "now()::timestamp(0)",
         "now()::timestamptz", "a::bigint::text", "'1'::int::text", "true::text", "(a + 1)::text", "(a = 1)::int", "cast(1 as smallint)",
         "cast('1' as double precision)", "1::real", "'a' collate \"C\"", "a::text collate \"C\"", "a::text || 'x'", "'{}'::json", "'{}'::jsonb -> 'a'",
         "('{\"a\": 1}'::jsonb)['a']", "'12:00'::time", "'12:00'::time(3)", "'x'::bytea", "gen_random_uuid()", "'a' ~ 'b'", "(current_date, current_date) overlaps (current_date, current_date)"]
AROUND = ["{}", "({})", "({})::text", "case when true then null else {} end", "coalesce({}, null)", "(select {})", "array[{}]"]


def names(connection, expression):
    """The name of its column, or nothing if it means nothing here."""
    result = connection.pgconn.exec_(f"SELECT {expression} FROM (SELECT 1 AS a) AS t GROUP BY a".encode())
    return result.fname(0) if result.nfields else None


LONG = "a" * 70


def told(connection, *messages):
    """What the server says beside the answers of texts, sent in the simple or, given more than a text, the extended protocol."""
    notices = []
    note = lambda notice: notices.append((notice.severity, notice.sqlstate, notice.message_primary))
    connection.add_notice_handler(note)
    for send in messages:
        send(connection)
    connection.remove_notice_handler(note)
    return notices


@pytest.mark.parametrize("text", [
    f"SELECT 1 AS {LONG.upper()}, 2 AS \"{LONG.upper()}\", 3 AS {LONG}",
    f"SELECT 1 AS \"{'ü' * 40}\"; SELECT 2 AS b{LONG}; SELECT 1 / 0 AS c{LONG}",
    f"SET search_path TO {LONG}",
    f"SELECT {LONG}(1)",
    f"SELECT '{LONG}', $${LONG}$$ -- {LONG}",
])  # fmt: skip
def test_names_that_are_cut_are_told_as_in_postgresql(server, postgresql, text):
    simple, extended = (lambda connection: connection.pgconn.exec_(text.encode())), (lambda connection: connection.pgconn.exec_params(text.encode(), []))
    quiet = lambda connection: connection.execute("SET client_min_messages = warning")
    with server.connect(autocommit=True) as ours, postgresql.connect(autocommit=True) as theirs:
        for messages in ([simple], [simple, extended, extended], [quiet, simple]):
            assert told(ours, *messages) == told(theirs, *messages)


def test_warnings_of_transactions_are_those_of_postgresql(server, postgresql):
    texts = ["BEGIN", "BEGIN", "COMMIT", "COMMIT", "ROLLBACK", "SET LOCAL timezone = 'UTC'", "SET TRANSACTION READ ONLY", "SET CONSTRAINTS ALL DEFERRED"]
    sent = [lambda connection, text=text: connection.execute(text) for text in texts]
    with server.connect(autocommit=True) as ours, postgresql.connect(autocommit=True) as theirs:
        assert told(ours, *sent) == told(theirs, *sent)


def test_long_names_of_the_protocol_are_cut(server):
    name = "d" * 63
    with server.connect(autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}xyz")
        connection.pgconn.prepare(b"p" * 70, b"SELECT 5")
        assert connection.pgconn.exec_prepared(b"p" * 63 + b"q", []).get_value(0, 0) == b"5"
        assert connection.execute("SELECT name FROM pg_prepared_statements").fetchall() == [("p" * 63,)]
    with server.connect(f"{name}abc") as connection:
        assert connection.execute("SELECT current_database()").fetchone() == (name,)


def test_columns_without_names_are_called_as_in_postgresql(server, postgresql):
    with server.connect(autocommit=True) as ours, postgresql.connect(autocommit=True) as theirs:
        differences = []
        for expression in (around.format(atom) for atom in ATOMS for around in AROUND):
            got, expected = names(ours, expression), names(theirs, expression)
            if got is not None and expected is not None and got != expected:
                differences.append((expression, got, expected))
        assert not differences, "\n".join(map(str, differences))
