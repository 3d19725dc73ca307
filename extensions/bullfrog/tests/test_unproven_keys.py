"""Keys that nothing proves, of groups and joins, too, and those whose rows go to quarantine, are looked at before the switch; behind the lock only what was
written, or is gone, since."""

import contextlib
import random

import psycopg
import pytest

from conftest import migrate, require_icu, setting
from switching import Switching

# The ids of city 1 to 9 add up to 49500 + 100 of these, those of city 0 to 50500.
GROUPED = "CREATE TABLE t AS SELECT left(city, 6) AS city, sum(id) AS ids FROM customer GROUP BY 1; ALTER TABLE t ADD UNIQUE (ids)"
JOINED = "CREATE TABLE t AS SELECT r.id, c.nick FROM remark r JOIN customer c ON c.id = r.customer; ALTER TABLE t ADD UNIQUE (nick)"
DRIVEN = JOINED, ", driving => '{customer}'"
OUTER = JOINED.replace("JOIN", "LEFT JOIN")
# 36 of who 0, 54 of who 1, 30 of who 2.
SUMMED = """CREATE TABLE t AS SELECT r.who, sum(length(c.ssn) * r.id) AS n FROM remark r JOIN customer c ON c.id = r.customer GROUP BY r.who;
    CREATE UNIQUE INDEX ON t (n) WHERE n > 0"""
LONELY = "CREATE TABLE t AS SELECT r.id, r.who FROM remark r LEFT JOIN customer c ON c.id = r.customer WHERE c.id IS NULL; ALTER TABLE t ADD UNIQUE (who)"
SELF = "CREATE TABLE t AS SELECT a.id, b.nick FROM customer a JOIN customer b ON b.id = a.id + 1; ALTER TABLE t ADD PRIMARY KEY (id); "
SELVES = SELF + "ALTER TABLE t ADD UNIQUE (nick)"


@pytest.fixture
def remarks(customers):
    """Some customers have a remark each."""
    customers.execute("""CREATE TABLE remark (id int PRIMARY KEY, customer int NOT NULL, who text);
        INSERT INTO remark SELECT i, i, 'who ' || i % 3 FROM generate_series(1, 10) i; CREATE INDEX ON remark (customer); CREATE INDEX ON remark (who);
        CREATE INDEX ON customer ((left(city, 6)))""")
    return customers


def switching_to(database, definition):
    definition, options = definition if isinstance(definition, tuple) else (definition, "")
    return Switching(database, definition, options=options)


BAD = {
    "a group that comes to have another's key": (GROUPED, "UPDATE customer SET id = 1099 WHERE id = 999"),
    "a group that lost a row": (GROUPED, "DELETE FROM customer WHERE id = 100"),
    "a group that came": (GROUPED, "INSERT INTO customer VALUES (49600, 'x', 's', 'x', 'new')"),
    "two groups that came": (GROUPED, "INSERT INTO customer VALUES (7000, 'x', 's', 'x', 'new'), (6000, 'x', 's', 'x', 'newer'), (1001, 'x', 's', 'x', 'newer'),"
        "(-1, 'x', 's', 'x', 'newer')"),
    "a group of NULL": (GROUPED, "INSERT INTO customer VALUES (49600, 'x', 's', 'x', NULL)"),
    "a row of a join that comes to have another's key": (JOINED, "UPDATE customer SET nick = 'nick 7' WHERE id = 8"),
    "a row of a join that came": (JOINED, "INSERT INTO remark VALUES (11, 8)"),
    "a row of a join that is joined with another": (JOINED, "UPDATE remark SET customer = 7 WHERE id = 8"),
    "a row that comes to give two of a join": (DRIVEN, "INSERT INTO remark VALUES (11, 8)"),
    "a row that came and gives two of a join": (DRIVEN, "INSERT INTO customer VALUES (1001, 'x', 's', 'new'); INSERT INTO remark VALUES (11, 1001), (12, 1001)"),
    "a row of an outer join": (OUTER, "UPDATE customer SET nick = 'nick 7' WHERE id = 8"),
    "a group of a join": (SUMMED, "UPDATE customer SET ssn = 'sssss' WHERE id = 2"),
    "a row of a join that comes because another is gone": (LONELY, "DELETE FROM customer WHERE id IN (4, 7)"),
    "a row that is joined with one of its own table": (SELVES, "UPDATE customer SET nick = 'nick 7' WHERE id = 9"),
}


