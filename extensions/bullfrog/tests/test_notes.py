"""Clients go on while abort compares rows: what they write meanwhile is noted, and compared when they stand still."""

import concurrent.futures
import random
import time

import psycopg
import pytest

from conftest import CUSTOMERS, answered, differing, migrate, wait_until

# What an expression evaluates while somebody has closed the gate waits.
GATE = """
    CREATE FUNCTION gated(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN PERFORM pg_advisory_lock_shared(7), pg_advisory_unlock_shared(7); RETURN $1; END $$"""
GATED = """
    CREATE TABLE customer_private AS SELECT id, name, ssn FROM customer;
    CREATE TABLE customer_public AS SELECT id, nick, public.gated(city) AS city FROM customer;
    ALTER TABLE customer_private ADD PRIMARY KEY (id);
    ALTER TABLE customer_public ADD PRIMARY KEY (id)"""
WAYS = ["", ", granularity => 'tuple'", ", granularity => 'tuple', moves => 'transaction'"]


class Gate:
    """Keeps an abort from comparing, or from locking, for a while."""

    def __init__(self, database):
        self.admin, self.keeper, self.aborting = database.connect(), database.connect(), database.connect()

    def close(self):
        self.keeper.execute("SELECT pg_advisory_lock(7)")

    def open(self):
        self.keeper.execute("SELECT pg_advisory_unlock(7)")

    def occupy(self):
        """Writers do not have to wait for this, but who locks against them does."""
        self.keeper.execute("BEGIN; LOCK TABLE customer_private IN ROW SHARE MODE")

    def leave(self):
        self.keeper.execute("COMMIT")

    def abort(self, name="m"):
        self.aborting.execute("SET lock_timeout = '30s'")
        self.aborting.pgconn.send_query(f"SELECT bullfrog.abort('{name}')".encode())

    def waits(self, mode):
        """The abort has come so far that it waits for a lock."""
        waits = "SELECT count(*) > 0 FROM pg_locks WHERE pid = %s AND mode = %s AND NOT granted"
        wait_until(lambda: self.admin.execute(waits, (self.aborting.info.backend_pid, mode)).fetchone()[0], f"abort waits for {mode}")

    def noted(self):
        """What clients wrote."""
        (source,) = self.admin.execute("SELECT min(id) FROM bullfrog.source").fetchone()
        return self.admin.execute(f"SELECT DISTINCT id FROM bullfrog.written_{source} ORDER BY id").fetchall()


@pytest.fixture
def gate(database):
    return Gate(database)


@pytest.fixture
def gated(customers):
    customers.execute(GATE)
    customers.execute("CREATE TABLE expected AS TABLE customer")
    return customers


WRITES = """
    UPDATE {private} SET name = 'new name' WHERE id = 10;
    UPDATE {public} SET nick = 'new nick' WHERE id = 11;
    DELETE FROM {private} WHERE id = 12; DELETE FROM {public} WHERE id = 12;
    UPDATE {private} SET id = 5013 WHERE id = 13; UPDATE {public} SET id = 5013, city = NULL WHERE id = 13;
    INSERT INTO {private} VALUES (5000, 'inserted', 's'); INSERT INTO {public} VALUES (5000, 'nick');
    INSERT INTO {private} VALUES (14, 'by conflict') ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name"""
EXPECTED = """
    UPDATE expected SET name = 'new name' WHERE id = 10; UPDATE expected SET nick = 'new nick' WHERE id = 11;
    DELETE FROM expected WHERE id = 12; INSERT INTO expected VALUES (5000, 'inserted', 's', 'nick');
    UPDATE expected SET id = 5013, city = NULL WHERE id = 13; UPDATE expected SET name = 'by conflict' WHERE id = 14"""


def write(connection):
    connection.execute("SET lock_timeout = '5s'")
    connection.execute(WRITES.format(private="customer_private", public="customer_public"))


def abort_beside_writes(database, gate, customers, options=""):
    migrate(customers, GATED, options=options)
    customers.execute("UPDATE customer_private SET name = name WHERE id <= 100")
    gate.close()
    gate.abort()
    gate.waits("ShareLock")
    write(database.connect())
    replicating = database.connect()
    replicating.execute("SET session_replication_role = replica; UPDATE customer_private SET ssn = 'by a replica' WHERE id = 15")
    gate.open()
    answered(gate.aborting)


