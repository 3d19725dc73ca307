"""Statements that name a row by a unique key: when it has moved, nobody looks at old rows for it."""

import psycopg
import pytest

from conftest import CUSTOMERS, migrate, moved

AS_IT_IS_BEST = ", granularity => 'auto', moves => 'auto'"
DEFINITION = """
    CREATE TABLE t AS SELECT id, name, nick, ssn, city FROM customer; ALTER TABLE t ADD PRIMARY KEY (id); CREATE INDEX ON t (nick);
    ALTER TABLE t ADD UNIQUE (name, ssn); CREATE UNIQUE INDEX ON t (city) WHERE id < 3"""


@pytest.fixture
def single(customers):
    """Customers of whom nobody moved, two by two with one nick."""
    customers.execute("UPDATE customer SET nick = 'nick ' || id / 2, city = 'city ' || id / 2")
    migrate(customers, DEFINITION, options=AS_IT_IS_BEST)
    return customers


def scans_of_old(connection, statement):
    """How often a statement looks into the index of the old table."""
    def count():
        return connection.execute("SELECT pg_stat_get_xact_numscans('customer_pkey'::regclass)").fetchone()[0]

    connection.execute("BEGIN")
    before = count()
    connection.execute(statement)
    scans = count() - before
    connection.execute("COMMIT")
    return scans


STATEMENTS = ["UPDATE t SET nick = nick WHERE id = 7", "SELECT name FROM t WHERE id = 7", "SELECT name FROM t WHERE 7 = id AND name <> ''",
    "SELECT name FROM t WHERE id = 7 FOR UPDATE", "DELETE FROM t WHERE id = 7 AND nick = 'none'"]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_old_rows_are_not_looked_at_for_one_that_has_moved(single, statement):
    assert scans_of_old(single, statement) > 0
    single.execute("UPDATE t SET nick = nick WHERE id = 7")
    assert scans_of_old(single, statement) == 0
    prepared = statement.replace("7", "$1")
    single.execute(f"PREPARE p (int) AS {prepared}; SET plan_cache_mode = force_generic_plan")
    assert scans_of_old(single, "EXECUTE p (7)") == 0
    assert scans_of_old(single, "EXECUTE p (8)") > 0
    single.execute("EXECUTE p (NULL)")


def test_a_row_that_is_gone_stays_gone(single):
    single.execute("DELETE FROM t WHERE id = 7")
    for statement in STATEMENTS:
        assert single.execute(statement).rowcount == 0
    assert moved(single) == 1 and single.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS - 1,)


BY_LESS = ["nick = 'nick 3'", "city = 'city 3'", "name LIKE 'name %' AND nick = 'nick 3'", "id::text IN ('6', '7')"]


@pytest.mark.parametrize("condition", BY_LESS)
def test_columns_that_are_no_key_name_several_rows(single, condition):
    """One of two has moved: the other one is read, and moves."""
    single.execute("UPDATE t SET ssn = 'moved' WHERE id = 6")
    assert single.execute(f"SELECT id FROM t WHERE {condition} ORDER BY id").fetchall() == [(6,), (7,)]
    assert single.execute(f"SELECT id FROM t WHERE {condition}").rowcount == 2
    assert single.execute(f"UPDATE t SET ssn = 'both' WHERE {condition}").rowcount == 2
    assert single.execute("SELECT count(*) FROM t WHERE ssn = 'both'").fetchone() == (2,)


def test_a_key_that_is_none_is_noticed(single):
    single.execute("SET bullfrog.flaw = 'any_index_is_a_key'")
    with pytest.raises(AssertionError):
        test_columns_that_are_no_key_name_several_rows(single, BY_LESS[0])


@pytest.mark.parametrize("statement,rows", [
    ("SELECT generate_series(1, 3) FROM t WHERE id = 7", 3), ("SELECT count(*) FROM t WHERE id = 7", 1), ("SELECT id FROM t WHERE id = 7 LIMIT 0", 0),
    ("SELECT id FROM t WHERE id = 7 OFFSET 1", 0), ("SELECT t.id, o.id FROM t JOIN t o ON o.id IN (7, 8) WHERE t.id = 7", 2), ("SELECT id FROM t WHERE id = 7::bigint", 1),
    ("SELECT id FROM t WHERE id = 7 UNION ALL SELECT id FROM t WHERE id = 8", 2), ("SELECT DISTINCT nick FROM t WHERE id = 7", 1), ("SELECT id FROM t WHERE id = 7 OR nick = 'nick 4'", 3),
    ("SELECT id FROM t WHERE id = NULL", 0), ("SELECT g FROM t, generate_series(1, 4) g WHERE t.id = 7", 4), ("SELECT id FROM t WHERE name = 'name 7' AND ssn = 's7'", 1),
])
def test_a_statement_gives_all_rows_that_it_makes_of_one(single, statement, rows):
    assert single.execute(statement).rowcount == rows
    single.execute("UPDATE t SET city = 'x' WHERE id = 7")
    assert single.execute(statement).rowcount == rows


def test_rows_that_violate_a_key_until_they_move_are_all_read(customers):
    customers.execute("UPDATE customer SET nick = 'twice' WHERE id IN (5, 900)")
    migrate(customers, "CREATE TABLE t AS SELECT id, nick FROM customer; ALTER TABLE t ADD PRIMARY KEY (id), ADD UNIQUE (nick)",
        options=", checks => 'warn', granularity => 'auto', moves => 'auto'")
    assert customers.execute("SELECT id FROM t WHERE nick = 'twice'").rowcount == 2


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_has_its_row(database, single, level):
    """Whoever moved, changed or deleted it since."""
    reader = database.connect()
    reader.execute(f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM t")
    single.execute("UPDATE t SET ssn = 'new' WHERE id = 7; DELETE FROM t WHERE id = 8")
    seen = [reader.execute("SELECT ssn FROM t WHERE id = %s", (key,)).fetchall() for key in (7, 8)]
    assert seen == ([[("new",)], []] if level == "READ COMMITTED" else [[("s7",)], [("s8",)]])
    if level != "READ COMMITTED":
        with pytest.raises(psycopg.errors.SerializationFailure):
            reader.execute("UPDATE t SET ssn = 'mine' WHERE id = 8")
