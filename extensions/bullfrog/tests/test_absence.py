"""Joined rows that come because another row is gone are found, and not by reading all combinations of the rows that are joined."""

import pytest

from conftest import setting
from switching import Switching

DRIVEN = ", driving => '{remark}'"
UNIQUE = {"who": "; ALTER TABLE t ADD UNIQUE (who)", "nick": "; ALTER TABLE t ADD UNIQUE (nick)", "zone": "; ALTER TABLE t ADD UNIQUE (zone)"}
INSIDE = "CREATE TABLE t AS SELECT r.id, r.who FROM remark r LEFT JOIN (customer c JOIN visit v ON v.customer = c.id) ON c.id = r.customer WHERE c.id IS NULL" + UNIQUE["who"]
STRICT = "CREATE TABLE t AS SELECT r.id, c.nick FROM remark r LEFT JOIN customer c ON c.id = r.customer JOIN visit v ON v.customer = c.id" + UNIQUE["nick"]
RIGHT = "CREATE TABLE t AS SELECT r.id, c.nick FROM customer c RIGHT JOIN remark r ON c.id = r.customer JOIN visit v ON v.customer = c.id" + UNIQUE["nick"]
USING = "CREATE TABLE t AS SELECT r.id, c.nick FROM remark r LEFT JOIN customer c ON c.id = r.customer JOIN town USING (city)" + UNIQUE["nick"]
# Two outer joins, of which the second finds another visit when the first finds nobody.
DEPENDING = """CREATE TABLE t AS SELECT r.id, v.zone FROM remark r LEFT JOIN customer c ON c.id = r.customer
    LEFT JOIN visit v ON v.other = c.id OR c.id IS NULL AND v.id = r.id WHERE c.id IS NULL AND v.zone > 0""" + UNIQUE["zone"]
# An inner join that does.
LOOSE = """CREATE TABLE t AS SELECT r.id, v.zone FROM remark r LEFT JOIN customer c ON c.id = r.customer
    JOIN visit v ON v.other = c.id OR c.id IS NULL AND v.id = r.id""" + UNIQUE["zone"]
# Both are there, or none is.
BOTH = """CREATE TABLE t AS SELECT r.id, v.zone FROM remark r LEFT JOIN customer c ON c.id = r.customer LEFT JOIN visit v ON v.customer = c.id
    WHERE v.zone > 0""" + UNIQUE["zone"]
GROUPED = """CREATE TABLE t AS SELECT r.who, count(*) AS n FROM remark r LEFT JOIN customer c ON c.id = r.customer JOIN visit v ON v.customer = c.id GROUP BY r.who;
    ALTER TABLE t ADD UNIQUE (n)"""


@pytest.fixture
def remarks(customers):
    """Ten customers have a remark, a visit and a town of their own each; two remarks of one kind, and two visits in one zone, are no key."""
    customers.execute("""
        CREATE TABLE remark (id int PRIMARY KEY, customer int NOT NULL, who text); CREATE INDEX ON remark (customer); CREATE INDEX ON remark (who);
        INSERT INTO remark SELECT i, i, 'who ' || i % 3 FROM generate_series(1, 10) i;
        CREATE TABLE visit (id int PRIMARY KEY, customer int NOT NULL, other int, zone int); CREATE INDEX ON visit (customer);
        INSERT INTO visit SELECT i, i, i + 5000, i % 3 + 1 FROM generate_series(1, 10) i;
        CREATE TABLE town (city text PRIMARY KEY); INSERT INTO town SELECT DISTINCT city FROM customer""")
    return customers


def members(connection, definition, driving="remark"):
    """The query for the old rows of joined ones."""
    return connection.execute("SELECT members FROM bullfrog.parse(%s, driving => ARRAY[%s::regclass::oid]) WHERE action = 'create'", (definition, driving)).fetchone()[0]


@pytest.mark.parametrize("definition, conditions, rows", [
    (INSIDE, ["v.customer = c.id", "c.id = r.customer"], 10),
    (STRICT, ["v.customer = c.id", "c.id = r.customer"], 10),
    (RIGHT, ["v.customer = c.id", "c.id = r.customer"], 10),
    (USING, ["JOIN town USING (city)", "c.id = r.customer"], 10),
    (BOTH, ["v.customer = c.id", "c.id = r.customer", "v.zone > 0"], 10),
    (GROUPED, ["v.customer = c.id", "c.id = r.customer"], 10),
    (DEPENDING, ["c.id = r.customer", "v.other = c.id"], 10),
])
def test_tables_are_joined_where_rows_are_looked_for_that_may_be_others(remarks, definition, conditions, rows):
    text = members(remarks, definition)
    assert "bullfrog_place_" in text
    for condition in conditions:
        assert condition in text, text
    # What is asked of what is lacking is not there.
    assert ("WHERE" in text) == (definition is BOTH)
    assert remarks.execute(f"SELECT count(*) FROM ({text.rstrip(';')}) m").fetchone() == (rows,)


COMING = {
    "a row of which a joined row is gone": (INSIDE, "DELETE FROM visit WHERE customer IN (4, 7)"),
    "a row of which the joined row's row is gone": (INSIDE, "DELETE FROM customer WHERE id IN (4, 7)"),
    "a row that is joined with two": (STRICT, "INSERT INTO visit VALUES (11, 8)"),
    "a row that is joined with two, on the right": (RIGHT, "INSERT INTO visit VALUES (11, 8)"),
    "a row that has another's key": (USING, "UPDATE customer SET nick = 'nick 7' WHERE id = 8"),
    "a row that is joined with one of the same zone": (BOTH, "UPDATE visit SET zone = 5 WHERE id IN (4, 7)"),
    "a group that has another's key": (GROUPED, "DELETE FROM visit WHERE id IN (2, 5)"),
    "a row that is joined with another because one is gone": (DEPENDING, "DELETE FROM customer WHERE id IN (4, 7)"),
    "a row that comes to be joined because one is gone": (LOOSE, "DELETE FROM customer WHERE id IN (4, 7)"),
}