@pytest.mark.parametrize("options", WAYS)
def test_clients_write_while_abort_compares_and_none_of_it_is_lost(database, gate, gated, options):
    abort_beside_writes(database, gate, gated, options)
    gated.execute(EXPECTED)
    gated.execute("UPDATE expected SET ssn = 'by a replica' WHERE id = 15")
    assert differing(gated, "customer", "expected") == 0
    assert gated.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'written_%'").fetchone() == (0,)


FORGOTTEN = {
    "deletes": ("AFTER INSERT OR UPDATE OR DELETE", "AFTER INSERT OR UPDATE"),
    "updates": ("AFTER INSERT OR UPDATE OR DELETE", "AFTER INSERT OR DELETE"),
    "replicas": ("ENABLE ALWAYS TRIGGER bullfrog_note", "ENABLE TRIGGER bullfrog_note"),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_writes_that_are_not_noted_are_noticed(database, gate, gated, what):
    body = gated.execute("SELECT pg_get_functiondef('bullfrog.begin_notes'::regproc)").fetchone()[0]
    found, broken = FORGOTTEN[what]
    assert found in body
    gated.execute(body.replace(found, broken), prepare=False)
    abort_beside_writes(database, gate, gated)
    gated.execute(EXPECTED)
    gated.execute("UPDATE expected SET ssn = 'by a replica' WHERE id = 15")
    assert differing(gated, "customer", "expected") > 0


def test_that_writers_wait_for_all_of_the_comparison_is_noticed(database, gate, gated):
    """With nothing compared ahead, the tables are locked for all of it."""
    body = gated.execute("SELECT pg_get_functiondef('bullfrog.perform_abort'::regproc)").fetchone()[0]
    found = "standstill := bullfrog.compare_ahead(migration.id)"
    assert found in body
    gated.execute(body.replace(found, "standstill := 'broken'"), prepare=False)
    migrate(gated, GATED)
    gated.execute("UPDATE customer_private SET name = name WHERE id <= 100")
    gate.close()
    gate.abort()
    gate.waits("ShareLock")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        gated.execute("SET lock_timeout = '100ms'; UPDATE customer_private SET name = 'new name' WHERE id = 10")
    gate.open()
    answered(gate.aborting)


@pytest.mark.parametrize("end", ["SELECT bullfrog.abort('m', discard_writes => true)", "SELECT bullfrog.finish('m')"])
def test_nobody_ends_the_migration_while_an_abort_compares(database, gate, gated, end):
    migrate(gated, GATED)
    gated.execute("UPDATE customer_private SET name = 'new name' WHERE id = 10; SELECT FROM customer_public WHERE id = 10 FOR UPDATE")
    gate.close()
    gate.abort()
    gate.waits("ShareLock")
    other = database.connect()
    other.execute("SET lock_timeout = '10ms'")
    with pytest.raises((psycopg.errors.LockNotAvailable, psycopg.errors.ObjectInUse)):
        other.execute(end)
    gate.open()
    answered(gate.aborting)
    assert gated.execute("SELECT count(*), count(*) FILTER (WHERE name = 'new name') FROM customer").fetchone() == (CUSTOMERS, 1)


def test_notes_lie_in_a_heap_whatever_is_the_default_of_the_database(database, gate, gated):
    gated.execute("CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler")
    gated.execute(f'ALTER DATABASE "{database.name}" SET default_table_access_method = other')
    gated.execute("SET default_table_access_method = heap")
    migrate(gated, GATED)
    gated.execute("UPDATE customer_private SET name = 'new name' WHERE id = 10; SELECT FROM customer_public WHERE id = 10 FOR UPDATE")
    gate.close()
    gate.abort()
    gate.waits("ShareLock")
    used = "SELECT DISTINCT a.amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relname LIKE 'written%'"
    assert gated.execute(used).fetchall() == [("heap",)]
    gate.open()
    answered(gate.aborting)


@pytest.mark.parametrize("options", WAYS)
def test_who_stands_still_waits_for_what_was_written_only(database, gate, gated, options):
    migrate(gated, GATED, options=options)
    gated.execute("UPDATE customer_private SET name = name WHERE id <= 100; UPDATE customer_private SET name = 'before' WHERE id = 50")
    gate.occupy()
    gate.abort()
    gate.waits("ExclusiveLock")
    # It moves, and is the same in both schemas.
    gated.execute("SELECT bullfrog.sweep(id, ARRAY[pages - 1]) FROM bullfrog.source")
    gated.execute("UPDATE customer_private SET name = 'meanwhile' WHERE id = 60")
    assert gate.noted() == [(60,)]
    closing = database.connect()
    closing.execute("SELECT pg_advisory_lock(7)")
    gate.leave()
    # Two rows are compared once more: no others.
    gate.waits("ShareLock")
    closing.close()
    answered(gate.aborting)
    assert gated.execute("SELECT id, name FROM customer EXCEPT SELECT id, name FROM expected ORDER BY id").fetchall() == [
        (50, "before"), (60, "meanwhile")]


def test_nobody_waits_for_rows_that_nobody_wrote(database, gate, gated):
    migrate(gated, GATED)
    gated.execute("SELECT bullfrog.sweep(id, ARRAY[0, 1, 2]) FROM bullfrog.source")
    gate.occupy()
    gate.abort()
    gate.waits("ExclusiveLock")
    closing = database.connect()
    closing.execute("SELECT pg_advisory_lock(7)")
    gate.leave()
    answered(gate.aborting)
    assert differing(gated, "customer", "expected") == 0


# Rows that were carried back before are written again: as they were, gone, there again, under another key.
AGAIN = """
    DELETE FROM {private} WHERE id = 10; DELETE FROM {public} WHERE id = 10;
    UPDATE {private} SET name = 'newest name' WHERE id = 11; UPDATE {public} SET nick = 'nick 11' WHERE id = 11;
    INSERT INTO {private} VALUES (12, 'there again', 't'); INSERT INTO {public} VALUES (12, 'nick again');
    UPDATE {private} SET id = 13 WHERE id = 5013; UPDATE {public} SET id = 13 WHERE id = 5013;
    UPDATE {public} SET nick = 'changed' WHERE id = 5000"""
EXPECTED_AGAIN = """
    DELETE FROM expected WHERE id = 10; UPDATE expected SET name = 'newest name', nick = 'nick 11' WHERE id = 11;
    INSERT INTO expected VALUES (12, 'there again', 't', 'nick again'); UPDATE expected SET id = 13 WHERE id = 5013;
    UPDATE expected SET nick = 'changed' WHERE id = 5000"""


def abort_in_rounds(database, gate, customers, before, between, options=""):
    """An abort carries back what was written before, while clients go on; and then what they write between."""
    migrate(customers, GATED, options=options)
    customers.execute(before.format(private="customer_private", public="customer_public"))
    gate.occupy()
    gate.abort()
    gate.waits("ExclusiveLock")
    writing = database.connect()
    writing.execute("SET lock_timeout = '5s'")
    writing.execute(between.format(private="customer_private", public="customer_public"))
    gate.leave()


@pytest.mark.parametrize("options", WAYS)
def test_what_was_carried_back_is_written_again(database, gate, gated, options):
    abort_in_rounds(database, gate, gated, WRITES, AGAIN, options)
    answered(gate.aborting)
    gated.execute(EXPECTED + ";" + EXPECTED_AGAIN)
    assert differing(gated, "customer", "expected") == 0
    assert gated.execute("SELECT count(*) FROM pg_class WHERE relname ~ '^(written|due)_'").fetchone() == (0,)


MISSED = {
    "what was written since": ("carry_rest", "PERFORM bullfrog.take_notes(source)", "NULL"),
    "rows at another place": ("carry_back", "bullfrog.is_own(o.xmin)", "false"),
}


@pytest.mark.parametrize("what", MISSED)
def test_what_is_missed_of_rows_that_were_written_again_is_noticed(database, gate, gated, what):
    function, found, broken = MISSED[what]
    body = gated.execute(f"SELECT pg_get_functiondef('bullfrog.{function}'::regproc)").fetchone()[0]
    assert found in body
    gated.execute(body.replace(found, broken), prepare=False)
    abort_in_rounds(database, gate, gated, WRITES, AGAIN)
    refused = gate.aborting.pgconn.get_result().error_message
    gated.execute(EXPECTED + ";" + EXPECTED_AGAIN)
    assert b"carried back" in refused or differing(gated, "customer", "expected") > 0


def test_nobody_waits_for_what_was_written_before_the_abort(database, gate, gated):
    migrate(gated, GATED)
    gated.execute("UPDATE customer_public SET nick = 'new nick' WHERE id <= 500")
    gate.occupy()
    gate.abort()
    gate.waits("ExclusiveLock")
    closing = database.connect()
    closing.execute("SELECT pg_advisory_lock(7)")
    gate.leave()
    answered(gate.aborting)
    closing.close()
    assert gated.execute("SELECT count(*) FROM customer WHERE nick = 'new nick'").fetchone() == (500,)


# More than is carried back in a moment, of rows whose pace was not measured.
MUCH = ["UPDATE customer_private SET name = name || '!'", "UPDATE customer_public SET nick = nick || '!'"]


@pytest.mark.parametrize("keeps_the_lock", [False, True])
def test_nobody_waits_for_much_that_was_written_while_abort_waited_for_its_lock(database, gate, gated, keeps_the_lock):
    """The lock is given back; with it kept, writers wait."""
    if keeps_the_lock:
        body = gated.execute("SELECT pg_get_functiondef('bullfrog.lock_for_rest'::regproc)").fetchone()[0]
        found = "RAISE SQLSTATE 'BFROG'"
        assert found in body
        gated.execute(body.replace(found, "RETURN"), prepare=False)
    closing = database.connect()
    migrate(gated, GATED)
    gated.execute("UPDATE customer_public SET nick = 'new nick' WHERE id = 10")
    gate.occupy()
    gate.abort()
    gate.waits("ExclusiveLock")
    for statement in MUCH:
        gated.execute(statement)
    closing.execute("SELECT pg_advisory_lock(7)")
    gate.leave()
    gate.waits("ShareLock")
    gated.execute("SET lock_timeout = '500ms'")
    if keeps_the_lock:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            gated.execute("UPDATE customer_private SET ssn = 'meanwhile' WHERE id = 20")
    else:
        gated.execute("UPDATE customer_private SET ssn = 'meanwhile' WHERE id = 20; UPDATE customer_public SET nick = NULL WHERE id = 21")
    closing.close()
    answered(gate.aborting)
    gated.execute("UPDATE expected SET nick = 'new nick' WHERE id = 10; UPDATE expected SET name = name || '!', nick = nick || '!'")
    if not keeps_the_lock:
        gated.execute("UPDATE expected SET ssn = 'meanwhile' WHERE id = 20; UPDATE expected SET nick = NULL WHERE id = 21")
    assert differing(gated, "customer", "expected") == 0


def let_more_be_left(connection):
    """From now on an abort finds too much left whenever it has its lock."""
    body = connection.execute("SELECT pg_get_functiondef('bullfrog.is_more_left'::regproc)").fetchone()[0]
    assert "RETURN rows > than" in body
    connection.execute(body.replace("RETURN rows > than", "RETURN true"), prepare=False)


def test_who_aborts_is_told_before_writers_wait_for_what_is_left(split):
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    let_more_be_left(split)
    warnings, tries = warned(split), []
    split.add_notice_handler(lambda notice: tries.append(notice.message_primary))
    split.execute("SELECT bullfrog.abort('split')")
    assert tries.count("more was written than is carried back in a moment, trying again") == 10
    ((primary, detail),) = warnings
    assert (primary, detail.split(",")[0]) == ("writers wait while what they wrote is carried back", "In each of 10 tries")
    assert split.execute("SELECT name, (SELECT count(*) FROM customer) FROM customer WHERE id = 1").fetchone() == ("x", CUSTOMERS)


@pytest.mark.parametrize("more_is_left", [False, True])
def test_clients_write_as_fast_as_they_can_and_none_of_it_is_lost(database, split, more_is_left):
    if more_is_left:
        let_more_be_left(split)
    (before,) = split.execute("SELECT sum(length(name) + length(nick)) FROM customer_private JOIN customer_public USING (id)").fetchone()

    def work(number):
        chance, done = random.Random(number), 0
        with database.connect() as connection:
            connection.execute("SET lock_timeout = '30s'")
            try:
                while True:
                    key = chance.randrange(1, CUSTOMERS + 1)
                    with connection.transaction():
                        # Both or none of them.
                        connection.execute("UPDATE customer_private SET name = name || '!' WHERE id = %s", (key,))
                        connection.execute("UPDATE customer_public SET nick = nick || '!' WHERE id = %s", (key,))
                    done += 2
            except psycopg.errors.UndefinedTable:
                return done

    with concurrent.futures.ThreadPoolExecutor(4) as clients:
        working = [clients.submit(work, number) for number in range(4)]
        time.sleep(0.5)
        split.execute("SET lock_timeout = '30s'; SELECT bullfrog.abort('split')")
        done = sum(client.result(60) for client in working)
    (after,) = split.execute("SELECT sum(length(name) + length(nick)) FROM customer").fetchone()
    assert (after - before, done > 0) == (done, True)


@pytest.mark.parametrize("forgets", [False, True])
def test_an_abort_that_gives_its_lock_back_slows_writers_of_all_new_tables_down(database, split, forgets):
    let_more_be_left(split)
    if forgets:
        body = split.execute("SELECT pg_get_functiondef('bullfrog.lock_for_rest'::regproc)").fetchone()[0]
        assert "PERFORM bullfrog.slow_down(" in body
        split.execute(body.replace("PERFORM bullfrog.slow_down(", "PERFORM concat("), prepare=False)
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    news = [oid for oid, in split.execute("SELECT new_table::oid FROM bullfrog.target ORDER BY id")]
    slowed = "SELECT objid FROM pg_locks WHERE classid = 'bullfrog.target'::regclass AND mode = 'ExclusiveLock' AND pid = %s ORDER BY objid"
    split.execute("BEGIN; SELECT bullfrog.abort('split')")
    told = [oid for oid, in database.connect().execute(slowed, (split.info.backend_pid,))]
    assert told == ([] if forgets else sorted(news))
    split.execute("ROLLBACK")
    assert database.connect().execute(slowed, (split.info.backend_pid,)).fetchall() == []


def timed(work):
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def test_who_writes_faster_than_is_carried_back_rests_once_in_each_transaction(database, split):
    split.execute("SELECT bullfrog.begin_notes(id, pg_current_xact_id()) FROM bullfrog.migration")
    # Nobody ends the notes meanwhile.
    aborting, writer = database.connect(), database.connect()
    aborting.execute("BEGIN; SELECT FROM customer_private; SELECT bullfrog.slow_down('customer_private'::regclass)")
    write = "UPDATE customer_private SET name = name || '!' WHERE id = 5"
    assert timed(lambda: [writer.execute(write) for _ in range(10)]) >= 0.5
    writer.execute("BEGIN")
    # Not 5 seconds.
    assert timed(lambda: [writer.execute(write) for _ in range(100)]) < 3
    writer.execute("COMMIT")
    aborting.execute("ROLLBACK")
    assert min(timed(lambda: writer.execute(write)) for _ in range(20)) < 0.05


def test_nobody_sees_what_is_carried_back_before_the_switch_back(database, gate, gated):
    migrate(gated, GATED, options=", compatible => true")
    gated.execute("UPDATE customer_private SET name = 'new name' WHERE id = 10")
    gate.occupy()
    gate.abort()
    gate.waits("ExclusiveLock")
    assert gated.execute("SELECT name FROM customer WHERE id = 10").fetchone() == ("name 10",)
    assert gated.execute("SELECT name FROM customer_private WHERE id IN (10, 500) ORDER BY id").fetchall() == [("new name",), ("name 500",)]
    # It moves from what the old table was at the switch.
    assert gated.execute("UPDATE customer_private SET ssn = 'new ssn' WHERE id IN (10, 900)").rowcount == 2
    gate.leave()
    answered(gate.aborting)
    assert gated.execute("SELECT id, name, ssn FROM customer EXCEPT SELECT id, name, ssn FROM expected ORDER BY id").fetchall() == [
        (10, "new name", "new ssn"), (900, "name 900", "new ssn")]


def test_a_row_that_was_written_half_is_carried_back_when_all_of_it_is(database, gate, gated):
    abort_in_rounds(database, gate, gated, "DELETE FROM {private} WHERE id = 10; UPDATE {private} SET name = 'x' WHERE id = 11",
        "DELETE FROM {public} WHERE id = 10")
    answered(gate.aborting)
    gated.execute("DELETE FROM expected WHERE id = 10; UPDATE expected SET name = 'x' WHERE id = 11")
    assert differing(gated, "customer", "expected") == 0


def test_a_round_that_a_constraint_forbids_is_undone_and_done_later(database, gate, gated):
    gated.execute("ALTER TABLE customer ADD UNIQUE (nick)")
    abort_in_rounds(database, gate, gated, "UPDATE {public} SET nick = 'nick 11' WHERE id = 10; UPDATE {private} SET name = 'x' WHERE id = 12",
        "DELETE FROM {public} WHERE id = 11; DELETE FROM {private} WHERE id = 11")
    answered(gate.aborting)
    gated.execute("DELETE FROM expected WHERE id = 11; UPDATE expected SET nick = 'nick 11' WHERE id = 10; UPDATE expected SET name = 'x' WHERE id = 12")
    assert differing(gated, "customer", "expected") == 0


def test_rounds_that_a_constraint_forbids_are_not_tried_again_and_again(database, gate, gated):
    gated.execute("ALTER TABLE customer ADD UNIQUE (nick)")
    let_more_be_left(gated)
    warnings, told = warned(gate.aborting), []
    gate.aborting.add_notice_handler(lambda notice: told.append(notice.message_primary))
    abort_in_rounds(database, gate, gated, "UPDATE {public} SET nick = 'nick 11' WHERE id = 10",
        "DELETE FROM {public} WHERE id = 11; DELETE FROM {private} WHERE id = 11")
    answered(gate.aborting)
    assert warnings == [("writers wait while what they wrote is carried back", "Two rounds, beside clients that write, violated constraints of an old table.")]
    assert "more was written than is carried back in a moment, trying again" not in told
    gated.execute("DELETE FROM expected WHERE id = 11; UPDATE expected SET nick = 'nick 11' WHERE id = 10")
    assert differing(gated, "customer", "expected") == 0


PARTS = ("INSERT INTO {private} VALUES (5000, 'inserted', 's'), (5001, 'inserted', 's'); INSERT INTO {public} VALUES (5001, 'nick')",
    "UPDATE {private} SET name = 'again' WHERE id = 5000; DELETE FROM {public} WHERE id = 5001; UPDATE {private} SET name = 'again' WHERE id = 5001")


@pytest.mark.parametrize("forgets", [False, True])
def test_a_row_of_which_only_one_new_table_has_a_part_is_written_again(database, gate, gated, forgets):
    """No old row is left in some tables only; which those are is known by what was inserted."""
    if forgets:
        body = gated.execute("SELECT pg_get_functiondef('bullfrog.carry_back'::regproc)").fetchone()[0]
        found = "INSERT INTO bullfrog.inserted_%s TABLE inserted"
        assert found in body
        gated.execute(body.replace(found, "INSERT INTO bullfrog.inserted_%s SELECT * FROM inserted WHERE false"), prepare=False)
    abort_in_rounds(database, gate, gated, *PARTS)
    if forgets:
        assert b"in some of them only" in gate.aborting.pgconn.get_result().error_message
        return
    answered(gate.aborting)
    rows = "SELECT id, name, ssn, nick FROM customer WHERE id >= 5000 ORDER BY id"
    assert gated.execute(rows).fetchall() == [(5000, "again", "s", None), (5001, "again", "s", None)]


def test_a_row_that_is_left_in_one_of_two_tables_is_not_forgotten(gated):
    """A round leaves it for later; with that left out, abort loses it."""
    migrate(gated, GATED)
    gated.execute("UPDATE customer_private SET name = 'x' WHERE id = 11; DELETE FROM customer_public WHERE id = 10")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="carried back"):
        gated.execute("SELECT bullfrog.abort('m')")
    body = gated.execute("SELECT pg_get_functiondef('bullfrog.leave'::regproc)").fetchone()[0]
    assert "PERFORM bullfrog.change(" in body
    gated.execute(body.replace("PERFORM bullfrog.change(", "PERFORM concat("), prepare=False)
    gated.execute("SELECT bullfrog.abort('m')")
    assert gated.execute("SELECT count(*) FROM customer WHERE id = 10").fetchone() == (1,)


