"""The way back: what was written to new tables is carried back to the old ones, or the migration goes on."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, database_from, differing, migrate, moved, wait_until

RENAMED = "CREATE TABLE person AS SELECT id, name AS called, nick FROM customer; ALTER TABLE person ADD PRIMARY KEY (id)"


@pytest.mark.parametrize("options", ["", ", granularity => 'tuple'", ", granularity => 'tuple', moves => 'transaction'"])
def test_what_was_written_to_new_tables_is_in_the_old_one_after_abort(customers, options):
    migrate(customers, SPLIT, "split", options)
    customers.execute("""
        UPDATE customer_private SET name = 'new name' WHERE id = 10; UPDATE customer_public SET nick = 'new nick' WHERE id = 10;
        UPDATE customer_public SET nick = 'other nick' WHERE id = 700;
        DELETE FROM customer_private WHERE id = 500; DELETE FROM customer_public WHERE id = 500;
        INSERT INTO customer_private VALUES (5000, 'inserted', 's'); INSERT INTO customer_public VALUES (5000, 'inserted nick', NULL)""")
    customers.execute("SELECT bullfrog.abort('split')")
    changed = "SELECT id, name, ssn, nick, left(city, 6) FROM customer WHERE id IN (10, 700, 500, 5000) ORDER BY id"
    assert customers.execute(changed).fetchall() == [
        (10, "new name", "s10", "new nick", "city 0"), (700, "name 700", "s700", "other nick", "city 0"),
        (5000, "inserted", "s", "inserted nick", None)]
    assert customers.execute("SELECT count(*), count(DISTINCT id), count(city) FROM customer").fetchone() == (CUSTOMERS, CUSTOMERS,
        CUSTOMERS - 1)
    wait_until(lambda: customers.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (0,), "movers have forgotten what they moved")
    migrate(customers, SPLIT, "again")
    assert customers.execute("SELECT nick FROM customer_public WHERE id = 5000").fetchone() == ("inserted nick",)


def test_a_row_of_which_each_new_table_has_a_part_is_inserted_as_one(customers):
    customers.execute("ALTER TABLE customer ALTER nick SET NOT NULL; CREATE TABLE expected AS TABLE customer")
    migrate(customers, SPLIT, "split")
    customers.execute("INSERT INTO customer_private VALUES (5000, 'inserted', 's'); INSERT INTO customer_public VALUES (5000, 'nick', NULL)")
    customers.execute("SELECT bullfrog.abort('split'); INSERT INTO expected VALUES (5000, 'inserted', 's', 'nick', NULL)")
    assert differing(customers, "customer", "expected") == 0


def test_a_changed_key_is_another_row(customers):
    customers.execute("CREATE TABLE expected AS SELECT * FROM customer WHERE id <> 7")
    migrate(customers, RENAMED)
    customers.execute("UPDATE person SET id = 7777 WHERE id = 7; DELETE FROM person WHERE id = 7777")
    customers.execute("SELECT bullfrog.abort('m')")
    assert differing(customers, "customer", "expected") == 0


READINGS = "CREATE TABLE taken AS SELECT id, reading, note, access FROM measure; ALTER TABLE taken ADD PRIMARY KEY (id)"


@pytest.fixture
def readings(database):
    """A table with values that have no equality, or are not all that their text shows."""
    connection = database.connect()
    connection.execute("""
        CREATE TABLE measure (id int PRIMARY KEY, reading float8, note json, access aclitem[]);
        INSERT INTO measure SELECT i, 0.1, '{"a": 1}', '{=r/postgres}' FROM generate_series(1, 9) i""")
    # As many digits as a float8 surely has, not all that it may have.
    connection.execute("SET extra_float_digits = 0")
    return connection


@pytest.mark.parametrize("column, value", [
    ("reading", "'0.10000000000000002'::float8"), ("reading", "'-0'::float8"), ("reading", "NULL"),
    ("note", """'{"a":  1}'::json"""), ("note", "NULL"), ("access", "'{=w/postgres}'::aclitem[]")])
def test_a_write_that_is_hard_to_tell_is_carried_back(readings, column, value):
    readings.execute(f"UPDATE measure SET {column} = {'0' if '-0' in value else column} WHERE id = 7")
    migrate(readings, READINGS)
    readings.execute(f"UPDATE taken SET {column} = {value} WHERE id = 7")
    readings.execute("SELECT bullfrog.abort('m')")
    readings.execute("SET extra_float_digits = 1")
    found = readings.execute(f"SELECT {column}::text IS NOT DISTINCT FROM ({value})::text FROM measure WHERE id = 7").fetchone()
    assert found == (True,)
    assert readings.execute("SELECT count(*), count(DISTINCT id) FROM measure").fetchone() == (9, 9)


BY_TEXT = {"bullfrog.content(regclass)": ("record_send(ROW(%s))", "ROW(%s)::text"), "bullfrog.note_differences(bullfrog.source)": ("SET extra_float_digits TO '1'", "SET extra_float_digits TO '0'")}


@pytest.mark.parametrize("functions", [[function] for function in BY_TEXT] + [list(BY_TEXT)])
def test_a_comparison_by_text_is_noticed(readings, functions):
    """As a session may show values: the write of a digit that it does not show is lost. Either of the two functions is enough to find it."""
    for function in functions:
        found, broken = BY_TEXT[function]
        body = readings.execute("SELECT pg_get_functiondef(%s::regprocedure)", (function,)).fetchone()[0]
        assert found in body
        readings.execute(body.replace(found, broken), prepare=False)
    migrate(readings, READINGS)
    readings.execute("UPDATE taken SET reading = '0.10000000000000002' WHERE id = 7")
    readings.execute("SELECT bullfrog.abort('m')")
    assert readings.execute("SELECT count(*) FROM measure WHERE reading <> 0.1").fetchone() == (int(len(functions) == 1),)


def test_a_change_of_what_an_expression_gave_is_refused_however_small(readings):
    migrate(readings, "CREATE TABLE taken AS SELECT id, reading + 0 AS more FROM measure; ALTER TABLE taken ADD PRIMARY KEY (id)")
    readings.execute("UPDATE taken SET more = '0.10000000000000002' WHERE id = 7")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="carried back"):
        readings.execute("SELECT bullfrog.abort('m')")


def test_readers_go_on_while_rows_are_compared_and_carried_back(database, split):
    split.execute("UPDATE customer_private SET name = 'new name' WHERE id = 10")
    reader, aborting = database.connect(), database.connect()
    reader.execute("SET lock_timeout = '5s'")
    aborting.execute("SET bullfrog.stop_at = 'abort: writes carried back'")
    aborting.pgconn.send_query(b"SELECT bullfrog.abort('split')")
    stopped = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'stopped at abort: writes carried back'"
    wait_until(lambda: reader.execute(stopped).fetchone() == (1,), "the abort has compared rows")
    count = "SELECT count(*), count(*) FILTER (WHERE name = 'new name') FROM customer_private JOIN customer_public USING (id)"
    assert reader.execute(count).fetchone() == (CUSTOMERS, 1)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        reader.execute("SET lock_timeout = '50ms'; UPDATE customer_private SET name = 'lost' WHERE id = 11")
    split.execute("SELECT pg_terminate_backend(%s, 60000)", (aborting.info.backend_pid,))
    split.execute("SELECT bullfrog.abort('split')")
    assert split.execute("SELECT name FROM customer WHERE id IN (10, 11) ORDER BY id").fetchall() == [("new name",), ("name 11",)]


REFUSED = {
    "an expression was changed": (SPLIT, "UPDATE customer_public SET town = 'y' WHERE id = 2"),
    "a row is in one of two tables": (SPLIT, "DELETE FROM customer_public WHERE id = 2"),
    "an old column must have a value": (SPLIT, "INSERT INTO customer_public VALUES (5000, 'nick', NULL)"),
    "not all rows moved": ("CREATE TABLE person AS SELECT id, nick FROM customer WHERE id > 5; ALTER TABLE person ADD PRIMARY KEY (id)",
        "UPDATE person SET nick = 'x' WHERE id = 9"),
    "no key": ("CREATE TABLE person AS SELECT name, nick FROM customer", "UPDATE person SET nick = 'x' WHERE name = 'name 9'"),
    "a row is there twice": ("CREATE TABLE person AS SELECT id, name, nick FROM customer", "INSERT INTO person VALUES (9, 'nine', 'x')"),
    "groups": ("CREATE TABLE town AS SELECT city, count(*) AS customers FROM customer GROUP BY city",
        "UPDATE town SET customers = 0 WHERE city LIKE 'city 1%'"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_carried_back_is_refused_and_nothing_is_changed(customers, why):
    definition, write = REFUSED[why]
    migrate(customers, definition)
    customers.execute(write)
    count = moved(customers)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="carried back"):
        customers.execute("SELECT bullfrog.abort('m')")
    assert moved(customers) == count
    customers.execute("SELECT bullfrog.finish('m')")


@pytest.fixture
def deferring(database):
    """An owner's table with a constraint that is checked at the commit, by an expression that tells as whom it is evaluated."""
    connection = database.connect()
    connection.execute("DROP ROLE IF EXISTS deferrer; CREATE ROLE deferrer; GRANT CREATE ON SCHEMA public TO deferrer; SET ROLE deferrer")
    connection.execute("""
        CREATE FUNCTION slot(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
            $$ BEGIN RAISE NOTICE '%', current_user; RETURN $1 % 1000; END $$;
        CREATE TABLE booking (id int PRIMARY KEY, room int, EXCLUDE USING btree (slot(room) WITH =) DEFERRABLE INITIALLY DEFERRED);
        INSERT INTO booking VALUES (1, 1), (2, 2), (3, 3);
        RESET ROLE""")
    migrate(connection, "CREATE TABLE booked AS SELECT id, room FROM booking; ALTER TABLE booked ADD PRIMARY KEY (id)")
    yield connection
    connection.execute("SELECT bullfrog.abort('m', discard_writes => true) FROM bullfrog.progress")
    connection.execute("DROP OWNED BY deferrer; DROP ROLE deferrer")