def is_found(database, connection, what):
    definition, write = BAD[what]
    switching = switching_to(database, definition)
    connection.execute(write)
    error = switching.answer()
    assert error == "" or "rows would violate the unique index" in error
    return error != ""


@pytest.mark.parametrize("what", BAD)
def test_a_key_that_is_there_twice_by_what_is_written_meanwhile_is_found(database, remarks, what):
    assert is_found(database, remarks, what)
    assert remarks.execute("SELECT count(*) FROM bullfrog.migration").fetchone() == (0,)


@pytest.mark.parametrize("what", BAD)
def test_granules_that_are_too_many_to_be_named_are_looked_at_all(database, remarks, what):
    remarks.execute("CREATE OR REPLACE FUNCTION bullfrog.most_places() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0'")
    assert is_found(database, remarks, what)


@pytest.mark.parametrize("what", BAD)
def test_granules_that_are_dearer_to_be_found_than_to_be_read_are_looked_at_all(database, remarks, what):
    remarks.execute("CREATE OR REPLACE FUNCTION bullfrog.least_cost() RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT 0.0::float8'")
    remarks.execute("""CREATE OR REPLACE FUNCTION bullfrog.cost(target bullfrog.target, transformed text) RETURNS float8
        LANGUAGE sql IMMUTABLE AS 'SELECT CASE WHEN transformed LIKE ''(SELECT DISTINCT %'' THEN 2.0 ELSE 1.0 END'""")
    assert is_found(database, remarks, what)


@pytest.mark.parametrize("what", BAD)
def test_it_is_found_before_the_lock_where_it_was_written_before(database, remarks, what):
    (definition, write), options = BAD[what], ""
    if isinstance(definition, tuple):
        definition, options = definition
    remarks.execute(write)
    reader = database.connect()
    reader.execute("BEGIN; SELECT FROM customer LIMIT 1")
    remarks.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="rows would violate the unique index"):
        migrate(remarks, definition, options=options)


GOOD = {
    "groups exchange keys": (GROUPED, "UPDATE customer SET city = CASE left(city, 6) WHEN 'city 1' THEN 'city 2' ELSE 'city 1' END WHERE left(city, 6) IN ('city 1', 'city 2')"),
    "a group has the key of one that is gone": (GROUPED, "UPDATE customer SET city = 'new' WHERE city LIKE 'city 1%'"),
    "a group is changed": (GROUPED, "UPDATE customer SET id = 3000 WHERE id = 8"),
    "a group is written and the same": (GROUPED, "UPDATE customer SET nick = 'x' WHERE id = 8"),
    "a group came and is gone": (GROUPED, "INSERT INTO customer VALUES (49600, 'x', 's', 'x', 'new'); DELETE FROM customer WHERE city = 'new'"),
    "groups have no key": (GROUPED.replace("sum(id)", "nullif(sum(id), 0)"), "INSERT INTO customer VALUES (5001, 'x', 's', 'x', 'new'), (-5001, 'x', 's', 'x', 'new'),"
        "(5002, 'x', 's', 'x', 'newer'), (-5002, 'x', 's', 'x', 'newer')"),
    "all groups are written": (GROUPED, "UPDATE customer SET name = 'x'"),
    "rows of a join exchange keys": (JOINED, "UPDATE remark SET customer = CASE customer WHEN 7 THEN 8 ELSE 7 END WHERE customer IN (7, 8)"),
    "a row of a join has the key of one that is gone": (JOINED, "DELETE FROM remark WHERE id = 8; INSERT INTO remark VALUES (11, 8)"),
    "a row of a join is written and the same": (JOINED, "UPDATE customer SET name = 'x' WHERE id = 8; UPDATE remark SET who = 'x' WHERE id = 8"),
    "a row gives two of a join and then one": (DRIVEN, "INSERT INTO remark VALUES (11, 8); DELETE FROM remark WHERE id = 8"),
    "rows of an outer join have no key": (OUTER, "DELETE FROM customer WHERE id IN (7, 8)"),
    "a group of a join has the key that another had": (SUMMED, "UPDATE customer SET ssn = repeat('s', 600) WHERE id = 8; DELETE FROM remark WHERE id = 3"),
    "rows of a join come because others are gone": (LONELY, "DELETE FROM customer WHERE id IN (4, 8)"),
    "rows are joined with their own table": (SELVES, "UPDATE customer SET nick = CASE id WHEN 7 THEN 'nick 8' ELSE 'nick 7' END WHERE id IN (7, 8)"),
}


