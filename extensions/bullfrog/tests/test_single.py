"""Writes that name a row by a unique key: when it has moved, nobody looks for old rows."""

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


STATEMENTS = ["UPDATE t SET nick = nick WHERE id = 7", "UPDATE t SET nick = nick WHERE 7 = id AND name <> ''", "SELECT name FROM t WHERE id = 7 FOR UPDATE",
    "DELETE FROM t WHERE id = 7 AND nick = 'none'"]


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


# What others do after the snapshot of a transaction: to a row that had moved before it, or had not.
AFTER = ["DELETE FROM t WHERE id = 7", "UPDATE t SET id = 7000 WHERE id = 7"]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("has_moved", [True, False])
@pytest.mark.parametrize("after", AFTER)
def test_an_own_row_does_not_hide_one_that_others_have_deleted_since(database, single, level, has_moved, after):
    """For such a snapshot both are there, and who writes them has to try again, as in a table that nobody migrates."""
    own = database.connect()
    if has_moved:
        single.execute("UPDATE t SET nick = nick WHERE id = 7")
    own.execute(f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM t")
    single.execute(after)
    try:
        own.execute("INSERT INTO t (id, name) VALUES (7, 'mine')")
        assert own.execute("SELECT name FROM t WHERE id = 7 ORDER BY name").fetchall() == [("mine",), ("name 7",)]
    except psycopg.errors.SerializationFailure:
        # It may be told as early.
        return
    with pytest.raises(psycopg.errors.SerializationFailure):
        own.execute("UPDATE t SET nick = 'x' WHERE id = 7")


def test_an_own_row_that_hides_another_is_noticed(database, single):
    connect = database.connect
    database.connect = lambda: connect(options="-c bullfrog.flaw=own_rows_count")
    with pytest.raises(pytest.fail.Exception):
        test_an_own_row_does_not_hide_one_that_others_have_deleted_since(database, single, "REPEATABLE READ", False, AFTER[0])


def test_columns_that_are_included_and_other_comparisons_are_no_key(customers):
    customers.execute("CREATE COLLATION other (provider = libc, locale = 'C'); UPDATE customer SET nick = 'n' WHERE id IN (6, 7)")
    migrate(customers, 'CREATE TABLE t AS SELECT id, nick, name COLLATE other AS name FROM customer; ALTER TABLE t ADD PRIMARY KEY (id) INCLUDE (nick); CREATE UNIQUE INDEX ON t (name)',
        options=AS_IT_IS_BEST)
    customers.execute("UPDATE t SET nick = 'n' WHERE id = 6")
    assert customers.execute("UPDATE t SET nick = 'm' WHERE nick = 'n'").rowcount == 2
    assert customers.execute("UPDATE t SET nick = 'm' WHERE name = 'name 8' COLLATE \"C\"").rowcount == 1
    assert customers.execute("UPDATE t SET nick = 'm' WHERE id > 8 AND id < 11 AND id <> 10").rowcount == 1