def test_a_deferred_constraint_is_checked_with_the_owners_rights(deferring):
    deferring.execute("UPDATE booked SET room = 3 - room WHERE id < 3")
    evaluated = set()
    deferring.add_notice_handler(lambda notice: evaluated.add(notice.message_primary))
    deferring.execute("SELECT bullfrog.abort('m')")
    assert deferring.execute("SELECT * FROM booking ORDER BY id").fetchall() == [(1, 2), (2, 1), (3, 3)]
    assert evaluated == {"deferrer"}


def test_what_a_deferred_constraint_forbids_is_not_carried_back(deferring):
    deferring.execute("UPDATE booked SET room = 1003 WHERE id = 1")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="carried back") as error:
        deferring.execute("SELECT bullfrog.abort('m')")
    assert "exclusion constraint" in error.value.diag.message_detail


def test_a_write_that_was_not_carried_back_is_noticed(customers):
    """With the statement that carries updates back left out, abort does not succeed."""
    migrate(customers, RENAMED)
    customers.execute("UPDATE person SET nick = 'x' WHERE id = 9")
    body = customers.execute("SELECT pg_get_functiondef('bullfrog.carry_back'::regproc)").fetchone()[0]
    assert "columns.assigned IS NOT NULL" in body
    customers.execute(body.replace("columns.assigned IS NOT NULL", "false"), prepare=False)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="carried back"):
        customers.execute("SELECT bullfrog.abort('m')")


