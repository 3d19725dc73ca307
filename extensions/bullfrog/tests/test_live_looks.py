"""Rows of tables that stay in use are looked at before the switch, too; behind the lock only those that were written, or are gone, since. New tables have
the rows of the switch all the same."""

import psycopg
import pytest

from conftest import CUSTOMERS, migrate, setting
from switching import Switching
from test_unproven_keys import GROUPED, JOINED, LONELY, SELVES

# Readers keep a switch from a table that it closes, not from one that stays in use.
CLOSED = "; CREATE TABLE closed AS SELECT id FROM other"
LIVE = ", live => '{customer}'"
BOTH = ", live => '{customer, remark}'"
T = "CREATE TABLE t AS SELECT id, nick, length(ssn) AS n, 100 / nullif(id, -1) AS part FROM customer; "
SUMS = "CREATE TABLE t AS SELECT left(city, 6) AS city, sum(id) AS ids, 100 / (count(*) - 98) AS part FROM customer GROUP BY 1; ALTER TABLE t ADD PRIMARY KEY (city)"


@pytest.fixture
def living(customers):
    customers.execute("""CREATE TABLE other (id int); CREATE TABLE remark (id int PRIMARY KEY, customer int NOT NULL, who text);
        INSERT INTO remark SELECT i, i, 'who ' || i % 3 FROM generate_series(1, 10) i; CREATE INDEX ON remark (customer); CREATE INDEX ON remark (who);
        CREATE INDEX ON customer ((left(city, 6))); CREATE TABLE town (id int PRIMARY KEY); INSERT INTO town SELECT generate_series(2, 5)""")
    return customers


BAD = {
    "a NULL": (T + "ALTER TABLE t ALTER n SET NOT NULL", LIVE, "UPDATE customer SET ssn = NULL WHERE id = 8", "NOT NULL of n"),
    "a row without a value": (T, LIVE, "INSERT INTO customer VALUES (0, 'x', 's')", "division by zero"),
    "a key that another row has": (T + "ALTER TABLE t ADD UNIQUE (nick)", LIVE, "UPDATE customer SET nick = 'nick 7' WHERE id = 8", "the unique index"),
    "a row that refers to nothing": (T + "ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES town", LIVE, "UPDATE customer SET ssn = repeat('s', 50) WHERE id = 8", "the foreign key"),
    "a row whose row is gone": (T + "ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES town", LIVE, "DELETE FROM town WHERE id = 4", "the foreign key"),
    "a group that lost rows": (SUMS, LIVE, "DELETE FROM customer WHERE id IN (3, 13)", "division by zero"),
    "a group that came": (GROUPED, LIVE, "INSERT INTO customer VALUES (49600, 'x', 's', 'x', 'new')", "the unique index"),
    "a row of a join": (JOINED, BOTH, "INSERT INTO remark VALUES (11, 8)", "the unique index"),
    "a row of a join with one that is closed": (JOINED, LIVE, "UPDATE customer SET nick = 'nick 7' WHERE id = 8", "the unique index"),
    "a row of a join that comes because another is gone": (LONELY, BOTH, "DELETE FROM customer WHERE id IN (4, 7)", "the unique index"),
    "a row that is joined with one of its own table": (SELVES, LIVE, "UPDATE customer SET nick = 'nick 7' WHERE id = 9", "the unique index"),
}


def answer(database, connection, what):
    definition, options, write, _ = BAD[what]
    switching = Switching(database, definition + CLOSED, options=options, reads="other")
    connection.execute(write)
    return switching.answer()


@pytest.mark.parametrize("what", BAD)
def test_what_is_written_or_gone_while_rows_are_looked_at_is_looked_at_behind_the_lock(database, living, what):
    assert BAD[what][3] in answer(database, living, what)
    assert living.execute("SELECT count(*) FROM bullfrog.migration").fetchone() == (0,)


@pytest.mark.parametrize("what", BAD)
def test_what_is_bad_is_found_before_anybody_waits(database, living, what):
    definition, options, write, violates = BAD[what]
    living.execute(write)
    reader = database.connect()
    reader.execute("BEGIN; SELECT FROM other")
    living.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.Error, match=violates.replace("(", "[(]")):
        migrate(living, definition + CLOSED, options=options)


@pytest.mark.parametrize("flaw", ["written_forgotten", "gone_forgotten"])
@pytest.mark.parametrize("what", ["a NULL", "a key that another row has", "a group that lost rows", "a group that came"])
def test_behind_the_lock_only_what_has_changed_is_looked_at(server, database, living, what, flaw):
    is_of_gone = BAD[what][2].startswith("DELETE")
    with setting(server, "bullfrog.flaw", flaw):
        assert (BAD[what][3] in answer(database, living, what)) == (is_of_gone != (flaw == "gone_forgotten"))