GROUPS = "CREATE TABLE town AS SELECT public.gated(left(city, 6)) AS city, count(*) AS customers FROM customer GROUP BY 1"


@pytest.mark.parametrize("writes", [False, True])
def test_rows_without_a_key_are_compared_ahead_if_nobody_writes_them(database, gate, gated, writes):
    migrate(gated, GROUPS)
    gated.execute("SELECT bullfrog.sweep(id, ARRAY[0, 1, 2]) FROM bullfrog.source")
    gate.close()
    gate.abort()
    gate.waits("ShareLock")
    if writes:
        database.connect().execute("INSERT INTO town VALUES ('new', 1)")
    gate.open()
    if not writes:
        answered(gate.aborting)
        assert differing(gated, "customer", "expected") == 0
    else:
        assert b"rows were written to public.town" in gate.aborting.pgconn.get_result().error_message
        assert gated.execute("SELECT count(*) FROM town WHERE city = 'new'").fetchone() == (1,)


def notes(connection):
    return connection.execute("""
        SELECT (SELECT count(*) FROM pg_trigger WHERE tgname = 'bullfrog_note') + (SELECT count(*) FROM pg_class WHERE relname LIKE 'written_%')
            + (SELECT count(*) FROM bullfrog.source WHERE noted_for IS NOT NULL)""").fetchone()[0]