def test_migrations_in_two_databases_of_a_server_are_each_others_strangers(server, template, customers):
    with database_from(server, template, "neighbour") as neighbour:
        other = neighbour.connect()
        for connection in (customers, other):
            migrate(connection, SPLIT, "split")
        customers.execute("UPDATE customer_private SET name = 'here' WHERE id = 1")
        other.execute("UPDATE customer_private SET name = 'there' WHERE id = 1000")
        assert (moved(customers), moved(other)) == (1, 1)
        customers.execute("SELECT bullfrog.finish('split')")
        assert other.execute("SELECT count(*) FROM customer_private WHERE name LIKE 'name%'").fetchone() == (CUSTOMERS - 1,)
        with pytest.raises(psycopg.errors.ObjectInUse):
            other.execute("DROP EXTENSION bullfrog")
        customers.execute("DROP EXTENSION bullfrog CASCADE")
        assert customers.execute("SELECT count(*) FROM customer_private").fetchone() == (CUSTOMERS,)
        customers.execute("CREATE EXTENSION bullfrog; CREATE TABLE old AS SELECT id, name FROM customer_private")
        migrate(customers, "CREATE TABLE new AS SELECT id, name FROM old")
        assert customers.execute("UPDATE new SET name = 'again' WHERE id = 1").rowcount == 1
        other.execute("SELECT bullfrog.abort('split')")
        assert other.execute("SELECT name FROM customer WHERE id = 1000").fetchone() == ("there",)


