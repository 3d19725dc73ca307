"""The end: old tables are dropped only when every row is in a new one, and every snapshot sees it there."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, migrate

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
