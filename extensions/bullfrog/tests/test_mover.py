"""The process that moves rows: in the background, after crashes, in several databases."""

import os
import signal
import time

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, answered, migrate, moved, reconnect, setting, wait_for_crash, wait_until


def pages_left(connection):
    return connection.execute("SELECT sum(pages_left)::int FROM bullfrog.progress").fetchone()[0]


def mover(connection):
    row = connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND datname = current_database()"
    ).fetchone()
    return row and row[0]


@pytest.fixture
def at_once(server):
    """The background starts without delay."""
    with setting(server, "bullfrog.start_delay", 0):
        yield


def check_all(connection):
    assert connection.execute("SELECT count(*), count(DISTINCT id) FROM customer_private").fetchone() == (CUSTOMERS, CUSTOMERS)
    assert connection.execute("SELECT count(*), count(DISTINCT id) FROM customer_public").fetchone() == (CUSTOMERS, CUSTOMERS)


def test_the_background_moves_everything(at_once, split):
    wait_until(lambda: pages_left(split) == 0, "all pages were moved")
    check_all(split)
    split.execute("SELECT bullfrog.finish('split')")
    check_all(split)


def test_progress_tells_the_time_left(split):
    progress = "SELECT time_left > interval '0', time_left = interval '0' FROM bullfrog.progress"
    assert split.execute(progress).fetchall() == [(None, None)]
    split.execute("SELECT FROM customer_private WHERE id = 1 FOR UPDATE")
    assert split.execute(progress).fetchall() == [(True, False)]
    split.execute("SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source")
    assert split.execute(progress).fetchall() == [(False, True)]


def test_progress_tells_what_was_moved_and_how_long_statements_waited(split):
    measured = "SELECT rows_moved, touches, last_touch > 0, median_touch <= p99_touch, rows_per_second > 0 FROM bullfrog.progress"
    assert split.execute(measured).fetchall() == [(0, 0, None, None, False)]
    rows = split.execute("SELECT count(*) FROM bullfrog.transformed_1 WHERE bullfrog.page(bullfrog_tid) = 0").fetchone()[0]
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    split.execute("UPDATE customer_private SET name = 'y' WHERE id = 1")
    assert split.execute(measured).fetchall() == [(2 * rows, 1, True, True, True)]
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1000")
    assert split.execute("SELECT touches FROM bullfrog.progress").fetchall() == [(2,)]


def test_anybody_may_see_the_progress(split):
    split.execute("CREATE ROLE watcher; SET ROLE watcher")
    assert split.execute("SELECT name, rows_moved FROM bullfrog.progress").fetchall() == [("split", 0)]
    split.execute("RESET ROLE; DROP ROLE watcher")


def test_the_background_yields_to_active_sessions_but_goes_on(server, at_once, database, customers):
    """With a limit of one, two sessions that compute slow it down: it rests longer and longer. Sessions that have ended do not count."""
    for ended in [database.connect() for _ in range(12)]:
        ended.close()
    busy = [database.connect() for _ in range(2)]
    with setting(server, "bullfrog.yield_at", 1):
        for session in busy:
            session.pgconn.send_query(b"DO 'BEGIN LOOP END LOOP; END'")
        customers.execute("INSERT INTO customer SELECT i, 'name', 's' || i, 'nick', repeat('.', 200) FROM generate_series(10001, 30000) i")
        customers.execute("SELECT bullfrog.migrate('split', %s, granularity => 'page', moves => 'worker')", (SPLIT,), prepare=False)
        resting = "SELECT FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND datname = current_database()" \
            " AND application_name LIKE 'yields to _ active sessions'"
        wait_until(lambda: customers.execute(resting).rowcount == 1 or pages_left(customers) == 0, "it yields")
        assert pages_left(customers) > 0
        for session in busy:
            session.cancel()
    wait_until(lambda: pages_left(customers) == 0, "all pages were moved")
    assert customers.execute("SELECT count(*), count(DISTINCT id) FROM customer_private").fetchone() == (CUSTOMERS + 20000,) * 2


