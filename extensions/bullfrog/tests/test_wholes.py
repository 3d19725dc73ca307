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


def test_rows_of_a_page_that_was_moved_are_not_moved_again(inside):
    inside.execute("SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source")
    (rows,) = inside.execute(ON_PAGE_0).fetchone()
    inside.execute("SELECT bullfrog.move(1, ARRAY(SELECT bullfrog.place(bullfrog_tid) FROM bullfrog.transformed_1 WHERE bullfrog.page(bullfrog_tid) = 0))")
    inside.execute("SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source")
    assert (marks(inside), moved(inside)) == ((1, 0), rows)
    check_all(inside)


@pytest.mark.parametrize("conflicts", ["tracker", "on_conflict"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "ROLLBACK TO s"])
def test_a_page_of_which_a_client_has_a_row_in_progress_is_left_to_it(server, database, inside, end, conflicts):
    with setting(server, "bullfrog.conflicts", conflicts):
        client, sweeping = database.connect(), database.connect()
        (rows,) = inside.execute(ON_PAGE_0).fetchone()
        client.execute("BEGIN; SAVEPOINT s")
        client.execute(WRITE, (1,))
        sweeping.pgconn.send_query(b"SELECT bullfrog.sweep(id, '{0, 1}') FROM bullfrog.source")
        # Without claims the move of the rows waits for that one.
        others = rows - 1 if conflicts == "tracker" else 0
        wait_until(lambda: marks(inside) == (1, others), "the other page, and the other rows, are moved")
        client.execute(end)
        if end == "ROLLBACK TO s":
            client.execute("ROLLBACK")
        answered(sweeping)
        # It was asked for again, or the move of the rows goes on.
        assert marks(inside) == {"tracker": (2, others + (end == "COMMIT")), "on_conflict": (1, rows)}[conflicts]
        assert moved(inside) == inside.execute("SELECT count(*) FROM bullfrog.transformed_1 WHERE bullfrog.page(bullfrog_tid) < 2").fetchone()[0]
        name = "name 1!" if end == "COMMIT" else "name 1"
        assert inside.execute("SELECT name FROM ONLY customer_private WHERE id = 1").fetchall() == [(name,)]
        check_all(inside)


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
        """It is undone, and begins again."""
        self.admin.execute("SELECT pg_terminate_backend(%s)", (self.mover,))


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
