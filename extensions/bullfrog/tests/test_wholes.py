"""Pages that the background moves as wholes where rows move one by one."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, answered, migrate, moved, setting, wait_until
from test_tuples import INSIDE, WRITE, check_all

SWEEP = "SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source"
ON_PAGE_0 = "SELECT count(*) FROM bullfrog.transformed_1 WHERE bullfrog.page(bullfrog_tid) = 0"


@pytest.fixture
def inside(customers):
    migrate(customers, SPLIT, "split", INSIDE)
    return customers


def marks(connection):
    """How many pages are marked, and how many rows."""
    return connection.execute("SELECT count(*) FILTER (WHERE granule & 65535 = 0), count(*) FILTER (WHERE granule & 65535 > 0) FROM bullfrog.moved").fetchone()


def test_a_sweep_marks_pages_and_copies_what_was_not_moved(inside):
    # Of a mark that is updated, who looks for it may see neither version.
    inside.execute("""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'a mark is updated'; END $$;
        CREATE TRIGGER refuse BEFORE UPDATE ON bullfrog.moved FOR EACH ROW EXECUTE FUNCTION refuse();
        ALTER TABLE bullfrog.moved ENABLE ALWAYS TRIGGER refuse""")
    (pages,) = inside.execute("SELECT pages FROM bullfrog.source").fetchone()
    inside.execute("UPDATE customer_private SET name = 'x' WHERE id IN (1, 2, 500); DELETE FROM customer_private WHERE id = 2; DELETE FROM customer_public WHERE id = 2")
    inside.execute(SWEEP)
    assert marks(inside) == (pages, 3)
    assert moved(inside) == CUSTOMERS
    assert inside.execute("SELECT old_rows_moved FROM bullfrog.progress").fetchone() == (CUSTOMERS,)
    for table in ("customer_private", "customer_public"):
        assert inside.execute(f"SELECT count(*), count(DISTINCT id) FROM {table}").fetchone() == (CUSTOMERS - 1, CUSTOMERS - 1)
    inside.execute("UPDATE customer_public SET nick = 'y' WHERE id = 500")
    assert marks(inside) == (pages, 3)
    with pytest.raises(psycopg.errors.UniqueViolation):
        inside.execute("INSERT INTO customer_private VALUES (77, 'twice')")
    inside.execute("SELECT bullfrog.finish('split')")
    assert inside.execute("SELECT count(*), count(*) FILTER (WHERE name = 'x') FROM customer_private").fetchone() == (CUSTOMERS - 1, 2)


def test_a_page_that_is_named_again_and_again_is_moved_once(inside):
    (pages,) = inside.execute("SELECT pages FROM bullfrog.source").fetchone()
    inside.execute("SET statement_timeout = '60s'")
    inside.execute("SELECT bullfrog.sweep(id, array_fill(0, ARRAY[20]) || ARRAY(SELECT generate_series(0, pages - 1)) || ARRAY[0, 1, 0]) FROM bullfrog.source")
    assert marks(inside) == (pages, 0)
    assert moved(inside) == CUSTOMERS


def test_rows_of_a_page_that_was_moved_are_not_moved_again(inside):
    inside.execute("SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source")
    (rows,) = inside.execute(ON_PAGE_0).fetchone()
    inside.execute("SELECT bullfrog.move(1, ARRAY(SELECT bullfrog.place(bullfrog_tid) FROM bullfrog.transformed_1 WHERE bullfrog.page(bullfrog_tid) = 0))")
    inside.execute("SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source")
    assert (marks(inside), moved(inside)) == ((1, 0), rows)
    check_all(inside)


def is_left(database, inside, end):
    """A client has moved a row, and has not ended. A sweep moves everything else, and asks again when it has."""
    client, sweeping = database.connect(), database.connect()
    (rows,) = inside.execute(ON_PAGE_0).fetchone()
    client.execute("BEGIN; SAVEPOINT s")
    client.execute(WRITE, (1,))
    sweeping.pgconn.send_query(b"SELECT bullfrog.sweep(id, '{0, 1}') FROM bullfrog.source")
    wait_until(lambda: marks(inside) == (1, rows - 1), "the other page, and the other rows, are moved")
    client.execute(end)
    if end == "ROLLBACK TO s":
        client.execute("ROLLBACK")
    answered(sweeping)
    assert marks(inside) == (2, rows - 1 + (end == "COMMIT"))
    assert moved(inside) == inside.execute("SELECT count(*) FROM bullfrog.transformed_1 WHERE bullfrog.page(bullfrog_tid) < 2").fetchone()[0]
    name = "name 1!" if end == "COMMIT" else "name 1"
    assert inside.execute("SELECT name FROM ONLY customer_private WHERE id = 1").fetchall() == [(name,)]
    check_all(inside)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "ROLLBACK TO s"])
def test_a_page_of_which_a_client_has_a_row_in_progress_is_left_to_it(database, inside, end):
    is_left(database, inside, end)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "ROLLBACK TO s"])
def test_so_it_is_without_claims(server, database, inside, end):
    with setting(server, "bullfrog.conflicts", "on_conflict"):
        is_left(database, inside, end)


def test_the_background_waits_for_no_prepared_transaction_that_is_older_than_the_server(server, database, inside):
    """Nobody has a claim any more."""
    inside.execute("BEGIN")
    inside.execute(WRITE, (1,))
    inside.execute("PREPARE TRANSACTION 'older'")
    server.stop()
    server.start()
    admin, client = database.connect(), database.connect()
    try:
        with setting(server, "bullfrog.start_delay", "0"):
            admin.execute("SELECT bullfrog.start_mover()")
            wait_until(lambda: moved(admin) == CUSTOMERS - 1, "all other rows are moved")
        client.execute("SET statement_timeout = '30s'")
        client.execute(WRITE, (2,))
        # Who needs its row waits itself, and no mover with it.
        client.execute("SET statement_timeout = '1s'")
        for _ in range(5):
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute("INSERT INTO customer_private VALUES (1, 'twice')")
        client.execute("SET statement_timeout = '30s'")
        client.execute(WRITE, (3,))
        assert admin.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,)
    finally:
        admin.execute("COMMIT PREPARED 'older'")
    admin.execute(SWEEP)
    assert moved(admin) == CUSTOMERS
    check_all(admin)


def test_that_a_row_in_progress_is_not_seen_is_noticed(server, database, inside):
    with setting(server, "bullfrog.flaw", "rows_unseen"):
        client, sweeping = database.connect(), database.connect()
        client.execute("BEGIN")
        client.execute(WRITE, (1,))
        sweeping.pgconn.send_query(b"SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source")
        blocked = f"SELECT FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND {client.info.backend_pid} = ANY (pg_blocking_pids(pid))"
        wait_until(lambda: inside.execute(blocked).rowcount == 1, "the page's move waits for the row that it has copied, too")
        client.execute("COMMIT")
        assert b"duplicate key" in sweeping.pgconn.get_result().error_message


class Sweep:
    """The move of page 0, which has stopped when the page was marked."""

    def __init__(self, database, admin):
        self.admin, self.session = admin, database.connect()
        admin.execute(f"ALTER DATABASE \"{database.name}\" SET bullfrog.stop_at = 'move: marked'")
        admin.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND datname = current_database()")
        self.session.pgconn.send_query(b"SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source")
        stopped = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'stopped at move: marked'"
        wait_until(lambda: admin.execute(stopped).rowcount == 1, "the move has stopped")
        (self.mover,) = admin.execute(stopped).fetchone()
        admin.execute(f"ALTER DATABASE \"{database.name}\" RESET bullfrog.stop_at")

    def end(self):
        """It is undone, and begins again. Another mover that began meanwhile would stop, too."""
        self.admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND datname = current_database()")


@pytest.mark.parametrize("conflicts", ["tracker", "on_conflict"])
def test_who_moves_a_row_waits_for_who_moves_its_page(server, database, inside, conflicts):
    with setting(server, "bullfrog.conflicts", conflicts):
        client = database.connect()
        sweep = Sweep(database, inside)
        client.pgconn.send_query((WRITE % 1).encode())
        waiting = f"SELECT {sweep.mover} = ANY (pg_blocking_pids({client.info.backend_pid}))"
        wait_until(lambda: inside.execute(waiting).fetchone()[0], "the client waits for the page")
        # Other rows are nobody's business.
        inside.execute(WRITE, (900,))
        sweep.end()
        answered(client)
        answered(sweep.session)
        assert inside.execute("SELECT name FROM ONLY customer_private WHERE id = 1").fetchall() == [("name 1!",)]
        check_all(inside)


def test_who_does_not_wait_is_noticed(server, database, inside):
    with setting(server, "bullfrog.flaw", "pages_unseen"):
        client = database.connect()
        sweep = Sweep(database, inside)
        client.execute("SET statement_timeout = '30s'")
        client.execute(WRITE, (1,))
        sweep.end()
        answered(sweep.session)


# Without a key, a row that was copied twice is there twice. What a row is made of waits as long as somebody keeps a lock, but not for a client that says so.
KEYLESS = """
    CREATE FUNCTION gated(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
        IF current_setting('gate.passes', true) IS DISTINCT FROM 'yes' THEN
            PERFORM pg_advisory_lock_shared(7), pg_advisory_unlock_shared(7);
        END IF;
        RETURN $1;
    END $$"""


@pytest.mark.parametrize("flaw, rows", [(None, 1), ("pages_unseen", 2)])
def test_who_waited_for_the_move_of_a_page_does_not_copy_its_row_again(server, database, customers, flaw, rows):
    customers.execute(KEYLESS)
    migrate(customers, "CREATE TABLE t AS SELECT id, gated(name) AS name FROM customer", options=INSIDE)
    with setting(server, "bullfrog.flaw", flaw or "none"):
        client, sweeping, keeper = database.connect(), database.connect(), database.connect()
        client.execute("SET gate.passes = 'yes'")
        keeper.execute("SELECT pg_advisory_lock(7)")
        sweeping.pgconn.send_query(b"SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source")
        gated = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND wait_event = 'advisory' AND datname = current_database()"
        wait_until(lambda: customers.execute(gated).rowcount == 1, "the page is on its way")
        (mover,) = customers.execute(gated).fetchone()
        write = "UPDATE t SET name = 'x' WHERE id = 2"
        if flaw:
            client.execute(write)
        else:
            client.pgconn.send_query(write.encode())
            waiting = f"SELECT {mover} = ANY (pg_blocking_pids({client.info.backend_pid}))"
            wait_until(lambda: customers.execute(waiting).fetchone()[0], "the client waits for it")
        keeper.execute("SELECT pg_advisory_unlock(7)")
        answered(sweeping)
        if not flaw:
            answered(client)
    assert customers.execute("SELECT count(*), count(*) FILTER (WHERE name = 'x') FROM ONLY t WHERE id = 2").fetchone() == (rows, 1)


def test_a_page_of_many_rows_keeps_few_others_waiting(customers):
    """A transaction takes on no page more when it has rows enough."""
    customers.execute("CREATE TABLE narrow (id int PRIMARY KEY); INSERT INTO narrow SELECT generate_series(1, 5000)")
    migrate(customers, "CREATE TABLE t AS SELECT id FROM narrow; ALTER TABLE t ADD PRIMARY KEY (id)", options=INSIDE)
    customers.execute(SWEEP)
    together = customers.execute("SELECT sum(tuples), count(*) FROM bullfrog.moved GROUP BY moved_by").fetchall()
    (pages,) = customers.execute("SELECT pages FROM bullfrog.source").fetchone()
    assert sum(rows for rows, _ in together) == 5000 and sum(count for _, count in together) == pages
    assert max(rows for rows, _ in together) < 2 * 256 and max(count for _, count in together) <= 2


@pytest.mark.parametrize("flaw", [None, "pages_unseen"])
def test_a_snapshot_that_is_older_than_the_move_of_a_page_moves_no_row_of_it(server, database, inside, flaw):
    with setting(server, "bullfrog.flaw", flaw or "none"):
        client = database.connect()
        client.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert client.execute("SELECT count(*) FROM customer_public").fetchone() == (CUSTOMERS,)
        inside.execute("SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source")
        with pytest.raises(psycopg.errors.UniqueViolation if flaw else psycopg.errors.SerializationFailure):
            client.execute(WRITE, (1,))
        client.execute("ROLLBACK")
        client.execute(WRITE, (1,))
        assert marks(inside) == (1, 0)
        check_all(inside)


@pytest.mark.parametrize("options", [", granularity => 'tuple', checks => 'warn'", ", granularity => 'tuple', live => '{customer}'"])
def test_rows_move_one_by_one_where_a_row_may_be_put_aside_or_the_table_stays_in_use(customers, options):
    migrate(customers, SPLIT, "split", options)
    customers.execute(SWEEP)
    assert marks(customers) == (0, CUSTOMERS)
    check_all(customers)


def test_with_the_script_of_the_version_before_rows_are_marked_one_by_one(inside):
    """It has no column for how many they are."""
    inside.execute("SELECT bullfrog.finish('split')")
    wait_until(lambda: marks(inside) == (0, 0), "movers have forgotten what they moved")
    inside.execute("ALTER EXTENSION bullfrog DROP VIEW bullfrog.progress; DROP VIEW bullfrog.progress; ALTER TABLE bullfrog.moved DROP COLUMN tuples")
    migrate(inside, "CREATE TABLE t AS SELECT id, nick FROM customer_public; ALTER TABLE t ADD PRIMARY KEY (id)", "later", INSIDE)
    inside.execute(SWEEP)
    assert marks(inside) == (0, CUSTOMERS)
    inside.execute("SELECT bullfrog.finish('later')")
    assert inside.execute("SELECT count(*), count(DISTINCT id) FROM t").fetchone() == (CUSTOMERS, CUSTOMERS)