def test_the_background_yields_when_statements_wait_longer_for_rows(server, at_once, database, customers):
    """Few sessions are active: it is the latency that counts. What is slow for them is not slow for the background."""
    customers.execute("""
        CREATE FUNCTION from_disk(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
            PERFORM pg_sleep(0.01) WHERE current_setting('disk.is_busy', true) = 'yes';
            RETURN $1;
        END $$;
        INSERT INTO customer SELECT i, 'name', 's' || i, 'nick', repeat('.', 200) FROM generate_series(10001, 60000) i""")
    with setting(server, "bullfrog.yield_at", 1000):
        customers.execute("BEGIN")
        migrate(customers, "CREATE TABLE t AS SELECT id, from_disk(name) AS name FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)", "slow",
            ", granularity => 'tuple', moves => 'transaction'")
        customers.execute("SELECT bullfrog.pause('slow'); COMMIT")
        for key in range(1, 40):
            customers.execute("UPDATE t SET name = 'x' WHERE id = %s", (key,))
        time.sleep(1)
        customers.execute("SET disk.is_busy = 'yes'")
        for key in range(101, 120):
            customers.execute("UPDATE t SET name = 'x' WHERE id = %s", (key,))
        customers.execute("SELECT bullfrog.resume('slow')")
        resting = "SELECT FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND datname = current_database()" \
            " AND application_name = 'yields to statements that wait for rows'"
        keys = iter(range(201, 1000))

        def yields():
            customers.execute("UPDATE t SET name = 'x' WHERE id = %s", (next(keys),))
            return customers.execute(resting).rowcount == 1 or pages_left(customers) == 0

        wait_until(yields, "it yields")
        assert pages_left(customers) > 0


def plan(connection, statement):
    return "\n".join(row[0] for row in connection.execute(f"EXPLAIN {statement}"))


def test_when_all_rows_are_there_statements_look_for_no_others(at_once, database, customers):
    """Not before every snapshot sees the last move: one that does not reads the old table."""
    read = "SELECT count(*) FROM customer_private WHERE id > 0"
    customers.execute("BEGIN")
    customers.execute("SELECT bullfrog.migrate('split', %s, granularity => 'page', moves => 'worker')", (SPLIT,), prepare=False)
    customers.execute("SELECT bullfrog.pause('split')")
    customers.execute("COMMIT")
    reader = database.connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute(f"PREPARE r AS {read}; EXECUTE r")
    customers.execute("SELECT bullfrog.resume('split')")
    wait_until(lambda: pages_left(customers) == 0, "all pages were moved")
    customers.execute("SELECT bullfrog.settle()")
    assert "moved" in plan(customers, read)
    assert reader.execute(read).fetchone() == (CUSTOMERS,)
    assert reader.execute("EXECUTE r").fetchone() == (CUSTOMERS,)
    reader.execute("COMMIT")
    wait_until(lambda: "moved" not in plan(customers, read), "the new table is read alone")
    assert reader.execute("EXECUTE r").fetchone() == (CUSTOMERS,)
    with pytest.raises(psycopg.errors.ObjectInUse):
        customers.execute("TRUNCATE customer_private")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        customers.execute("SELECT * FROM customer")
    customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 7")
    with pytest.raises(psycopg.errors.UniqueViolation):
        customers.execute("INSERT INTO customer_private VALUES (321, 'twice')")
    check_all(customers)
    customers.execute("SELECT bullfrog.finish('split')")
    check_all(customers)


def test_when_all_rows_are_there_writes_pass_no_trigger(at_once, database, customers):
    """A trigger lets each update lock its row first. It ends where nobody uses the table at that moment, and the table keeps its form."""
    customers.execute("BEGIN")
    customers.execute("SELECT bullfrog.migrate('split', %s, granularity => 'page', moves => 'worker')", (SPLIT,), prepare=False)
    customers.execute("SELECT bullfrog.pause('split')")
    customers.execute("COMMIT")
    user = database.connect()
    user.execute("BEGIN; SELECT FROM customer_private WHERE false")
    customers.execute("SELECT bullfrog.resume('split')")
    guarded = "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname ~ 'bullfrog' ORDER BY 1"
    wait_until(lambda: customers.execute(guarded).fetchall() == [("customer_private",)] * 2, "the other table has no trigger any more")
    user.execute("INSERT INTO customer_private VALUES (0, 'new', 'x'); COMMIT")
    wait_until(lambda: customers.execute(guarded).rowcount == 0, "no table has one")
    with pytest.raises(psycopg.errors.ObjectInUse):
        customers.execute("ALTER TABLE customer_private ADD COLUMN more int")
    with pytest.raises(psycopg.errors.UniqueViolation):
        customers.execute("UPDATE customer_private SET id = 321 WHERE id = 7")
    customers.execute("SELECT bullfrog.abort('split')")
    assert customers.execute("SELECT count(*), count(*) FILTER (WHERE name = 'new') FROM customer").fetchone() == (CUSTOMERS + 1, 1)


