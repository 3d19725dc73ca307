"""What is looked at before the switch is not only rows that are moved one by one: foreign keys, groups and joins, of which rows may also be gone
by then; domains; and what a statement says beside a foreign key."""

import contextlib

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, answered, migrate, setting
from server import wait_until
from switching import Switching

REFERRING = """CREATE TABLE t AS SELECT id, name, nick, length(ssn) AS town FROM customer; ALTER TABLE t ADD PRIMARY KEY (id);
    ALTER TABLE t ADD FOREIGN KEY (town) REFERENCES town"""
REFERRED = """CREATE TABLE t AS SELECT id, nick AS name FROM customer WHERE id <> 999; ALTER TABLE t ADD PRIMARY KEY (id);
    ALTER TABLE remark ADD FOREIGN KEY (customer) REFERENCES t"""
BOTH = """CREATE TABLE t AS SELECT id, length(ssn) AS town FROM customer; CREATE TABLE u AS SELECT id, name FROM town;
    ALTER TABLE t ADD PRIMARY KEY (id); ALTER TABLE u ADD PRIMARY KEY (id); ALTER TABLE t ADD FOREIGN KEY (town) REFERENCES u"""
GROUPED = """CREATE TABLE t AS SELECT left(city, 6) AS city, count(*) AS n, 100 / (count(*) - 98) AS part FROM customer GROUP BY 1;
    ALTER TABLE t ADD PRIMARY KEY (city); ALTER TABLE t ADD CHECK (n > 90)"""
JOINED = """CREATE TABLE t AS SELECT r.id, c.name, 100 / (length(c.nick) - 3) AS part FROM remark r LEFT JOIN customer c ON c.id = r.customer;
    ALTER TABLE t ADD PRIMARY KEY (id); ALTER TABLE t ALTER name SET NOT NULL"""
INNER = JOINED.replace("LEFT ", "")
SUMMED = """CREATE TABLE t AS SELECT r.who, count(*) AS n, min(100 / (length(c.nick) - 3)) AS part FROM remark r JOIN customer c ON c.id = r.customer GROUP BY r.who;
    ALTER TABLE t ADD CHECK (n > 2)"""

LONELY = "CREATE TABLE t AS SELECT r.id, 100 / (r.id - 8) AS part FROM remark r LEFT JOIN customer c ON c.id = r.customer WHERE c.id IS NULL"


@pytest.fixture
def towns(customers):
    """Each customer has a town by the length of its ssn (2 to 5), and some have remarks."""
    customers.execute("""
        CREATE TABLE town (id bigint PRIMARY KEY, name text); INSERT INTO town SELECT i, 'town ' || i FROM generate_series(1, 9) i;
        CREATE TABLE remark (id int PRIMARY KEY, customer int NOT NULL, who text);
        INSERT INTO remark SELECT i, i, 'who ' || i % 3 FROM generate_series(1, 10) i; CREATE INDEX ON remark (customer); CREATE INDEX ON remark (who)""")
    return customers