TUPLES = ", granularity => 'tuple', moves => 'transaction'"


def test_what_the_transaction_itself_wrote_before_the_switch_stays(database):
    client = database.connect()
    client.execute("CREATE TABLE c (id int PRIMARY KEY, v text); INSERT INTO c SELECT i, 'v' || i FROM generate_series(1, 10) i")
    client.execute("BEGIN; INSERT INTO c SELECT i, 'own' || i FROM generate_series(11, 20) i; UPDATE c SET v = 'updated' WHERE id = 5")
    migrate(client, "CREATE TABLE n AS SELECT id, v FROM c; ALTER TABLE n ADD PRIMARY KEY (id)", "m", TUPLES)
    client.execute("UPDATE n SET v = 'changed' WHERE id = 1; INSERT INTO n VALUES (100, 'new'); SELECT bullfrog.abort('m'); COMMIT")
    rows = dict(client.execute("SELECT id, v FROM c").fetchall())
    assert rows == {i: f"v{i}" for i in range(1, 11)} | {i: f"own{i}" for i in range(11, 21)} | {1: "changed", 5: "updated", 100: "new"}


def test_what_the_server_asks_of_keys_it_asks_as_their_owner(database):
    client = database.connect()
    client.execute("""
        CREATE ROLE keeper; GRANT CREATE ON SCHEMA public TO keeper; SET ROLE keeper;
        CREATE TYPE span AS RANGE (subtype = int);
        CREATE TABLE c (id span PRIMARY KEY, v text); INSERT INTO c SELECT span(i, i + 1), 'v' || i FROM generate_series(1, 10) i; RESET ROLE""")
    migrate(client, "CREATE TABLE n AS SELECT id, v FROM c; ALTER TABLE n ADD PRIMARY KEY (id)", "m")
    client.execute("UPDATE n SET v = 'changed' WHERE id = span(3, 4)")
    client.execute("BEGIN; SELECT bullfrog.abort('m')")
    places = client.execute("""SELECT relname, relowner::regrole::text FROM pg_class
        WHERE relnamespace = 'bullfrog'::regnamespace AND relkind = 'r' AND relname ~ '^(due|inserted|written)_'""").fetchall()
    assert [owner for _, owner in places if owner != "keeper"] == []
    client.execute("COMMIT")
    assert client.execute("SELECT v FROM c WHERE id = span(3, 4)").fetchone() == ("changed",)
    client.execute("DROP OWNED BY keeper; DROP ROLE keeper")