def test_notes_end_with_an_abort_that_is_refused(gated):
    migrate(gated, GATED)
    gated.execute("UPDATE customer_public SET city = 'changed' WHERE id = 1")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="rows were written to public.customer_public"):
        gated.execute("SELECT bullfrog.abort('m')")
    wait_until(lambda: notes(gated) == 0, "the notes have ended")
    gated.execute("UPDATE customer_public SET nick = 'later' WHERE id = 1")
    gated.execute("SELECT bullfrog.finish('m')")
    assert gated.execute("SELECT nick, city FROM customer_public WHERE id = 1").fetchone() == ("later", "changed")


def test_an_abort_that_was_refused_is_tried_again_in_its_transaction(gated):
    migrate(gated, GATED)
    gated.execute("UPDATE customer_public SET city = 'changed' WHERE id = 1; BEGIN; SAVEPOINT a")
    for _ in range(2):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="rows were written to public.customer_public"):
            gated.execute("SELECT bullfrog.abort('m')")
        gated.execute("ROLLBACK TO a")
    gated.execute("ROLLBACK")


def test_an_abort_takes_over_the_notes_of_one_that_was_cancelled(gate, gated):
    migrate(gated, GATED)
    gated.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    # Nobody ends the notes meanwhile.
    gated.execute("BEGIN; SELECT name FROM customer_private WHERE id = 1")
    gate.close()
    gate.abort()
    gate.waits("ShareLock")
    assert gate.admin.execute("SELECT pg_cancel_backend(%s)", (gate.aborting.info.backend_pid,)).fetchone() == (True,)
    assert b"canceling statement" in gate.aborting.pgconn.get_result().error_message
    while gate.aborting.pgconn.get_result():
        pass
    gate.open()
    assert notes(gate.admin) > 0
    gate.abort()
    wait_until(lambda: gate.admin.execute("SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted AND pid = %s",
        (gate.aborting.info.backend_pid,)).fetchone() == (1,), "the abort has carried back")
    gated.execute("COMMIT")
    answered(gate.aborting)
    assert gated.execute("SELECT name FROM customer WHERE id = 1").fetchone() == ("x",)


