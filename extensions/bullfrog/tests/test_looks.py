"""What is looked at before the switch is not only rows that are moved one by one: foreign keys, groups and joins, of which rows may also be gone
by then; domains; and what a statement says beside a foreign key."""

import contextlib
import random
import threading
import time

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, answered, migrate, require_icu, setting
from server import wait_until
from switching import Switching

REFERRING = """CREATE TABLE t AS SELECT id, name, nick, length(ssn) AS town FROM customer; ALTER TABLE t ADD PRIMARY KEY (id);
    ALTER TABLE t ADD FOREIGN KEY (town) REFERENCES town"""
REFERRED = """CREATE TABLE t AS SELECT id, nick AS name FROM customer WHERE id <> 999; ALTER TABLE t ADD PRIMARY KEY (id);
    ALTER TABLE remark ADD FOREIGN KEY (customer) REFERENCES t"""
NAMED = "CREATE TABLE t AS SELECT id, nick FROM customer; ALTER TABLE t ADD PRIMARY KEY (id); ALTER TABLE t ADD FOREIGN KEY (nick) REFERENCES name"
PAIRED = "CREATE TABLE t AS SELECT id, length(ssn)::smallint AS a, id % 10 AS b FROM customer; ALTER TABLE t ADD FOREIGN KEY (a, b) REFERENCES pair"
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
        INSERT INTO remark SELECT i, i, 'who ' || i % 3 FROM generate_series(1, 10) i; CREATE INDEX ON remark (customer); CREATE INDEX ON remark (who);
        CREATE TABLE pair (a bigint, b numeric, c text, PRIMARY KEY (b, a), UNIQUE (a, b)); INSERT INTO pair SELECT a, b FROM generate_series(2, 5) a, generate_series(0, 9) b""")
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
    "a row whose row of two columns of other types is gone": (PAIRED.replace("REFERENCES pair", "REFERENCES pair (a, b)"), "DELETE FROM pair WHERE a = 3 AND b = 7",
        "the foreign key (a, b) of public.t"),
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


def test_a_row_whose_row_is_gone_that_was_equal_and_not_the_same(database, customers):
    require_icu(customers)
    customers.execute("""CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        CREATE TABLE name (nick text COLLATE loose PRIMARY KEY); INSERT INTO name SELECT upper(nick) FROM customer""")
    switching = Switching(database, NAMED)
    customers.execute("DELETE FROM name WHERE nick = 'nick 8'")
    assert "the foreign key (nick) of public.t" in switching.answer()


GOOD = {
    "rows that are referred to are changed": (REFERRING, "UPDATE town SET name = 'x'"),
    "a row that is referred to is gone and there again": (REFERRING, "DELETE FROM town WHERE id = 4; INSERT INTO town VALUES (4)"),
    "a row to which nobody refers is gone": (REFERRING, "DELETE FROM town WHERE id = 9"),
    "a row that is gone is there after all": (REFERRING, "BEGIN; DELETE FROM town; ROLLBACK"),
    "a row is locked": (REFERRING, "SELECT FROM town WHERE id = 4 FOR UPDATE"),
    "rows of two columns that are referred to are changed": (PAIRED.replace("REFERENCES pair", "REFERENCES pair (a, b)"), "UPDATE pair SET c = 'x'"),
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


FEW = [what for what in BAD if BAD[what][0] in (GROUPED, JOINED, INNER, SUMMED)]


@pytest.mark.parametrize("what", FEW)
def test_rows_that_are_too_many_to_be_named_are_looked_at_all(database, towns, what):
    definition, write, violates = BAD[what]
    towns.execute("CREATE OR REPLACE FUNCTION bullfrog.most_places() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0'")
    switching = Switching(database, definition)
    towns.execute(write)
    assert violates in switching.answer()


def test_a_row_that_very_many_are_joined_with_is_no_list_of_them(database, towns):
    towns.execute("INSERT INTO remark SELECT i, 8, 'who' FROM generate_series(11, 101000) i; ANALYZE remark")
    switching = Switching(database, INNER)
    towns.execute("UPDATE customer SET nick = 'another' WHERE id = 8")
    assert switching.answer() == ""
    assert towns.execute("SELECT count(*), min(part) FROM t").fetchone() == (101_000, 25)


def test_a_writer_who_takes_long_ends_the_rounds_and_not_the_switch(database, towns):
    """The one before the lock, here: he waits for nobody. He begins when the first look has begun, and that ends when he has written."""
    towns.execute("""CREATE FUNCTION gated(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN
            WHILE $1 = 8 AND NOT pg_try_advisory_lock_shared(8) LOOP
                PERFORM pg_sleep(0.01);
            END LOOP;
            RETURN $1;
        END $$""")
    session, writing, said = database.connect(), database.connect(), []
    session.add_notice_handler(lambda notice: said.append(notice.message_primary))
    patience = 3
    session.execute(f"SET lock_timeout = '{patience}s'")
    towns.execute("SELECT pg_advisory_lock(8)")
    session.pgconn.send_query(b"SELECT bullfrog.migrate('m', 'CREATE TABLE t AS SELECT id, gated(id) AS n FROM customer')")
    looks = f"SELECT wait_event FROM pg_stat_activity WHERE pid = {session.info.backend_pid}"
    wait_until(lambda: towns.execute(looks).fetchone() == ("PgSleep",), "it looks at the row")
    writing.execute("BEGIN; UPDATE customer SET nick = 'x' WHERE id = 8")
    # Too long a look for there to be no other round.
    time.sleep(0.1)
    towns.execute("SELECT pg_advisory_unlock(8)")
    began = time.monotonic()

    def is_about_to_switch():
        session.pgconn.consume_input()
        assert session.pgconn.is_busy(), session.pgconn.get_result().error_message.decode()
        return said == [f"tables are in use, trying again for {patience}s"] * 2

    wait_until(is_about_to_switch, "it waits for its lock")
    # It has told so before, and waited for him as long as it would for the lock.
    assert time.monotonic() - began > patience
    writing.execute("COMMIT")
    answered(session)
    assert towns.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS,)


RANDOM = """CREATE TABLE t AS SELECT id, nap(length(ssn)) AS town FROM customer; ALTER TABLE t ADD PRIMARY KEY (id);
    CREATE TABLE j AS SELECT c.id, m.name FROM customer c LEFT JOIN market m ON m.id = length(c.ssn); ALTER TABLE j ADD PRIMARY KEY (id);
    ALTER TABLE j ALTER name SET NOT NULL; ALTER TABLE t ADD FOREIGN KEY (town) REFERENCES town"""


@pytest.mark.long
def test_a_switch_under_random_writes_takes_no_row_that_refers_to_nothing(database, towns):
    towns.execute("CREATE FUNCTION nap(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM pg_sleep(0.0001); RETURN $1; END';"
        "CREATE TABLE market (id bigint PRIMARY KEY, name text); INSERT INTO market TABLE town")
    stop = threading.Event()

    def write(town):
        """A customer comes to a town of its own, and leaves it before, or after, it goes."""
        session, chance = database.connect(), random.Random(town)
        while not stop.is_set():
            end = [f"UPDATE customer SET ssn = 'four' WHERE id = {town}", f"DELETE FROM town WHERE id = {town}", f"DELETE FROM market WHERE id = {town}"]
            begin = [f"INSERT INTO {table} VALUES ({town}, 'x') ON CONFLICT DO NOTHING" for table in ("town", "market")]
            for statement in (*begin, f"UPDATE customer SET ssn = repeat('s', {town}) WHERE id = {town}",
                *(end if chance.random() < 0.7 else end[::-1])):
                try:
                    session.execute(statement)
                except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.IntegrityError, psycopg.errors.LockNotAvailable):
                    stop.wait(0.05)
                stop.wait(chance.random() / 20)

    writers = [threading.Thread(target=write, args=(town,)) for town in (50, 60, 70)]
    for writer in writers:
        writer.start()
    switched = 0
    try:
        for _ in range(100):
            try:
                migrate(towns, RANDOM)
            except (psycopg.errors.IntegrityConstraintViolation, psycopg.errors.LockNotAvailable):
                continue
            lost = "SELECT (SELECT count(*) FROM t WHERE NOT EXISTS (SELECT FROM town w WHERE w.id = t.town)), (SELECT count(*) FROM j WHERE name IS NULL)"
            assert towns.execute(lost).fetchone() == (0, 0)
            towns.execute("SELECT bullfrog.abort('m', discard_writes => true)")
            switched += 1
            if switched == 2:
                break
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert switched > 0


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


SMALL = """CREATE DOMAIN small AS int CHECK (VALUE <> 7000); CREATE TYPE pair2 AS (a small, b text);
    CREATE FUNCTION pairs(int) RETURNS pair2[] LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN ARRAY[ROW($1, NULL)::public.pair2]; END $$"""
VALUES = ["id::small", "pairs(id)", "(pairs(id))[1].b", "ROW(id, '')::pair2", "ARRAY[id]::small[]"]


@pytest.mark.parametrize("value", VALUES)
def test_a_domain_does_not_change_while_rows_are_looked_at(database, customers, value):
    customers.execute(SMALL)
    switching, changing = Switching(database, f"CREATE TABLE t AS SELECT id, {value} AS n FROM customer"), database.connect()
    changing.pgconn.send_query(b"ALTER DOMAIN small ADD CHECK (VALUE < 500)")
    wait_until(lambda: is_waiting(customers, changing), "who changes the domain waits")
    assert switching.answer() == ""
    # Where the new table has such a column the server itself may refuse it.
    error = changing.pgconn.get_result().error_message.decode()
    assert "this would change" in error or "cannot alter type" in error
    assert customers.execute("SELECT count(n) FROM t").fetchone() == (CUSTOMERS if ".b" not in value else 0,)


def is_waiting(watcher, session):
    return watcher.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)", (session.info.backend_pid,)).fetchone()[0]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("change", ["ADD CHECK (VALUE < 500)", "SET NOT NULL", "DROP CONSTRAINT small_check"])
def test_a_domain_does_not_change_while_rows_move(customers, value, change):
    customers.execute(SMALL)
    migrate(customers, f"CREATE TABLE t AS SELECT id, {value} AS n FROM customer")
    # Where the new table has such a column the server itself may refuse it.
    with pytest.raises((psycopg.errors.ObjectInUse, psycopg.errors.FeatureNotSupported)):
        customers.execute(f"ALTER DOMAIN small {change}")
    customers.execute("SELECT bullfrog.finish('m'); ALTER DOMAIN small DROP CONSTRAINT small_check")


CHANGES = {
    "a domain": ("id::small", "ALTER DOMAIN small ADD CHECK (VALUE < 500)", "ExclusiveLock on domain public.small"),
    "a domain, for rows to come": ("id::small", "ALTER DOMAIN small ADD CHECK (VALUE < 500) NOT VALID", "ExclusiveLock on domain public.small"),
    # Some servers have it wait before it comes to say whom for.
    "a domain in a row": ("pairs(id)", "ALTER DOMAIN small ADD CHECK (VALUE < 500)", None),
    "a function": ("judged(id)", "CREATE OR REPLACE FUNCTION judged(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1 / ($1 - 8); END'", None),
}


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_switch_waits_for_who_is_about_to_change_what_it_evaluates(database, customers, what, end):
    value, change, told = CHANGES[what]
    customers.execute(SMALL + "; CREATE FUNCTION judged(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'")
    changing = database.connect()
    changing.execute(f"BEGIN; {change}")
    switching, said = begin_to_switch(database, f"CREATE TABLE t AS SELECT id, {value} AS n FROM customer")
    assert told is None or f"Process {changing.info.backend_pid} " in said[0][1] and told in said[0][1]
    assert waits(customers) < 1.5
    changing.execute(end)
    result = switching.pgconn.get_result()
    while switching.pgconn.get_result():
        pass
    assert (result.error_message == b"") == (end == "ROLLBACK"), result.error_message
    if end == "ROLLBACK":
        assert customers.execute("SELECT count(n) FROM t").fetchone() == (CUSTOMERS,)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_switch_beside_a_live_table_waits_for_them_before_anybody_waits_for_it(database, customers, what, end):
    value, change, told = CHANGES[what]
    customers.execute(SMALL + "; CREATE FUNCTION judged(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'")
    changing = database.connect()
    changing.execute(f"BEGIN; {change}")
    switching, said = begin_to_switch(database, f"CREATE TABLE t AS SELECT id, {value} AS n FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)",
        ", live => '{customer}'")
    assert told is None or f"Process {changing.info.backend_pid} " in said[0][1] and told in said[0][1]
    # Neither do writers wait.
    customers.execute("SET lock_timeout = '1s'; UPDATE customer SET city = '' WHERE id = 1; RESET lock_timeout")
    changing.execute(end)
    result = switching.pgconn.get_result()
    while switching.pgconn.get_result():
        pass
    assert (result.error_message == b"") == (end == "ROLLBACK"), result.error_message


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_so_it_does_for_what_other_statements_evaluate(database, customers, end):
    customers.execute("CREATE FUNCTION judged(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'")
    changing = database.connect()
    changing.execute(f"BEGIN; {CHANGES['a function'][1]}")
    switching, _ = begin_to_switch(database, "CREATE TABLE t AS SELECT id FROM customer; ALTER TABLE t ADD PRIMARY KEY (id); ALTER TABLE t ADD CHECK (judged(id) > 0)",
        ", live => '{customer}'")
    customers.execute("SET lock_timeout = '1s'; UPDATE customer SET city = '' WHERE id = 1; RESET lock_timeout")
    changing.execute(end)
    result = switching.pgconn.get_result()
    while switching.pgconn.get_result():
        pass
    assert (result.error_message == b"") == (end == "ROLLBACK"), result.error_message


JUDGED = "CREATE FUNCTION judged(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END'"
STOPPED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stopped at switch: rows seen ahead' AND datname = current_database()"


def test_two_switches_evaluate_one_function_at_a_time(database, towns):
    towns.execute(JUDGED)
    looking, using = database.connect(), database.connect()
    looking.execute("SET bullfrog.stop_at = 'switch: rows seen ahead'")
    looking.pgconn.send_query(b"SELECT bullfrog.migrate('first', 'CREATE TABLE u AS SELECT id, judged(id) AS n FROM customer')")
    wait_until(lambda: towns.execute(STOPPED).fetchone() == (1,), "rows were looked at")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        towns.execute("SET lock_timeout = '10ms'; " + JUDGED.replace("CREATE", "CREATE OR REPLACE").replace("1", "2"))
    using.execute("BEGIN; SELECT FROM town")
    switching, said = begin_to_switch(database, "CREATE TABLE t AS SELECT id, judged(id::int) AS n FROM town")
    assert f"Process {using.info.backend_pid} " in said[0][1] and "function" not in said[0][1]
    using.execute("COMMIT")
    answered(switching)
    towns.execute("SELECT pg_terminate_backend(%s, 60000)", (looking.info.backend_pid,))


def begin_to_switch(database, definition, options=""):
    """A switch that is in somebody's way, or has somebody in its own, and has said who."""
    switching, watcher, said, began = database.connect(), database.connect(), [], time.monotonic()
    switching.add_notice_handler(lambda notice: said.append((notice.message_primary, notice.message_detail)))
    switching.execute("SET lock_timeout = '1min'")
    switching.pgconn.send_query(f"SELECT bullfrog.migrate('m', '{definition}'{options})".encode())

    def is_told():
        switching.pgconn.consume_input()
        assert switching.pgconn.is_busy(), switching.pgconn.get_result().error_message.decode()
        return said or time.monotonic() - began > 5 and is_waiting(watcher, switching)

    wait_until(is_told, "it is told who is in the way")
    return switching, said


def waits(connection):
    """How many seconds of three a reader of the old table waits for."""
    began = time.monotonic()
    waited = 0
    while time.monotonic() - began < 3:
        before = time.monotonic()
        connection.execute("SELECT FROM customer LIMIT 1")
        waited += time.monotonic() - before
        time.sleep(0.01)
    return waited


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
    switching, said = begin_to_switch(database, "CREATE TABLE t AS SELECT id, nick FROM customer", ", like => true")
    assert f"Process {changing.info.backend_pid} " in said[0][1] and "a change of rights on public.customer" in said[0][1]
    # Nobody waits with it.
    assert waits(clerk) < 1.5
    changing.execute(end)
    answered(switching)
    assert clerk.execute(may, ("t", "t")).fetchone() == (after if end == "COMMIT" else was)


def test_who_has_an_old_table_and_changes_rights_on_it_is_not_ended_by_a_switch_that_tries(database, clerk):
    """A try that had the row of the catalog would be in a circle with that one."""
    switching = Switching(database, "CREATE TABLE t AS SELECT id FROM customer", settings="SET deadlock_timeout = '5s'")
    # By now tries are long.
    time.sleep(2)
    switching.reader.execute("SET deadlock_timeout = '10ms'; GRANT SELECT ON customer TO clerk; GRANT UPDATE (nick) ON customer TO clerk")
    assert switching.answer() == ""
    assert clerk.execute("SELECT has_table_privilege('clerk', 'customer', 'SELECT')").fetchone() == (True,)


def test_a_right_that_changes_while_a_switch_waits_for_tables_is_waited_for(database, clerk):
    clerk.execute("GRANT SELECT ON customer TO clerk")
    changing = database.connect()
    switching = Switching(database, "CREATE TABLE t AS SELECT id FROM customer", options=", like => true", settings="SET deadlock_timeout = '5s'")
    # By now tries are long.
    time.sleep(2)
    changing.execute("BEGIN; REVOKE SELECT ON customer FROM clerk")
    switching.reader.execute("COMMIT")
    time.sleep(1)
    changing.execute("COMMIT")
    assert switching.answer() == ""
    assert clerk.execute("SELECT has_table_privilege('clerk', 't', 'SELECT')").fetchone() == (False,)


SLOW = "CREATE FUNCTION slow(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM pg_sleep(0.5); RETURN $1; END'"


def test_nor_is_who_creates_an_index(database, towns):
    """At its end it writes into the row of the table, to which a foreign key will refer."""
    towns.execute(SLOW)
    creating = database.connect()
    creating.execute("SET deadlock_timeout = '10ms'")
    creating.pgconn.send_query(b"CREATE INDEX by_slow ON town (slow(id))")
    wait_until(lambda: towns.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND relation = 'town'::regclass AND mode = 'ShareLock')",
        (creating.info.backend_pid,)).fetchone()[0], "it reads rows")
    towns.execute("SET lock_timeout = '1min'; SET deadlock_timeout = '5s'")
    migrate(towns, REFERRING, options=", checks => 'quarantine'")
    answered(creating)
    assert towns.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'by_slow'::regclass").fetchone() == (True,)


