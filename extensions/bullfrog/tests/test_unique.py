"""Unique indexes over expressions, and of a part of the rows: also the keys of rows that were not moved are taken."""

import psycopg
import pytest

from conftest import CUSTOMERS, migrate, moved

TABLE = "CREATE TABLE t AS SELECT id, nick, nullif(id % 2, 0) AS odd, name FROM customer; "
EXPRESSION = TABLE + "CREATE UNIQUE INDEX ON t (upper(nick), COALESCE(odd, 0))"
PARTIAL = TABLE + "CREATE UNIQUE INDEX ON t (nick) WHERE odd IS NULL"
WAYS = ["", ", granularity => 'tuple'", ", granularity => 'tuple', moves => 'transaction'"]


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("taken, free", [
    ("INSERT INTO t VALUES (0, 'NICK 8', NULL)", "INSERT INTO t VALUES (0, 'NICK 8', 1)"),
    ("INSERT INTO t VALUES (0, 'Nick 7', 1)", "INSERT INTO t VALUES (0, 'Nick 7', NULL)"),
    ("UPDATE t SET nick = 'Nick 8' WHERE id = 2", "UPDATE t SET nick = 'Nick 8' WHERE id = 1"),
])
def test_keys_that_are_expressions_of_cold_rows_are_taken(customers, options, taken, free):
    migrate(customers, EXPRESSION, options=options)
    with pytest.raises(psycopg.errors.UniqueViolation):
        customers.execute(taken)
    customers.execute(free)
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS + free.count("INSERT"),)


@pytest.mark.parametrize("options", WAYS)
def test_keys_of_cold_rows_of_a_partial_index_are_taken(customers, options):
    migrate(customers, PARTIAL, options=options)
    with pytest.raises(psycopg.errors.UniqueViolation):
        customers.execute("INSERT INTO t VALUES (0, 'nick 8', NULL)")
    customers.execute("INSERT INTO t VALUES (0, 'nick 8', 1), (0, 'nick 7', NULL)")
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS + 2,)


def test_the_key_of_a_partial_index_is_looked_for_when_a_row_comes_to_be_in_it(customers):
    """Nothing of the row with the same key has moved by then."""
    customers.execute("INSERT INTO customer (id, name, nick) VALUES (9001, 'other', 'nick 10')")
    migrate(customers, PARTIAL.replace("nullif(id % 2, 0)", "nullif(id % 2, 0) + 0"))
    customers.execute("UPDATE t SET name = 'x' WHERE id = 9001")
    pages = moved(customers)
    with pytest.raises(psycopg.errors.UniqueViolation):
        customers.execute("UPDATE t SET odd = NULL WHERE id = 9001")
    assert moved(customers) > pages


def test_on_conflict_meets_a_cold_row_by_its_expression(customers):
    migrate(customers, EXPRESSION)
    insert = "INSERT INTO t VALUES (0, 'NICK 8', NULL, 'new') ON CONFLICT (upper(nick), COALESCE(odd, 0)) DO UPDATE SET name = excluded.name"
    customers.execute(insert)
    assert customers.execute("SELECT id, name FROM t WHERE upper(nick) = 'NICK 8'").fetchall() == [(8, "new")]


@pytest.mark.parametrize("index, violates", [("(lower(left(nick, 6)))", True), ("(left(nick, 6)) WHERE id < 10", False),
    ("(left(nick, 6)) WHERE id < 20", True)])
def test_rows_that_violate_such_an_index_stop_the_switch(customers, index, violates):
    definition = TABLE + f"CREATE UNIQUE INDEX ON t {index}"
    if violates:
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="unique index"):
            migrate(customers, definition)
        migrate(customers, definition, options=", checks => 'quarantine'")
        assert customers.execute("SELECT count(*) > 0 FROM bullfrog.quarantined").fetchone() == (True,)
    else:
        migrate(customers, definition)
    customers.execute("SELECT bullfrog.finish('m')")


def test_of_a_join_too(customers):
    customers.execute("CREATE TABLE town (city text PRIMARY KEY, title text); INSERT INTO town SELECT DISTINCT city, city FROM customer")
    migrate(customers, """CREATE TABLE t AS SELECT c.id, c.nick, w.title FROM customer c JOIN town w USING (city);
        CREATE UNIQUE INDEX ON t (upper(nick), (left(title, 4)))""")
    with pytest.raises(psycopg.errors.UniqueViolation):
        customers.execute("INSERT INTO t VALUES (0, 'NICK 8', 'city of mine')")
    customers.execute("INSERT INTO t VALUES (0, 'NICK 8', 'town')")