def test_two_aborts_do_not_go_together(gate, gated):
    migrate(gated, GATED)
    gated.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    gate.close()
    gate.abort()
    gate.waits("ShareLock")
    with pytest.raises(psycopg.errors.ObjectInUse, match="another session"):
        gated.execute("SELECT bullfrog.abort('m')")
    gate.open()
    answered(gate.aborting)
    with pytest.raises(psycopg.errors.UndefinedObject):
        gated.execute("SELECT bullfrog.abort('m')")


def test_a_transaction_that_has_written_itself_aborts(split):
    split.execute("BEGIN; UPDATE customer_private SET name = 'x' WHERE id = 1; SELECT bullfrog.abort('split'); COMMIT")
    assert split.execute("SELECT name, (SELECT count(*) FROM customer) FROM customer WHERE id = 1").fetchone() == ("x", CUSTOMERS)


def test_an_abort_waits_for_whoever_has_written_and_not_committed(database, gate, split):
    writing = database.connect()
    writing.execute("BEGIN; UPDATE customer_private SET name = 'late' WHERE id = 10")
    gate.abort("split")
    wait_until(lambda: split.execute("SELECT count(*) FROM pg_locks WHERE mode = 'ShareRowExclusiveLock' AND NOT granted").fetchone()
        == (1,), "the process that notes waits")
    writing.execute("COMMIT")
    answered(gate.aborting)
    assert split.execute("SELECT name FROM customer WHERE id = 10").fetchone() == ("late",)