BAD = {
    "a row that refers to nothing": (REFERRING, "UPDATE customer SET ssn = repeat('s', 50) WHERE id = 8", "the foreign key (town) of public.t"),
    "a row whose row is gone": (REFERRING, "DELETE FROM town WHERE id = 4", "the foreign key (town) of public.t"),
    "a row whose row has another key": (REFERRING, "UPDATE town SET id = 40 WHERE id = 4", "the foreign key (town) of public.t"),
    "a row whose row came and is gone": (REFERRING, "INSERT INTO town VALUES (50); UPDATE customer SET ssn = repeat('s', 50) WHERE id = 8; DELETE FROM town WHERE id = 50",
        "the foreign key (town) of public.t"),
    "another table's row that refers to nothing": (REFERRED, "INSERT INTO remark VALUES (11, 0)", "the foreign key (customer) of public.remark"),
    "another table's row whose row is gone": (REFERRED, "DELETE FROM customer WHERE id = 8", "the foreign key (customer) of public.remark"),
    "another table's row whose row is left out": (REFERRED, "UPDATE customer SET id = 2000 WHERE id = 999; UPDATE customer SET id = 999 WHERE id = 8",
        "the foreign key (customer) of public.remark"),
    "a row whose row is gone, both of new tables": (BOTH, "DELETE FROM town WHERE id = 3", "the foreign key (town) of public.t"),
    "a group that lost rows": (GROUPED, "DELETE FROM customer WHERE city LIKE 'city 3%' AND id > 500", "the check t_n_check"),
    "a group that came": (GROUPED, "UPDATE customer SET city = 'new' WHERE id = 8", "the check t_n_check"),
    "a group without a value": (GROUPED, "DELETE FROM customer WHERE id IN (3, 13)", "division by zero"),
    "a group that has a row more": (GROUPED, "UPDATE customer SET city = NULL WHERE city LIKE 'city 8%'", "NOT NULL of city"),
    "a row of an outer join that lost its other row": (JOINED, "DELETE FROM customer WHERE id = 8", "NOT NULL of name"),
    "a row of an outer join that never had one": (JOINED, "INSERT INTO remark VALUES (11, 5000)", "NOT NULL of name"),
    "a row of an outer join without a value": (JOINED, "UPDATE customer SET nick = 'abc' WHERE id = 8", "division by zero"),
    "a row of a join without a value": (INNER, "UPDATE customer SET nick = 'abc' WHERE id = 8", "division by zero"),
    "a row of a join that came, without a value": (INNER, "UPDATE customer SET nick = 'abc' WHERE id = 900; INSERT INTO remark VALUES (11, 900)", "division by zero"),
    "a row of an outer join that comes because another is gone": (LONELY, "DELETE FROM customer WHERE id = 8", "division by zero"),
    "a group of a join that lost rows of the other table": (SUMMED, "DELETE FROM customer WHERE id IN (2, 5)", "the check t_n_check"),
    "a group of a join without a value": (SUMMED, "UPDATE customer SET nick = 'abc' WHERE id = 8", "division by zero"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_written_or_gone_while_rows_are_looked_at_is_looked_at_behind_the_lock(database, towns, what):
    definition, write, violates = BAD[what]
    switching = Switching(database, definition)
    towns.execute(write)
    assert violates in switching.answer()
    assert towns.execute("SELECT count(*) FROM bullfrog.migration").fetchone() == (0,)


GOOD = {
    "rows that are referred to are changed": (REFERRING, "UPDATE town SET name = 'x'"),
    "a row that is referred to is gone and there again": (REFERRING, "DELETE FROM town WHERE id = 4; INSERT INTO town VALUES (4)"),
    "a row to which nobody refers is gone": (REFERRING, "DELETE FROM town WHERE id = 9"),
    "a row that is gone is there after all": (REFERRING, "BEGIN; DELETE FROM town; ROLLBACK"),
    "a row is locked": (REFERRING, "SELECT FROM town WHERE id = 4 FOR UPDATE"),
    "rows that refer are changed": (REFERRED, "UPDATE remark SET who = 'x'; DELETE FROM remark WHERE id = 8; DELETE FROM customer WHERE id = 8"),
    "a row refers to a new one": (BOTH, "INSERT INTO town VALUES (50); UPDATE customer SET ssn = repeat('s', 50) WHERE id = 8"),
    "a group is gone": (GROUPED, "DELETE FROM customer WHERE city LIKE 'city 3%'"),
    "a row changes its group": (GROUPED, "UPDATE customer SET city = 'city 4' WHERE id = 3"),
    "all rows are written": (GROUPED, "UPDATE customer SET nick = 'x'"),
    "rows of a join are changed": (JOINED, "UPDATE customer SET nick = 'another'; UPDATE remark SET customer = 900 WHERE id = 8; DELETE FROM customer WHERE id = 8"),
    "a row of a join is gone": (INNER, "DELETE FROM customer WHERE id = 8"),
    "groups of a join are changed": (SUMMED, "UPDATE customer SET nick = 'another'; DELETE FROM remark WHERE who = 'who 1'"),
}


@pytest.mark.parametrize("what", GOOD)
def test_what_is_written_meanwhile_is_in_the_new_table(database, towns, what):
    definition, write = GOOD[what]
    switching = Switching(database, definition)
    towns.execute(write)
    _, query = definition.split(";")[0].split(" AS ", 1)
    towns.execute(f"CREATE TABLE expected AS {query}")
    assert switching.answer() == ""
    same = "SELECT (SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE expected) d), (SELECT count(*) FROM (TABLE expected EXCEPT ALL TABLE t) d)"
    assert towns.execute(same).fetchone() == (0, 0)
    towns.execute("SELECT bullfrog.finish('m')")
    assert towns.execute(same).fetchone() == (0, 0)


BEFORE = {
    "a foreign key": (REFERRING, "UPDATE customer SET ssn = repeat('s', 50) WHERE id = 8"),
    "a foreign key of another table": (REFERRED, "DELETE FROM customer WHERE id = 8"),
    "a group": (GROUPED, "UPDATE customer SET city = 'new' WHERE id = 8"),
    "a join": (JOINED, "DELETE FROM customer WHERE id = 8"),
    "a domain": ("CREATE TABLE t AS SELECT id, id::small AS n FROM customer", "CREATE DOMAIN small AS int CHECK (VALUE < 1000)"),
    "a key beside a foreign key": (REFERRING.replace("ADD FOREIGN", "ADD UNIQUE (nick), ADD FOREIGN"), "UPDATE customer SET nick = 'nick 7' WHERE id = 8"),
}


@pytest.mark.parametrize("what", BEFORE)
def test_what_is_bad_is_found_before_the_lock(database, towns, what):
    definition, write = BEFORE[what]
    towns.execute(write)
    reader = database.connect()
    reader.execute("BEGIN; SELECT FROM customer LIMIT 1")
    towns.execute("SET lock_timeout = '200ms'")
    with pytest.raises((psycopg.errors.IntegrityConstraintViolation, psycopg.errors.CheckViolation)):
        migrate(towns, definition)


@pytest.mark.parametrize("flaw", [None, "gone_forgotten"])
@pytest.mark.parametrize("what", ["a row whose row is gone", "a group that lost rows", "a row of an outer join that lost its other row"])
def test_behind_the_lock_only_what_has_changed_is_looked_at(server, database, towns, what, flaw):
    definition, write, violates = BAD[what]
    with setting(server, "bullfrog.flaw", flaw) if flaw else contextlib.nullcontext():
        switching = Switching(database, definition)
        towns.execute(write)
        assert (violates in switching.answer()) == (flaw is None)


def test_tables_that_foreign_keys_are_about_keep_their_form_and_their_dead_rows_while_they_are_looked_at(database, towns):
    switching = Switching(database, REFERRING)
    towns.execute("SET lock_timeout = '1ms'; UPDATE town SET name = 'x'; INSERT INTO town VALUES (50)")
    for statement in ("ALTER TABLE town ADD more int", "VACUUM town"):
        with pytest.raises(psycopg.errors.LockNotAvailable):
            towns.execute(statement)
    assert switching.answer() == ""


def test_a_switch_that_fails_in_a_block_leaves_nothing_to_the_next_one(towns):
    towns.execute("UPDATE customer SET ssn = repeat('s', 50) WHERE id = 8")
    text = REFERRING.replace("'", "''")
    towns.execute(f"""DO $block$ BEGIN
        BEGIN PERFORM bullfrog.migrate('m', '{text}'); RAISE 'it is not refused'; EXCEPTION WHEN integrity_constraint_violation THEN NULL; END;
        UPDATE customer SET ssn = 's8' WHERE id = 8;
        PERFORM bullfrog.migrate('m', '{text}');
        END $block$""")
    assert towns.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS,)


SMALL = "CREATE TABLE t AS SELECT id, id::small AS n FROM customer"


@pytest.mark.parametrize("condition, is_good", [("VALUE < 500", False), ("VALUE < 5000", True)])
def test_a_domain_that_is_changed_meanwhile_is_asked_again(database, customers, condition, is_good):
    customers.execute("CREATE DOMAIN small AS int CHECK (VALUE <> 7000)")
    switching = Switching(database, SMALL)
    customers.execute(f"ALTER DOMAIN small ADD CHECK ({condition})")
    error = switching.answer()
    assert (error == "") == is_good and ("violates check constraint" in error) != is_good, error


@pytest.mark.parametrize("column", ["id::small", "(pairs(id))[1].b"])
@pytest.mark.parametrize("change", ["ADD CHECK (VALUE < 500)", "SET NOT NULL", "DROP CONSTRAINT small_check"])
def test_a_domain_does_not_change_while_rows_move(customers, column, change):
    customers.execute("""CREATE DOMAIN small AS int CHECK (VALUE <> 7000); CREATE TYPE pair AS (a small, b text);
        CREATE FUNCTION pairs(int) RETURNS pair[] LANGUAGE sql IMMUTABLE AS 'SELECT ARRAY[ROW($1, NULL)::public.pair]'""")
    migrate(customers, f"CREATE TABLE t AS SELECT id, {column} AS n FROM customer")
    with pytest.raises(psycopg.errors.ObjectInUse, match="this would change"):
        customers.execute(f"ALTER DOMAIN small {change}")
    customers.execute("SELECT bullfrog.finish('m'); ALTER DOMAIN small DROP CONSTRAINT small_check")


def test_both_parts_of_a_statement_that_has_a_foreign_key_are_made(towns):
    migrate(towns, REFERRING.replace("ADD FOREIGN", "ADD CONSTRAINT one CHECK (town > 0), ADD CONSTRAINT two FOREIGN") + ", ADD CONSTRAINT three UNIQUE (nick)")
    names = "SELECT array_agg(conname::text ORDER BY conname) FROM pg_constraint WHERE conrelid = 't'::regclass AND conname IN ('one', 'two', 'three')"
    assert towns.execute(names).fetchone() == (["one", "three", "two"],)


def test_an_error_in_a_part_of_a_statement_tells_in_which(towns):
    with pytest.raises(psycopg.errors.UndefinedColumn) as refused:
        migrate(towns, REFERRING.replace("ADD FOREIGN", "ADD UNIQUE (nonsense), ADD FOREIGN"))
    assert refused.value.diag.context.startswith('SQL statement "ALTER TABLE t ADD UNIQUE (nonsense), ADD FOREIGN KEY')


@pytest.fixture
def clerk(customers):
    customers.execute("CREATE ROLE clerk")
    yield customers
    customers.execute("DROP OWNED BY clerk; DROP ROLE clerk")


RIGHTS = {
    "a right": ("GRANT SELECT ON customer TO clerk", "REVOKE SELECT ON customer FROM clerk", (False, False)),
    "a right on a column": ("GRANT UPDATE (nick) ON customer TO clerk", "REVOKE UPDATE (nick) ON customer FROM clerk", (False, False)),
    "a right that comes": ("SELECT 1", "GRANT SELECT, UPDATE (nick) ON customer TO clerk", (True, True)),
}


@pytest.mark.parametrize("what", RIGHTS)
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_switch_waits_for_who_is_about_to_change_rights(database, clerk, what, end):
    before, change, after = RIGHTS[what]
    clerk.execute(before)
    may = "SELECT has_table_privilege('clerk', %s, 'SELECT'), has_column_privilege('clerk', %s, 'nick', 'UPDATE')"
    was = clerk.execute(may, ("customer", "customer")).fetchone()
    changing = database.connect()
    changing.execute(f"BEGIN; {change}")
    switching, said = database.connect(), []
    switching.add_notice_handler(lambda notice: said.append((notice.message_primary, notice.message_detail)))
    switching.execute("SET lock_timeout = '1min'")
    switching.pgconn.send_query(b"SELECT bullfrog.migrate('m', 'CREATE TABLE t AS SELECT id, nick FROM customer', like => true)")

    def is_told():
        switching.pgconn.consume_input()
        switching.pgconn.is_busy()
        return said

    wait_until(is_told, "it is told who is in the way")
    assert f"Process {changing.info.backend_pid} " in said[0][1] and "a change of rights on public.customer" in said[0][1]
    # Nobody waits for long.
    clerk.execute("SET statement_timeout = '5s'; SELECT FROM customer; RESET statement_timeout")
    changing.execute(end)
    answered(switching)
    assert clerk.execute(may, ("t", "t")).fetchone() == (after if end == "COMMIT" else was)


@pytest.mark.parametrize("way", ["finish", "abort"])
def test_an_end_waits_for_who_is_about_to_change_rights_on_a_new_table(database, clerk, way):
    migrate(clerk, SPLIT)
    changing, ending = database.connect(), database.connect()
    changing.execute("BEGIN; GRANT SELECT ON customer_public TO clerk")
    ending.execute("SET lock_timeout = '1min'")
    ending.pgconn.send_query(f"SELECT bullfrog.{way}('m')".encode())
    waits = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted AND locktype = 'transactionid'"
    wait_until(lambda: clerk.execute(waits, (ending.info.backend_pid,)).fetchone() == (1,), "the end waits for the right")
    changing.execute("COMMIT")
    answered(ending)
    if way == "finish":
        assert clerk.execute("SELECT has_table_privilege('clerk', 'customer_public', 'SELECT')").fetchone() == (True,)


@pytest.mark.parametrize("used, use", [("remark", "SELECT FROM remark"), ("town", "INSERT INTO town VALUES (20)")])
def test_tables_of_foreign_keys_are_locked_together_with_the_old_ones(database, towns, used, use):
    """Nobody waits for an old table while the switch waits for another one."""
    towns.execute("ALTER TABLE remark ADD CONSTRAINT k FOREIGN KEY (customer) REFERENCES customer")
    using = database.connect()
    using.execute(f"BEGIN; {use}")
    towns.execute("SET lock_timeout = '10ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable, match=f"could not lock .*public.{used}") as refused:
        migrate(towns, REFERRING + "; ALTER TABLE remark DROP CONSTRAINT k; ALTER TABLE remark ADD FOREIGN KEY (customer) REFERENCES t")
    assert f"Process {using.info.backend_pid} " in refused.value.diag.message_detail