def is_taken(database, connection, what):
    definition, write = GOOD[what]
    switching = switching_to(database, definition)
    connection.execute(write)
    connection.execute(f"CREATE TABLE expected AS {(definition if isinstance(definition, str) else definition[0]).split(';')[0].split(' AS ', 1)[1]}")
    error = switching.answer()
    assert error == "" or "rows would violate the unique index" in error
    return error == ""


@pytest.mark.parametrize("what", GOOD)
def test_keys_that_differ_in_the_end_are_fine(database, remarks, what):
    assert is_taken(database, remarks, what)
    same = "SELECT (SELECT count(*) FROM (TABLE t EXCEPT ALL TABLE expected) d), (SELECT count(*) FROM (TABLE expected EXCEPT ALL TABLE t) d)"
    assert remarks.execute(same).fetchone() == (0, 0)
    left = "SELECT relname FROM pg_class WHERE relname SIMILAR TO '(keys|doubles|members)_%' AND relname NOT IN (SELECT 'members_' || id FROM bullfrog.target WHERE granule = 'group')"
    assert remarks.execute(left).fetchall() == []
    remarks.execute("SELECT bullfrog.finish('m')")
    assert remarks.execute(same).fetchone() == (0, 0)


def test_group_keys_that_are_equal_and_not_the_same_are_one_group(database, customers):
    customers.execute("CREATE TABLE price (id int PRIMARY KEY, amount numeric); INSERT INTO price VALUES (1, 1.0), (2, 2.0), (3, 2.00); CREATE INDEX ON price (amount)")
    switching = Switching(database, "CREATE TABLE t AS SELECT amount, max(id) AS last FROM price GROUP BY amount; ALTER TABLE t ADD UNIQUE (last)", reads="price")
    customers.execute("UPDATE price SET amount = 1.00 WHERE id = 2; INSERT INTO price VALUES (4, 1.000), (5, 2.0000)")
    assert switching.answer() == ""
    assert customers.execute("SELECT amount::int, last FROM t ORDER BY 1").fetchall() == [(1, 4), (2, 5)]


LOOSE = "CREATE TABLE t AS SELECT id, nick FROM customer; CREATE UNIQUE INDEX ON t (nick COLLATE loose)"