def warned(connection):
    """What a session is warned of from now on."""
    warnings = []
    # Who waits for a lock is told by a notice.
    connection.add_notice_handler(lambda notice: notice.severity_nonlocalized == "WARNING"
        and warnings.append((notice.message_primary, notice.message_detail)))
    return warnings


STANDSTILL = "writers wait while all rows that were moved are compared"


def test_who_aborts_is_told_before_writers_wait_for_the_comparison(split):
    warnings = warned(split)
    split.execute("BEGIN; UPDATE customer_private SET name = 'mine' WHERE id = 5; SELECT bullfrog.abort('split'); ROLLBACK")
    assert warnings == [(STANDSTILL, "This transaction has written or locked new tables itself.")]
    split.execute("SELECT bullfrog.abort('split')")
    assert len(warnings) == 1


def test_who_aborts_is_told_that_writes_cannot_be_noted(database, split):
    warnings = warned(split)
    writer = database.connect()
    writer.execute("BEGIN; UPDATE customer_private SET name = 'mine' WHERE id = 5")
    split.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        split.execute("SELECT bullfrog.abort('split')")
    writer.execute("ROLLBACK")
    ((primary, detail),) = warnings
    assert (primary, detail.startswith("Writes cannot be noted meanwhile: no background process is free")) == (STANDSTILL, True)