@pytest.mark.parametrize("way", ["finish", "abort"])
def test_an_end_waits_for_who_is_about_to_change_rights_on_a_new_table(database, clerk, way):
    migrate(clerk, SPLIT)
    changing, ending, said = database.connect(), database.connect(), []
    ending.add_notice_handler(lambda notice: said.append(notice.message_detail))
    changing.execute("BEGIN; GRANT SELECT ON customer_public TO clerk")
    ending.execute("SET lock_timeout = '1min'")
    ending.pgconn.send_query(f"SELECT bullfrog.{way}('m')".encode())

    def is_told():
        ending.pgconn.consume_input()
        assert ending.pgconn.is_busy(), ending.pgconn.get_result().error_message.decode()
        return any("a change of rights on public.customer_public" in (detail or "") for detail in said)

    wait_until(is_told, "the end waits for the right")
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


def test_partitions_that_a_new_table_refers_to_are_locked_together_with_the_old_ones(database, towns):
    towns.execute("CREATE TABLE place (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE place_1 PARTITION OF place FOR VALUES FROM (0) TO (100);"
        "INSERT INTO place SELECT generate_series(1, 9)")
    using = database.connect()
    using.execute("BEGIN; INSERT INTO place_1 VALUES (20)")
    towns.execute("SET lock_timeout = '10ms'")
    definition = REFERRING.replace("REFERENCES town", "REFERENCES place")
    with pytest.raises(psycopg.errors.LockNotAvailable, match="could not lock .*public.place_1"):
        migrate(towns, definition)
    using.execute("ROLLBACK")
    migrate(towns, definition)


def test_rows_that_row_security_hides_are_not_taken_for_gone_or_fine(database, towns):
    towns.execute("CREATE ROLE grocer; GRANT CREATE ON SCHEMA public TO grocer; GRANT SELECT, REFERENCES ON town TO grocer; ALTER TABLE customer OWNER TO grocer;"
        "ALTER TABLE town ENABLE ROW LEVEL SECURITY; CREATE POLICY large ON town USING (id > 4)")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            migrate(towns, REFERRING)
    finally:
        towns.execute("ALTER TABLE customer OWNER TO postgres; DROP OWNED BY grocer CASCADE; DROP ROLE grocer")