GOOD = {
    "rows": (T + "ALTER TABLE t ADD UNIQUE (nick), ADD CHECK (n > 0)", LIVE),
    "groups": (SUMS, LIVE),
    "groups with a key": (GROUPED, LIVE),
    "a join": (JOINED, BOTH),
    "a join with one that is closed": (JOINED, LIVE),
    "rows that another lacks": (LONELY, BOTH),
    "a join with itself": (SELVES, LIVE),
}
MEANWHILE = """UPDATE customer SET nick = CASE id WHEN 5 THEN 'nick 6' ELSE 'nick 5' END WHERE id IN (5, 6); DELETE FROM customer WHERE id IN (8, 111);
    INSERT INTO customer VALUES (2000, 'x', 's', 'new', 'city 4'); INSERT INTO remark VALUES (12, 2000, 'x'); DELETE FROM remark WHERE id = 3"""
LATER = """UPDATE customer SET nick = 'later' || id, city = 'later' WHERE id < 20; DELETE FROM customer WHERE id = 30; INSERT INTO customer VALUES (3000, 'x', 's', 'y', 'z')"""
SAME = "SELECT (SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE expected) d), (SELECT count(*) FROM (TABLE expected EXCEPT ALL TABLE t) d)"


@pytest.mark.parametrize("granularity", ["page", "tuple"])
@pytest.mark.parametrize("what", GOOD)
def test_new_tables_have_the_rows_of_the_switch_whatever_is_written_before_and_after(database, living, what, granularity):
    definition, options = GOOD[what]
    switching = Switching(database, definition + CLOSED, options=options + f", granularity => '{granularity}'", reads="other")
    living.execute(MEANWHILE)
    living.execute(f"CREATE TABLE expected AS {definition.split(';')[0].split(' AS ', 1)[1]}")
    assert switching.answer() == ""
    living.execute(LATER)
    assert living.execute(SAME).fetchone() == (0, 0)
    living.execute("SELECT bullfrog.finish('m')")
    assert living.execute(SAME).fetchone() == (0, 0)
    assert living.execute("SELECT relname FROM pg_class WHERE relname SIMILAR TO '(keys|doubles|orphans|kept|frozen|members)_%'").fetchall() == []


def test_rows_that_are_left_out_are_those_of_the_switch(database, living):
    definition = T + "ALTER TABLE t ADD UNIQUE (nick), ALTER n SET NOT NULL"
    living.execute("UPDATE customer SET nick = 'nick 9' WHERE id IN (10, 11); UPDATE customer SET ssn = NULL WHERE id IN (20, 21)")
    switching = Switching(database, definition + CLOSED, options=LIVE + ", checks => 'quarantine'", reads="other")
    living.execute("UPDATE customer SET nick = 'nick 12' WHERE id IN (11, 13); UPDATE customer SET ssn = 's' WHERE id = 21")
    assert switching.answer() == ""
    living.execute("UPDATE customer SET nick = 'nick 1' WHERE id < 100; DELETE FROM customer WHERE id = 10")
    aside = "SELECT violates, (content ->> 'id')::int FROM bullfrog.quarantined ORDER BY 2"
    assert [row for _, row in living.execute(aside).fetchall() if row not in (11, 12, 13)] == [10, 20]
    assert living.execute("SELECT count(*), count(DISTINCT nick), count(n) FROM t").fetchone() == (CUSTOMERS - 4, CUSTOMERS - 4, CUSTOMERS - 4)
    living.execute("SELECT bullfrog.finish('m')")
    assert living.execute("SELECT count(*), count(DISTINCT nick), count(n) FROM t").fetchone() == (CUSTOMERS - 4, CUSTOMERS - 4, CUSTOMERS - 4)


def test_views_that_go_on_reading_a_live_table_as_it_is_are_noticed(database, living):
    living.execute("CREATE OR REPLACE FUNCTION bullfrog.read_frozen(target bullfrog.target, item record) RETURNS void LANGUAGE plpgsql AS 'BEGIN END'")
    migrate(living, T, options=LIVE)
    living.execute("CREATE TABLE expected AS SELECT id, nick, length(ssn) AS n, 100 / nullif(id, -1) AS part FROM customer")
    living.execute(LATER)
    assert living.execute(SAME).fetchone() != (0, 0)
