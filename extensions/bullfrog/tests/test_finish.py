"""The end: old tables are dropped only when every row is in a new one, and every snapshot sees it there."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, answered, migrate, moved, wait_until

COUNT = "SELECT count(*) FROM customer_private"
MOVES = ["", ", granularity => 'tuple'", ", granularity => 'tuple', moves => 'transaction'"]


def test_finish_is_refused_in_a_transaction_that_moved_rows_itself(customers):
    migrate(customers, SPLIT, "split", ", granularity => 'tuple', moves => 'transaction'")
    with customers.transaction():
        customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="moved rows of split itself"), customers.transaction():
            customers.execute("SELECT bullfrog.finish('split')")
    customers.execute("SELECT bullfrog.finish('split')")
    assert customers.execute(COUNT).fetchone() == (CUSTOMERS,)
    assert customers.execute("SELECT to_regclass('customer')").fetchone() == (None,)


@pytest.mark.parametrize("options", MOVES)
def test_finish_is_refused_while_a_row_is_in_no_new_table(customers, options):
    """Moving is broken: nothing is moved, and nothing is lost."""
    migrate(customers, SPLIT, "split", options)
    sweep = customers.execute("SELECT pg_get_functiondef('bullfrog.sweep'::regproc)").fetchone()[0]
    customers.execute("CREATE OR REPLACE FUNCTION bullfrog.sweep(source int, pages bigint[]) RETURNS void LANGUAGE sql STRICT AS ''")
    with pytest.raises(psycopg.errors.ObjectInUse, match="in no new table yet"):
        customers.execute("SELECT bullfrog.finish('split')")
    customers.execute(sweep)
    customers.execute("SELECT bullfrog.finish('split')")
    assert customers.execute(COUNT).fetchone() == (CUSTOMERS,)


@pytest.mark.parametrize("options", MOVES)
def test_finish_is_refused_if_rows_came_to_an_old_table_behind_the_switch(customers, options):
    migrate(customers, SPLIT, "split", options)
    customers.execute("""CREATE FUNCTION behind() RETURNS bigint LANGUAGE sql AS $$ SELECT bullfrog.change('customer'::regclass,
        'INSERT INTO public.customer SELECT i, i::text, repeat(''.'', 500) FROM generate_series(10000, 10100) i') $$""")
    customers.execute("SELECT behind()")
    with pytest.raises(psycopg.errors.ObjectInUse, match="in no new table yet"):
        customers.execute("SELECT bullfrog.finish('split')")
    assert customers.execute("SELECT to_regclass('customer') IS NOT NULL").fetchone() == (True,)
    customers.execute("SELECT bullfrog.abort('split', discard_writes => true)")


def test_a_snapshot_is_noticed_that_is_younger_than_a_look_at_the_sessions(database, split):
    reader = database.connect()
    with split.transaction():
        split.execute("SELECT count(*) FROM pg_stat_activity")
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class")
        with pytest.raises(psycopg.errors.ObjectInUse, match="still needed by process"), split.transaction():
            split.execute("SELECT bullfrog.finish('split')")
    assert reader.execute(COUNT).fetchone() == (CUSTOMERS,)
    reader.execute("COMMIT")
    split.execute("SELECT bullfrog.finish('split')")


SWEEP = "SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source"


def test_a_sweep_leaves_out_only_what_its_own_transaction_has_in_progress(database, customers):
    migrate(customers, SPLIT, "split", ", granularity => 'tuple', moves => 'transaction'")
    other = database.connect()
    with customers.transaction():
        customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
        customers.execute(SWEEP)
        assert moved(other) == CUSTOMERS - 1


def test_a_sweep_waits_for_others_also_where_its_own_transaction_has_rows(database, customers):
    migrate(customers, SPLIT, "split", ", granularity => 'tuple', moves => 'transaction'")
    sweeping, other = database.connect(), database.connect()
    other.execute("BEGIN; UPDATE customer_private SET name = 'y' WHERE id = 2")
    sweeping.execute("BEGIN; SAVEPOINT s; UPDATE customer_private SET name = 'x' WHERE id IN (1, 3)")
    sweeping.pgconn.send_query(SWEEP.encode())
    waiting = f"SELECT {other.info.backend_pid} = ANY (pg_blocking_pids({sweeping.info.backend_pid}))"
    wait_until(lambda: customers.execute(waiting).fetchone() == (True,), "it waits for the other")
    # Movers may have begun beside it.
    wait_until(lambda: moved(customers) == CUSTOMERS - 3, "all others are moved")
    other.execute("ROLLBACK")
    answered(sweeping)
    assert moved(customers) == CUSTOMERS - 2
    sweeping.execute("COMMIT")
    assert moved(customers) == CUSTOMERS


def test_a_mover_that_waits_for_a_new_table_has_none_of_the_views_that_finish_drops(customers, database):
    """Else finish, which has the tables, would wait for it in a circle."""
    connection, other, looking = database.connect(), database.connect(), database.connect()
    migrate(connection, "CREATE TABLE town AS SELECT city, count(*) AS customers FROM customer GROUP BY city")
    other.execute("BEGIN")
    other.execute("LOCK TABLE town")
    connection.pgconn.send_query(b"SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source")
    waits = f"FROM pg_stat_activity a WHERE backend_type = 'bullfrog mover' AND {other.info.backend_pid} = ANY (pg_blocking_pids(pid))"
    wait_until(lambda: looking.execute(f"SELECT count(*) {waits}").fetchone() == (1,), "a mover waits for the table")
    locked = "SELECT c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation AND c.relkind = 'v'"
    assert looking.execute(f"{locked} WHERE l.pid = (SELECT pid {waits})").fetchall() == []
    other.execute("COMMIT")
    answered(connection)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_move_asked_for_while_finish_drops_its_views_says_that_the_migration_has_ended(database, split, is_known):
    """Also where a mover has prepared its statements before."""
    other, looking = database.connect(), database.connect()
    if is_known:
        other.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    sweep = "SELECT bullfrog.sweep(%d, '{0}')" % looking.execute("SELECT id FROM bullfrog.source").fetchone()
    split.execute("BEGIN")
    split.execute("SELECT bullfrog.finish('split')")
    other.pgconn.send_query(sweep.encode())
    waits = f"SELECT count(*) FROM pg_stat_activity WHERE {split.info.backend_pid} = ANY (pg_blocking_pids(pid))"
    wait_until(lambda: looking.execute(waits).fetchone()[0] > 0, "a mover waits for the table")
    split.execute("COMMIT")
    result = other.pgconn.get_result()
    assert b"its migration was not committed yet, or has ended" in result.error_message
    while other.pgconn.get_result():
        pass


def test_who_opens_full_tables_does_not_wait_for_finish(split, database):
    split.execute("BEGIN")
    split.execute("SELECT bullfrog.finish('split')")
    other = database.connect()
    other.execute("SET statement_timeout = '10s'")
    other.execute("SELECT bullfrog.settle()")
    split.execute("COMMIT")
