"""Logical replication beside a migration: of other tables it goes on, of those that are part of it there is none until the end."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, database_from, migrate, wait_until

SLOT = "beside_a_migration"


@pytest.fixture
def subscriber(server, template, customers):
    """A database that follows the table `other` of the customers' database."""
    customers.execute("CREATE TABLE other (id int PRIMARY KEY, note text); CREATE PUBLICATION p FOR TABLE other")
    customers.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
    with database_from(server, template, "subscriber") as database:
        connection = database.connect()
        connection.execute("CREATE TABLE other (id int PRIMARY KEY, note text)")
        # A slot of the same server cannot be made by the subscription itself.
        connection.execute(f"CREATE SUBSCRIPTION s CONNECTION 'host={server.root} user=postgres dbname={customers.info.dbname}' PUBLICATION p"
            f" WITH (create_slot = false, slot_name = {SLOT})")
        yield connection
        connection.execute("ALTER SUBSCRIPTION s DISABLE")
        connection.execute("ALTER SUBSCRIPTION s SET (slot_name = NONE)")
        connection.execute("DROP SUBSCRIPTION s")
        is_free = "SELECT FROM pg_replication_slots WHERE slot_name = %s AND NOT active"
        wait_until(lambda: customers.execute(is_free, (SLOT,)).rowcount == 1, "nobody reads the slot")
        customers.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))


def finish_when_free(connection):
    """Who sends changes to the subscriber may still need the old tables for a moment."""
    def is_done():
        try:
            connection.execute("SELECT bullfrog.finish('split')")
        except psycopg.errors.ObjectInUse as error:
            assert "still needed by process" in str(error)
            return False
        return True

    wait_until(is_done, "nobody needs the old tables any more")


def follows(connection, expected):
    wait_until(lambda: connection.execute("SELECT id, note FROM other ORDER BY id").fetchall() == expected, "the subscriber has all")


def test_other_tables_are_replicated_before_while_and_after_rows_move(customers, subscriber):
    customers.execute("INSERT INTO other VALUES (1, 'before')")
    migrate(customers, SPLIT, "split")
    with customers.transaction():
        customers.execute("INSERT INTO other VALUES (2, 'with a move')")
        customers.execute("UPDATE customer_private SET name = 'moved' WHERE id = 1")
    follows(subscriber, [(1, "before"), (2, "with a move")])
    finish_when_free(customers)
    customers.execute("UPDATE other SET note = 'after' WHERE id = 1")
    follows(subscriber, [(1, "after"), (2, "with a move")])
    assert customers.execute("SELECT count(*) FROM customer_private").fetchone() == (CUSTOMERS,)


def test_a_table_that_a_subscription_writes_to_is_refused(customers, subscriber):
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="a subscription writes to it"):
        migrate(subscriber, "CREATE TABLE t AS SELECT id FROM other")


def test_a_published_table_is_refused(customers, subscriber):
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="publication p has it"):
        migrate(customers, "CREATE TABLE t AS SELECT id FROM other")


def test_a_table_on_the_move_cannot_be_published(customers, subscriber):
    migrate(customers, SPLIT, "split")
    for table in ("customer", "customer_private"):
        with pytest.raises(psycopg.errors.ObjectInUse):
            customers.execute(f"ALTER PUBLICATION p ADD TABLE {table}")
    with pytest.raises(psycopg.errors.ObjectInUse):
        customers.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    finish_when_free(customers)
    customers.execute("ALTER PUBLICATION p ADD TABLE customer_private")