def test_what_was_moved_is_forgotten_after_the_end_and_that_of_others_is_not(customers):
    """Nobody waits for it: an end has locked its tables."""
    customers.execute("CREATE TABLE other AS SELECT id, name FROM customer")
    migrate(customers, SPLIT, "split", ", granularity => 'tuple'")
    migrate(customers, "CREATE TABLE another AS SELECT id, name FROM other", "other", ", granularity => 'tuple'")
    customers.execute("UPDATE another SET name = 'x' WHERE id <= 10; UPDATE customer_public SET nick = 'x'")
    with customers.transaction():
        customers.execute("SELECT bullfrog.finish('split')")
        assert customers.execute("SELECT count(*) FROM bullfrog.moved WHERE tuples IS NULL").fetchone() == (CUSTOMERS + 10,)
    wait_until(lambda: customers.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (10,), "movers have forgotten what they moved")
    assert customers.execute("SELECT count(*), count(*) FILTER (WHERE name = 'x') FROM another").fetchone() == (CUSTOMERS, 10)


def test_a_paused_migration_moves_only_what_is_touched(at_once, customers):
    customers.execute("BEGIN")
    customers.execute("SELECT bullfrog.migrate('split', %s, granularity => 'page', moves => 'worker')", (SPLIT,), prepare=False)
    customers.execute("SELECT bullfrog.pause('split')")
    customers.execute("COMMIT")
    # The mover has looked for work at least once when it has answered.
    customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 1000")
    assert moved(customers) == 2
    customers.execute("SELECT bullfrog.resume('split')")
    wait_until(lambda: pages_left(customers) == 0, "all pages were moved")


@pytest.mark.parametrize("conflicts", ["tracker", "on_conflict"])
def test_deleted_rows_stay_deleted_when_the_background_passes(server, at_once, customers, conflicts):
    with setting(server, "bullfrog.conflicts", conflicts):
        delete_and_sweep(customers)


def delete_and_sweep(customers):
    customers.execute("BEGIN")
    customers.execute("SELECT bullfrog.migrate('split', %s, granularity => 'page', moves => 'worker')", (SPLIT,), prepare=False)
    customers.execute("SELECT bullfrog.pause('split')")
    customers.execute("COMMIT")
    customers.execute("DELETE FROM customer_private WHERE id BETWEEN 100 AND 900")
    customers.execute("SELECT bullfrog.resume('split')")
    wait_until(lambda: pages_left(customers) == 0, "all pages were moved")
    assert customers.execute("SELECT count(*) FROM customer_private").fetchone() == (199,)


@pytest.mark.parametrize("options", ["", ", granularity => 'tuple'"])
def test_the_background_comes_back_to_what_it_could_not_move_and_says_why(at_once, customers, options):
    """An index evaluates what fails for one row as long as a table says so."""
    customers.execute("""
        CREATE TABLE full_disk (id int);
        CREATE FUNCTION room_for(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
            IF $1 = 'nick 500' AND EXISTS (SELECT FROM public.full_disk) THEN
                RAISE 'no space left' USING ERRCODE = 'disk_full';
            END IF;
            RETURN $1;
        END $$""")
    definition = """
        CREATE TABLE customer_private AS SELECT id, name FROM customer; CREATE TABLE customer_public AS SELECT id, nick FROM customer;
        CREATE INDEX ON customer_public (room_for(nick))"""
    with customers.transaction():
        migrate(customers, definition, options=options)
        customers.execute("INSERT INTO full_disk VALUES (1)")
    told = "SELECT pages_left > 0 AND last_failure LIKE 'page %: no space left' FROM bullfrog.progress"
    wait_until(lambda: customers.execute(told).fetchone()[0], "the failure is told")
    wait_until(lambda: customers.execute("SELECT count(*) FROM ONLY bullfrog.moved").fetchone()[0] > 1, "others move")
    check_all(customers)
    customers.execute("DELETE FROM full_disk")
    mended = "SELECT pages_left = 0 AND last_failure IS NULL FROM bullfrog.progress"
    wait_until(lambda: customers.execute(mended).fetchone()[0], "everything was moved")
    check_all(customers)