def test_nobody_waits_for_an_abort_that_is_bound_to_be_refused(database, customers):
    """Groups cannot be carried back: that they were written is known before clients are locked out."""
    migrate(customers, "CREATE TABLE town AS SELECT city, count(*) AS n FROM customer GROUP BY city; ALTER TABLE town ADD PRIMARY KEY (city)")
    customers.execute("UPDATE town SET n = 0 WHERE city LIKE 'city 1%'")
    reader = database.connect()
    # Who locks against writers would have to wait for it.
    reader.execute("BEGIN; LOCK TABLE town IN ROW SHARE MODE")
    warnings = warned(customers)
    customers.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="rows were written to public.town") as error:
        customers.execute("SELECT bullfrog.abort('m')")
    assert (error.value.diag.message_detail.split(", and ")[1], warnings) == \
        ("cannot be carried back: not every row of public.customer is one of public.town.", [])
    reader.execute("ROLLBACK")
    customers.execute("SELECT bullfrog.abort('m', discard_writes => true)")


def test_a_mover_that_cannot_end_notes_holds_clients_up_less_and_less(database, split):
    """Beside a long reader each try is in front of all other clients for a tenth of a second."""
    reader = database.connect()
    reader.execute("BEGIN; SELECT FROM customer_private")
    split.execute("SELECT bullfrog.begin_notes(id, pg_current_xact_id()) FROM bullfrog.migration; SELECT bullfrog.start_mover()")
    tries = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.backend_type = 'bullfrog mover' " \
        "AND a.datname = current_database() AND l.mode = 'AccessExclusiveLock' AND NOT l.granted"
    seen, before = 0, False
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        is_trying = split.execute(tries).fetchone() != (0,)
        seen += is_trying and not before
        before = is_trying
        time.sleep(0.02)
    # At once, after 2 and 4 seconds; else about 7.
    assert 1 <= seen <= 4
    reader.execute("ROLLBACK")
    wait_until(lambda: split.execute("SELECT count(noted_for) FROM bullfrog.source").fetchone() == (0,), "the notes are ended")
