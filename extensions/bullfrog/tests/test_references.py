"""Foreign keys from and to new tables that are made of groups or joins are looked at before the switch; behind the lock only what refers, or was referred to, and
has changed since."""

import psycopg
import pytest

from conftest import migrate, setting
from switching import Switching

# Numbers of towns are 1 to 9 but 3; the longest ssn has 4 letters in each city, 5 in city 0.
JOINED = """CREATE TABLE t AS SELECT r.id, length(c.ssn) AS town FROM remark r JOIN customer c ON c.id = r.customer; ALTER TABLE t ADD PRIMARY KEY (id);
    ALTER TABLE t ADD FOREIGN KEY (town) REFERENCES town"""
LACKING = """CREATE TABLE t AS SELECT r.id, length(r.who) AS town FROM remark r LEFT JOIN customer c ON c.id = r.customer WHERE c.id IS NULL;
    ALTER TABLE t ADD FOREIGN KEY (town) REFERENCES town"""
GROUPED = """CREATE TABLE t AS SELECT left(city, 6) AS city, max(length(ssn)) AS town FROM customer GROUP BY 1; ALTER TABLE t ADD PRIMARY KEY (city);
    ALTER TABLE t ADD FOREIGN KEY (town) REFERENCES town"""
TO_JOIN = """CREATE TABLE t AS SELECT r.id, coalesce(c.nick, 'none of ' || r.id::text) AS nick FROM remark r LEFT JOIN customer c ON c.id = r.customer;
    ALTER TABLE t ADD UNIQUE (nick); ALTER TABLE visit ADD FOREIGN KEY (nick) REFERENCES t (nick)"""
TO_INNER = """CREATE TABLE t AS SELECT r.id, c.nick FROM remark r JOIN customer c ON c.id = r.customer; ALTER TABLE t ADD PRIMARY KEY (id);
    ALTER TABLE visit ADD FOREIGN KEY (remark) REFERENCES t"""
TO_GROUP = """CREATE TABLE t AS SELECT left(city, 6) AS city, count(*) AS n FROM customer GROUP BY 1; ALTER TABLE t ADD PRIMARY KEY (city);
    ALTER TABLE visit ADD FOREIGN KEY (city) REFERENCES t"""
TO_SUM = """CREATE TABLE t AS SELECT left(city, 6) AS city, sum(id) AS ids FROM customer GROUP BY 1; ALTER TABLE t ADD UNIQUE (ids);
    ALTER TABLE visit ADD FOREIGN KEY (ids) REFERENCES t (ids)"""
BETWEEN = """CREATE TABLE t AS SELECT left(city, 6) AS city, count(*) AS n FROM customer GROUP BY 1; ALTER TABLE t ADD PRIMARY KEY (city);
    CREATE TABLE u AS SELECT v.id, v.city, c.nick FROM visit v JOIN customer c ON c.id = v.remark; ALTER TABLE u ADD FOREIGN KEY (city) REFERENCES t"""


@pytest.fixture
def visits(customers):
    customers.execute("""
        CREATE TABLE town (id bigint PRIMARY KEY, name text); INSERT INTO town SELECT i, 'town ' || i FROM generate_series(1, 9) i WHERE i <> 3;
        CREATE TABLE remark (id int PRIMARY KEY, customer int NOT NULL, who text); INSERT INTO remark SELECT i, i, 'who' FROM generate_series(1, 9) i;
        INSERT INTO remark VALUES (11, 5000, 'x');
        CREATE TABLE visit (id int PRIMARY KEY, remark int, nick text, city text, ids bigint);
        INSERT INTO visit SELECT i, i, 'nick ' || i, 'city ' || i, 49500 + 100 * i FROM generate_series(1, 8) i; INSERT INTO visit VALUES (9, NULL, 'none of 11');
        CREATE INDEX ON remark (customer); CREATE INDEX ON visit (remark); CREATE INDEX ON visit (nick); CREATE INDEX ON visit (city); CREATE INDEX ON visit (ids);
        CREATE INDEX ON customer ((left(city, 6)))""")
    return customers


BAD = {
    "a row of a join that refers to nothing": (JOINED, "UPDATE customer SET ssn = repeat('s', 50) WHERE id = 8"),
    "a row of a join that came": (JOINED, "UPDATE customer SET ssn = repeat('s', 50) WHERE id = 80; INSERT INTO remark VALUES (10, 80)"),
    "a row of a join whose row is gone": (JOINED, "DELETE FROM town WHERE id = 2"),
    "a row that comes because another is gone": (LACKING, "DELETE FROM customer WHERE id = 8"),
    "a group that refers to nothing": (GROUPED, "UPDATE customer SET ssn = repeat('s', 50) WHERE id = 8"),
    "a group that came": (GROUPED, "INSERT INTO customer VALUES (2000, 'x', 'sss', 'x', 'new')"),
    "a group that lost rows": (GROUPED, "DELETE FROM customer WHERE city LIKE 'city 4%' AND id > 99"),
    "a group whose row is gone": (GROUPED, "DELETE FROM town WHERE id = 5"),
    "a row of a join that is referred to and lost the other": (TO_INNER, "DELETE FROM customer WHERE id = 8"),
    "a row of a join that is referred to and gone": (TO_INNER, "DELETE FROM remark WHERE id = 8"),
    "another table's row that refers to no row of a join": (TO_INNER, "UPDATE visit SET remark = 11 WHERE id = 8"),
    "a row of a join that is referred to and has another key": (TO_JOIN, "UPDATE customer SET nick = 'x' WHERE id = 8"),
    "a row of a join that is referred to and has another key because one came": (TO_JOIN, "INSERT INTO customer VALUES (5000, 'x', 's', 'x')"),
    "a group that is referred to and gone": (TO_GROUP, "DELETE FROM customer WHERE city LIKE 'city 3%'"),
    "a group that is referred to and has another name": (TO_GROUP, "UPDATE customer SET city = 'x' WHERE city LIKE 'city 3%'"),
    "another table's row that refers to no group": (TO_GROUP, "INSERT INTO visit (id, city) VALUES (10, 'x')"),
    "a group that is referred to and has another key": (TO_SUM, "INSERT INTO customer VALUES (2000, 'x', 's', 'x', 'city 3')"),
    "a row of a join that refers to a group that is gone": (BETWEEN, "DELETE FROM customer WHERE city LIKE 'city 3%' AND id > 10; UPDATE customer SET city = 'x' WHERE id = 3"),
    "a row of a join that refers to no group": (BETWEEN, "UPDATE visit SET city = 'x' WHERE id = 4"),
}