def test_a_mover_that_is_terminated_is_replaced(split):
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    first = mover(split)
    split.execute("SELECT pg_terminate_backend(%s)", (first,))
    wait_until(lambda: mover(split) != first, "the mover ended")
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1000")
    assert moved(split) == 2
    check_all(split)


def test_a_session_that_gives_up_leaves_the_move_to_the_mover(database, split):
    blocker = database.connect()
    blocker.execute("BEGIN")
    blocker.execute("LOCK TABLE customer_public IN SHARE MODE")
    split.execute("SET statement_timeout = '200ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    blocker.execute("COMMIT")
    split.execute("RESET statement_timeout")
    assert split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1").rowcount == 1
    check_all(split)


def test_a_session_asks_again_while_a_mover_loses_against_serializable_transactions(database, split):
    """A reader of rows that move has written what another one has read, and is prepared: as long as both are there, no move can commit."""
    split.execute("CREATE TABLE ledger (amount int)")
    first, second, waiting = (database.connect() for _ in range(3))
    for session in (first, second):
        session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        session.execute("SELECT FROM ledger")
    second.execute("SELECT FROM customer_private WHERE id = 1000")
    second.execute("INSERT INTO ledger VALUES (1)")
    second.execute("PREPARE TRANSACTION 'reader'")
    newest = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int"
    before = split.execute(newest).fetchone()[0]
    waiting.pgconn.send_query(b"UPDATE customer_private SET name = 'x' WHERE id = 1")
    # Each try of a mover has a number, and a mover tries 20 times.
    wait_until(lambda: split.execute(newest).fetchone()[0] > before + 40, "the session has asked again")
    split.execute("COMMIT PREPARED 'reader'")
    first.execute("COMMIT")
    answered(waiting)
    assert split.execute("SELECT name FROM customer_private WHERE id = 1").fetchone() == ("x",)
    check_all(split)


@pytest.mark.parametrize("victim", ["session", "mover", "server"])
def test_a_crash_in_the_middle_of_moves_loses_nothing(server, database, split, victim):
    """The victim is killed while a mover waits in the middle of a page: the first new table has its rows, the second not."""
    split.execute("UPDATE customer_private SET name = 'before' WHERE id = 1")
    blocker, waiting = database.connect(), database.connect()
    blocker.execute("BEGIN")
    blocker.execute("LOCK TABLE customer_public IN SHARE MODE")
    waiting.pgconn.send_query(b"UPDATE customer_private SET name = 'after' WHERE id = 1000")
    wait_until(
        lambda: split.execute("SELECT FROM pg_locks WHERE relation = 'customer_public'::regclass AND NOT granted").rowcount == 1,
        "the mover waits in the middle of a page",
    )
    if victim == "server":
        server.kill()
        server.start()
    else:
        os.kill(mover(split) if victim == "mover" else waiting.info.backend_pid, signal.SIGKILL)
        wait_for_crash(split)
    connection = reconnect(database)
    check_all(connection)
    assert connection.execute("SELECT id FROM customer_private WHERE name IN ('before', 'after')").fetchall() == [(1,)]
    connection.execute("UPDATE customer_private SET name = 'again' WHERE id = 1000")
    check_all(connection)
    connection.execute("SELECT bullfrog.finish('split')")
    check_all(connection)


def test_after_a_crash_the_background_goes_on_by_itself(at_once, server, database, customers):
    customers.execute("BEGIN")
    customers.execute("SELECT bullfrog.migrate('split', %s, granularity => 'page', moves => 'worker')", (SPLIT,), prepare=False)
    customers.execute("SELECT bullfrog.pause('split')")
    customers.execute("COMMIT")
    customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    customers.execute("UPDATE bullfrog.migration SET phase = 'moving'")
    server.kill()
    server.start()
    connection = reconnect(database)
    wait_until(lambda: pages_left(connection) == 0, "all pages were moved")
    check_all(connection)