@pytest.mark.parametrize("options", ["", ", checks => 'quarantine'"])
@pytest.mark.parametrize("is_before", [True, False])
def test_keys_are_compared_as_their_index_compares_them(database, customers, is_before, options):
    require_icu(customers)
    customers.execute("CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    write = "UPDATE customer SET nick = 'NICK 7' WHERE id = 8"
    if is_before:
        customers.execute(write)
        # Its answer comes at once, if it is refused.
        try:
            migrate(customers, LOOSE, options=options)
            error = ""
        except psycopg.errors.IntegrityConstraintViolation as refused:
            error = str(refused)
    else:
        switching = Switching(database, LOOSE, options=options)
        customers.execute(write)
        error = switching.answer()
    if options:
        assert error == "" and customers.execute("SELECT count(*) FROM bullfrog.quarantined").fetchone() == (1,)
    else:
        assert "rows would violate the unique index" in error


@contextlib.contextmanager
def flawed(server, flaw):
    with setting(server, "bullfrog.flaw", flaw) if flaw else contextlib.nullcontext():
        yield


@pytest.mark.parametrize("flaw", ["gone_forgotten", "written_forgotten"])
@pytest.mark.parametrize("what", ["a group that lost a row", "a row of a join that came", "a row of a join that comes because another is gone", "a group that came"])
def test_behind_the_lock_only_what_has_changed_is_looked_at(server, database, remarks, what, flaw):
    is_of_gone = "DELETE" in BAD[what][1]
    with flawed(server, flaw):
        assert is_found(database, remarks, what) == (is_of_gone != (flaw == "gone_forgotten"))


def break_function(connection, name, before, after):
    """Has a function do something else."""
    text = connection.execute("SELECT pg_get_functiondef(%s::regproc)", (f"bullfrog.{name}",)).fetchone()[0]
    assert text.count(before) == 1
    connection.execute(text.replace(before, after))


def test_keys_that_are_not_taken_back_are_noticed(database, remarks):
    break_function(remarks, "renew_keys", "DELETE FROM bullfrog.keys_%s t USING %s WHERE %s", "DELETE FROM bullfrog.keys_%s t USING %s WHERE false AND %s")
    assert not is_taken(database, remarks, "a group has the key of one that is gone")


def test_keys_that_are_not_added_are_noticed(database, remarks):
    break_function(remarks, "renew_keys", "PERFORM bullfrog.add_keys(target, index, transformed)", "NULL")
    assert not is_found(database, remarks, "a row of a join that came")


LEFT_OUT = ", checks => 'quarantine'"
QUARANTINE = "CREATE TABLE t AS SELECT id, nick, left(ssn, 3) AS short, city FROM customer; ALTER TABLE t ADD UNIQUE (nick), ADD UNIQUE (short), ADD CHECK (city <> 'bad')"
SETTLED = "UPDATE customer SET ssn = id::text || 'x' WHERE id < 100; UPDATE customer SET ssn = NULL WHERE id >= 100; "
ASIDE = {
    "nothing is written": ("UPDATE customer SET nick = 'nick 7' WHERE id IN (3, 8)", "SELECT"),
    "a key comes": ("SELECT", "UPDATE customer SET nick = 'nick 7' WHERE id = 8"),
    "the first is gone": ("UPDATE customer SET nick = 'nick 7' WHERE id IN (8, 9)", "DELETE FROM customer WHERE id = 7"),
    "the first is written": ("UPDATE customer SET nick = 'nick 7' WHERE id IN (8, 9)", "UPDATE customer SET name = 'x' WHERE id = 7"),
    "a key differs": ("UPDATE customer SET nick = 'nick 7' WHERE id = 8", "UPDATE customer SET nick = 'nick 8' WHERE id = 8"),
    "keys are exchanged": ("SELECT", "UPDATE customer SET nick = CASE id WHEN 7 THEN 'nick 8' ELSE 'nick 7' END WHERE id IN (7, 8)"),
    "the first is bad": ("UPDATE customer SET nick = 'nick 7' WHERE id IN (8, 9)", "UPDATE customer SET city = 'bad' WHERE id = 7"),
    "the first is good again": ("UPDATE customer SET city = 'bad' WHERE id = 7; UPDATE customer SET nick = 'nick 7' WHERE id = 8", "UPDATE customer SET city = 'x' WHERE id = 7"),
    "a row that is left out for one key has another": ("UPDATE customer SET nick = 'nick 7' WHERE id = 8", "UPDATE customer SET ssn = '8x' WHERE id IN (9, 10)"),
    "all rows are written": ("UPDATE customer SET nick = 'nick 7' WHERE id = 8", "UPDATE customer SET name = 'x'"),
    "very many are": ("UPDATE customer SET nick = 'nick 7' WHERE id = 8", "INSERT INTO customer SELECT i, 'x', NULL, 'nick ' || i - 1 FROM generate_series(1001, 102001) i"),
    "keys are left out": ("UPDATE customer SET nick = 'nick 7' WHERE id = 8", "UPDATE customer SET nick = NULL WHERE id IN (7, 9)"),
}
OUTCOME = "SELECT new_table, place, violates, content FROM bullfrog.quarantined ORDER BY 1, 2"


def aside(database, connection, meanwhile, definition=QUARANTINE):
    """What is put aside when this is written before the lock, and what would be if all was looked at behind it."""
    switching = Switching(database, definition, options=LEFT_OUT)
    connection.execute(meanwhile)
    assert switching.answer() == ""
    found = connection.execute(OUTCOME).fetchall()
    assert connection.execute("SELECT relname FROM pg_class WHERE relname SIMILAR TO '(keys|doubles|orphans)_%'").fetchall() == []
    connection.execute("SELECT bullfrog.abort('m')")
    connection.execute("""
        CREATE OR REPLACE FUNCTION bullfrog.is_seen_ahead(target bullfrog.target, checks text, burden jsonb) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT false';
        CREATE OR REPLACE FUNCTION bullfrog.references_ahead(migration_id int, definition text, checks text, burdens jsonb) RETURNS SETOF jsonb LANGUAGE sql STABLE AS 'SELECT NULL::jsonb WHERE false'""")
    migrate(connection, definition, options=LEFT_OUT)
    return found, connection.execute(OUTCOME).fetchall()


@pytest.mark.parametrize("what", ASIDE)
def test_of_rows_that_have_one_key_those_are_put_aside_that_would_be_behind_the_lock(database, customers, what):
    before, meanwhile = ASIDE[what]
    customers.execute(SETTLED + before)
    found, expected = aside(database, customers, meanwhile)
    assert found == expected and (found or what in ("a key differs", "keys are exchanged", "keys are left out"))


REFERRING = """
    CREATE TABLE p AS SELECT id, nick, city FROM customer; ALTER TABLE p ADD PRIMARY KEY (id); ALTER TABLE p ADD UNIQUE (nick), ADD CHECK (city <> 'bad');
    CREATE TABLE c AS SELECT id, customer, town FROM visit; ALTER TABLE c ADD PRIMARY KEY (id); ALTER TABLE c ADD UNIQUE (customer, town);
    ALTER TABLE c ADD FOREIGN KEY (customer) REFERENCES p; ALTER TABLE c ADD FOREIGN KEY (town) REFERENCES town;
    CREATE TABLE g AS SELECT id, visit FROM photo; ALTER TABLE g ADD FOREIGN KEY (visit) REFERENCES c"""
VISITS = """
    CREATE TABLE town (id int PRIMARY KEY); INSERT INTO town SELECT generate_series(1, 20);
    CREATE TABLE visit (id int PRIMARY KEY, customer int{}, town int); INSERT INTO visit SELECT i, i, i %% 20 + 1 FROM generate_series(1, 59) i;
    CREATE TABLE photo (id int PRIMARY KEY, visit int); INSERT INTO photo SELECT i, i FROM generate_series(1, 59) i;
    CREATE INDEX ON visit (customer); CREATE INDEX ON visit (town); CREATE INDEX ON photo (visit); """.replace("%%", "%")
KINDS = {
    "keys": (QUARANTINE, "SELECT; ", False),
    "foreign keys": (REFERRING, VISITS.format(""), True),
    "a foreign key that the old tables have": (REFERRING, VISITS.format(" REFERENCES customer ON DELETE CASCADE ON UPDATE CASCADE"), True),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_so_whatever_is_written(database, customers, kind, seed):
    chance = random.Random(seed)
    definition, setup, has_visits = KINDS[kind]
    is_proven = "REFERENCES customer" in setup

    def writes(count):
        for _ in range(count):
            row, other, town = chance.randrange(1, 60), chance.randrange(1, 60), chance.randrange(1, 22)
            choices = [f"UPDATE customer SET nick = 'nick {other}' WHERE id = {row}", f"UPDATE customer SET ssn = '{other}x' WHERE id = {row}",
                f"UPDATE customer SET city = 'bad' WHERE id = {row}", f"UPDATE customer SET city = 'x' WHERE id = {row}", f"DELETE FROM customer WHERE id = {row}",
                f"INSERT INTO customer VALUES ({row}, 'x', '{row}x', 'nick {other}', 'x') ON CONFLICT DO NOTHING", "SELECT count(*) FROM customer"]
            if has_visits:
                referring = f"SELECT {row}, {other}, {town}" + (f" WHERE EXISTS (SELECT FROM customer WHERE id = {other})" if is_proven else "")
                choices += [f"INSERT INTO visit {referring} ON CONFLICT (id) DO UPDATE SET customer = EXCLUDED.customer, town = EXCLUDED.town",
                    f"DELETE FROM visit WHERE id = {row}", f"UPDATE visit SET town = {town} WHERE id = {row}", f"DELETE FROM town WHERE id = {town}",
                    f"INSERT INTO town VALUES ({town}) ON CONFLICT DO NOTHING", f"UPDATE photo SET visit = {other} WHERE id = {row}"]
            yield chance.choice(choices)

    customers.execute(setup + SETTLED + "; ".join(writes(60)))
    found, expected = aside(database, customers, "; ".join(writes(40)), definition)
    assert found == expected and found
    customers.execute("SELECT bullfrog.finish('m')")


ORPHANS = {
    "a row that is written": "UPDATE visit SET town = 77 WHERE id = 8",
    "a row whose row is gone": "DELETE FROM town WHERE id = 4",
    "a row whose row goes to quarantine": "UPDATE customer SET nick = 'nick 7' WHERE id = 8",
    "a row whose row is bad": "UPDATE customer SET city = 'bad' WHERE id = 8",
}


@pytest.mark.parametrize("what", ORPHANS)
def test_rows_that_come_to_refer_to_nothing_go_to_quarantine(database, customers, what):
    customers.execute(VISITS.format("") + SETTLED)
    found, expected = aside(database, customers, ORPHANS[what], REFERRING)
    assert found == expected and any(violates.startswith("the foreign key") for _, _, violates, _ in found)


@pytest.mark.parametrize("flaw, what", [("written_forgotten", "a row that is written"), ("gone_forgotten", "a row whose row is gone")])
def test_with_a_quarantine_only_rows_that_may_refer_to_nothing_are_looked_at_behind_the_lock(server, database, customers, flaw, what):
    customers.execute(VISITS.format("") + SETTLED)
    with flawed(server, flaw):
        switching = Switching(database, REFERRING, options=LEFT_OUT)
        customers.execute(ORPHANS[what])
        assert switching.answer() == ""
    assert customers.execute("SELECT count(*) FROM bullfrog.quarantined").fetchone() == (0,)


def test_rows_that_refer_to_quarantine_and_are_not_looked_for_are_noticed(database, customers):
    break_function(customers, "referrers_to_quarantine", "HAVING count(*) > 0", "HAVING false")
    customers.execute(VISITS.format("") + SETTLED)
    found, expected = aside(database, customers, ORPHANS["a row whose row goes to quarantine"], REFERRING)
    assert found != expected


@pytest.mark.parametrize("flaw", [None, "written_forgotten"])
def test_with_a_quarantine_only_what_was_written_or_has_a_key_in_common_is_looked_at_behind_the_lock(server, database, customers, flaw):
    customers.execute(SETTLED)
    with flawed(server, flaw):
        switching = Switching(database, QUARANTINE, options=LEFT_OUT)
        customers.execute("UPDATE customer SET nick = 'nick 7' WHERE id = 8")
        assert switching.answer() == ""
    assert customers.execute("SELECT count(*) FROM bullfrog.quarantined").fetchone() == ((1,) if flaw is None else (0,))


def test_rows_that_had_a_key_in_common_and_are_not_compared_are_noticed(database, customers):
    break_function(customers, "begin_doubles", "WHERE n > 1", "WHERE n > 1000")
    customers.execute(SETTLED + ASIDE["nothing is written"][0])
    found, expected = aside(database, customers, "SELECT")
    assert found != expected


SELF_CHECK = SELF + "ALTER TABLE t ADD CHECK (nick <> 'bad')"


def test_of_a_table_that_is_joined_with_itself_each_row_is_looked_at_that_has_changed(database, customers):
    """Not only those of which the driving row has."""
    switching = Switching(database, SELF_CHECK)
    customers.execute("UPDATE customer SET nick = 'bad' WHERE id = 9")
    assert "rows would violate the check" in switching.answer()