def settle(connection, definition):
    """Lets nothing be there twice to begin with."""
    if definition is BOTH:
        connection.execute("UPDATE visit SET zone = id")
    if definition is GROUPED:
        connection.execute("INSERT INTO visit SELECT i + 100, CASE WHEN i < 3 THEN 2 ELSE 1 END FROM generate_series(1, 6) i")


def switches(database, connection, definition, meanwhile):
    """Whether a switch takes all rows when this is written before it has its lock."""
    settle(connection, definition)
    switching = Switching(database, definition, options="" if definition is GROUPED else DRIVEN)
    connection.execute(meanwhile)
    error = switching.answer()
    assert error == "" or "rows would violate the unique index" in error, error
    return error == ""


@pytest.mark.parametrize("what", COMING)
def test_a_key_that_is_there_twice_is_found(database, remarks, what):
    assert not switches(database, remarks, *COMING[what])


GOING = {
    "others are gone": (INSIDE, "DELETE FROM visit WHERE customer IN (4, 8)"),
    "one comes back and another is gone": (INSIDE, "DELETE FROM visit WHERE customer = 4; INSERT INTO visit VALUES (4, 4); DELETE FROM visit WHERE customer = 7"),
    "keys are exchanged": (STRICT, "UPDATE customer SET nick = CASE id WHEN 7 THEN 'nick 8' ELSE 'nick 7' END WHERE id IN (7, 8)"),
    "a row is joined with no other any more": (RIGHT, "DELETE FROM visit WHERE id = 8; INSERT INTO visit VALUES (11, 8)"),
    "a town is gone": (USING, "DELETE FROM town WHERE city LIKE 'city 8%'; UPDATE customer SET nick = 'nick 8' WHERE id = 7"),
    "zones are exchanged": (BOTH, "UPDATE visit SET zone = CASE id WHEN 4 THEN 7 ELSE 4 END WHERE id IN (4, 7)"),
    "groups are others": (GROUPED, "UPDATE visit SET customer = 2 WHERE id IN (103, 104, 105)"),
    "some are joined with others": (DEPENDING, "DELETE FROM customer WHERE id IN (4, 8)"),
    "one is joined with another and one with none": (DEPENDING, "DELETE FROM customer WHERE id = 4; INSERT INTO customer VALUES (4, 'x', 's'); DELETE FROM customer WHERE id = 7"),
    "some come to be joined": (LOOSE, "DELETE FROM customer WHERE id IN (4, 8); UPDATE visit SET other = 3 WHERE id = 3"),
}


@pytest.mark.parametrize("what", GOING)
def test_keys_that_differ_in_the_end_are_fine(database, remarks, what):
    definition, meanwhile = GOING[what]
    assert switches(database, remarks, definition, meanwhile)
    # Of the old rows, which nobody writes any more.
    query = definition.split(";")[0].split(" AS ", 1)[1]
    rows = remarks.execute("TABLE t").fetchall()
    remarks.execute("SELECT bullfrog.finish('m', keep_old => true)")
    assert sorted(rows) == sorted(remarks.execute(query).fetchall()) == sorted(remarks.execute("TABLE t").fetchall())


@pytest.mark.parametrize("flaw", ["gone_forgotten", "lacking_forgotten"])
def test_rows_that_come_to_be_joined_with_another_are_not_found_by_what_is_written(server, database, remarks, flaw):
    with setting(server, "bullfrog.flaw", flaw):
        assert switches(database, remarks, *COMING["a row that is joined with another because one is gone"])


# What z is joined by is the second visit's, so this condition is not kept.
COMBINED = """CREATE TABLE t AS SELECT r.id, z.name FROM remark r LEFT JOIN customer c ON c.id = r.customer
    LEFT JOIN visit v ON v.other = c.id OR c.id IS NULL AND v.id = r.id JOIN zone z ON z.id = v.zone; ALTER TABLE t ADD UNIQUE (id)"""


@pytest.mark.parametrize("least_cost, are_read", [("0", False), ("1000000000", True)])
def test_combinations_that_are_dearer_to_be_read_than_all_rows_are_not_read(database, remarks, least_cost, are_read):
    remarks.execute("""CREATE TABLE zone (id int PRIMARY KEY, name text); INSERT INTO zone SELECT i, 'zone ' || i FROM generate_series(1, 3000) i;
        INSERT INTO remark SELECT i, i, 'w' FROM generate_series(11, 900) i; ANALYZE zone, remark, visit""")
    remarks.execute(f"CREATE OR REPLACE FUNCTION bullfrog.least_cost() RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT {least_cost}::float8'")
    text = remarks.execute("SELECT pg_get_functiondef('bullfrog.affected'::regproc)").fetchone()[0]
    assert text.count("found := found || ARRAY(") == 1
    remarks.execute(text.replace("found := found || ARRAY(", "RAISE WARNING 'combinations are read'; found := found || ARRAY("))
    switching = Switching(database, COMBINED, options=DRIVEN)
    remarks.execute("UPDATE zone SET name = 'x' WHERE id <= 900")
    assert switching.answer() == ""
    assert ("combinations are read" in switching.said) == are_read