def is_found(database, connection, what):
    definition, write = BAD[what]
    switching = Switching(database, definition)
    connection.execute(write)
    error = switching.answer()
    assert error == "" or "rows would violate the foreign key" in error
    return error != ""


@pytest.mark.parametrize("what", BAD)
def test_what_comes_to_refer_to_nothing_meanwhile_is_found(database, visits, what):
    assert is_found(database, visits, what)
    assert visits.execute("SELECT count(*) FROM bullfrog.migration").fetchone() == (0,)


@pytest.mark.parametrize("what", BAD)
def test_granules_that_are_too_many_to_be_named_are_looked_at_all(database, visits, what):
    visits.execute("CREATE OR REPLACE FUNCTION bullfrog.most_places() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0'")
    assert is_found(database, visits, what)


@pytest.mark.parametrize("what", BAD)
def test_it_is_found_before_the_lock_where_it_was_written_before(database, visits, what):
    definition, write = BAD[what]
    visits.execute(write)
    reader = database.connect()
    reader.execute("BEGIN; SELECT FROM customer LIMIT 1")
    visits.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="rows would violate the foreign key"):
        migrate(visits, definition)


GOOD = {
    "rows of a join are changed": (JOINED, "UPDATE customer SET ssn = repeat('s', 5) WHERE id = 8; INSERT INTO remark VALUES (10, 7); DELETE FROM town WHERE id = 9"),
    "a row that is referred to is gone and there again": (JOINED, "DELETE FROM town WHERE id = 2; INSERT INTO town VALUES (2)"),
    "rows come because others are gone": (LACKING, "UPDATE remark SET who = 'four' WHERE id = 8; DELETE FROM customer WHERE id = 8"),
    "groups are changed": (GROUPED, "UPDATE customer SET ssn = repeat('s', 9) WHERE id = 8; DELETE FROM customer WHERE city LIKE 'city 4%'"),
    "rows of a join to which nobody refers are gone": (TO_INNER, "DELETE FROM customer WHERE id = 9"),
    "rows of a join are written and the same": (TO_JOIN, "UPDATE customer SET name = 'x'; UPDATE remark SET who = 'x'"),
    "rows of a join exchange keys": (TO_JOIN, "UPDATE customer SET nick = CASE id WHEN 7 THEN 'nick 8' ELSE 'nick 7' END WHERE id IN (7, 8)"),
    "who refers is gone, too": (TO_JOIN, "INSERT INTO customer VALUES (5000, 'x', 's', 'x'); DELETE FROM visit WHERE id = 9"),
    "a group that is referred to has lost a row": (TO_GROUP, "DELETE FROM customer WHERE id = 3; DELETE FROM customer WHERE city LIKE 'city 9%'"),
    "a group has the key that another had": (TO_SUM, "UPDATE customer SET city = 'new' WHERE city LIKE 'city 3%'"),
    "both are changed": (BETWEEN, "UPDATE customer SET city = 'x' WHERE city LIKE 'city 3%'; UPDATE visit SET city = 'x' WHERE id = 3"),
}


@pytest.mark.parametrize("what", GOOD)
def test_what_refers_to_something_in_the_end_is_fine(database, visits, what):
    definition, write = GOOD[what]
    switching = Switching(database, definition)
    visits.execute(write)
    visits.execute(f"CREATE TABLE expected AS {definition.split(';')[0].split(' AS ', 1)[1]}")
    assert switching.answer() == ""
    same = "SELECT (SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE expected) d), (SELECT count(*) FROM (TABLE expected EXCEPT ALL TABLE t) d)"
    assert visits.execute(same).fetchone() == (0, 0)
    visits.execute("SELECT bullfrog.finish('m')")
    assert visits.execute(same).fetchone() == (0, 0)


UNNOTICED = {
    "a row of a join that came": "written_forgotten",
    "a group that came": "written_forgotten",
    "a group that is referred to and has another key": "written_forgotten",
    "a row of a join that is referred to and has another key because one came": "written_forgotten",
    "a row that comes because another is gone": "gone_forgotten",
    "a group that lost rows": "gone_forgotten",
    "a row of a join that is referred to and gone": "gone_forgotten",
    "a group that is referred to and gone": "gone_forgotten",
}


@pytest.mark.parametrize("what", UNNOTICED)
def test_behind_the_lock_only_what_has_changed_is_looked_at(server, database, visits, what):
    with setting(server, "bullfrog.flaw", UNNOTICED[what]):
        assert not is_found(database, visits, what)
