"""Tables of a migration get other names in the transaction of the switch, from which on nobody knows them by those that they had, and in no later one."""

import psycopg
import pytest

from conftest import CUSTOMERS, begin_unguarded, differing, migrate
from test_owners import DOORS, log_in

DEFINITION = """
    CREATE TABLE named AS SELECT id, name, nick FROM customer; ALTER TABLE named ADD PRIMARY KEY (id);
    CREATE TABLE secret AS SELECT id, ssn FROM customer; ALTER TABLE secret ADD PRIMARY KEY (id)"""
RENAMES = "ALTER TABLE customer RENAME TO customer_old; ALTER TABLE named RENAME TO customer"
WAYS = {"as it is best": ", granularity => 'auto', moves => 'auto'", "by pages": "", "inside by pages": ", moves => 'transaction'"}
REFUSED = (psycopg.errors.ObjectInUse, psycopg.errors.ObjectNotInPrerequisiteState)


def switch(connection, renames=RENAMES, definition=DEFINITION, options=""):
    connection.execute("BEGIN")
    migrate(connection, definition, options=options)
    connection.execute(renames)
    connection.execute("COMMIT")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["finish", "abort"])
def test_a_migration_goes_on_under_other_names(database, customers, way, end):
    customers.execute("CREATE TABLE expected AS SELECT id, name, nick FROM customer; ALTER TABLE expected ADD PRIMARY KEY (id)")
    switch(customers, options=WAYS[way])
    client = database.connect()
    for table in ("customer", "expected"):
        client.execute(f"UPDATE {table} SET nick = 'x' WHERE id = 7; DELETE FROM {table} WHERE id = 8; INSERT INTO {table} VALUES (5000, 'n', 'new')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            client.execute(f"INSERT INTO {table} VALUES (500, 'twice')")
    client.execute("DELETE FROM secret WHERE id = 8; INSERT INTO secret VALUES (5000, 's')")
    assert differing(client, "customer", "expected") == 0
    # Nothing else may change, now as ever.
    client.execute("CREATE TABLE other (); DROP TABLE other")
    customers.execute(f"SELECT bullfrog.{end}('m')")
    if end == "abort":
        client.execute("CREATE VIEW customer AS SELECT id, name, nick FROM customer_old")
    assert differing(client, "customer", "expected") == 0
    assert client.execute("SELECT to_regclass('named')").fetchone() == (None,)


def test_names_may_change_again_and_back(customers):
    customers.execute("BEGIN")
    migrate(customers, DEFINITION)
    customers.execute("ALTER TABLE named RENAME TO first; SAVEPOINT s; ALTER TABLE first RENAME TO second; ROLLBACK TO s")
    customers.execute("ALTER TABLE first RENAME TO \"a third\"; ALTER TABLE \"a third\" RENAME TO named; ALTER TABLE named RENAME TO \"the last\"; COMMIT")
    assert customers.execute("UPDATE \"the last\" SET nick = 'x'").rowcount == CUSTOMERS
    customers.execute("SELECT bullfrog.finish('m')")


def test_two_tables_exchange_their_names(customers):
    customers.execute("CREATE TABLE expected AS SELECT id, ssn FROM customer")
    switch(customers, "ALTER TABLE named RENAME TO other; ALTER TABLE secret RENAME TO named; ALTER TABLE other RENAME TO secret")
    customers.execute("UPDATE named SET ssn = ssn; UPDATE secret SET nick = nick")
    assert differing(customers, "named", "expected") == 0
    customers.execute("SELECT bullfrog.finish('m')")
    assert differing(customers, "named", "expected") == 0


def test_rows_that_moved_before_the_name_changed_and_after_it(customers):
    customers.execute("BEGIN")
    migrate(customers, DEFINITION, options=WAYS["as it is best"])
    try:
        customers.execute("SAVEPOINT s; UPDATE named SET nick = 'x' WHERE id = 1")
    except psycopg.errors.ObjectNotInPrerequisiteState:
        # What the transaction of the switch cannot do yet.
        customers.execute("ROLLBACK TO s")
    customers.execute(RENAMES)
    customers.execute("COMMIT; UPDATE customer SET nick = 'x' WHERE id < 50; UPDATE secret SET ssn = 'x'")
    assert customers.execute("SELECT count(*) FROM customer WHERE nick = 'x'").fetchone() == (49,)
    customers.execute("SELECT bullfrog.finish('m')")


@pytest.mark.parametrize("before", ["", "SELECT bullfrog.pause('m')", "SELECT bullfrog.pause('m'); SELECT bullfrog.resume('m')"])
def test_in_a_later_transaction_no_name_changes(database, customers, before):
    switch(customers)
    other = database.connect()
    for connection in (customers, other):
        for rename in ("ALTER TABLE customer RENAME TO c", "ALTER TABLE secret RENAME TO c", "ALTER TABLE customer_old RENAME TO c"):
            connection.execute(f"BEGIN; {before}")
            with pytest.raises(REFUSED):
                connection.execute(rename)
            connection.execute("ROLLBACK")


@pytest.mark.parametrize("change", ["ALTER TABLE named ADD more int", "ALTER TABLE named SET SCHEMA elsewhere", "ALTER TABLE named RENAME nick TO n",
    "ALTER TABLE customer ADD CHECK (id > 0)", "DROP INDEX named_pkey CASCADE"])
def test_nothing_but_names_changes_in_the_transaction_of_the_switch(customers, change):
    customers.execute("CREATE SCHEMA elsewhere; BEGIN")
    migrate(customers, DEFINITION)
    with pytest.raises((*REFUSED, psycopg.errors.DependentObjectsStillExist)):
        customers.execute(change)


@pytest.mark.parametrize("table", ["customer", "named"])
def test_a_change_that_comes_with_a_name_is_noticed(customers, table):
    """Nothing is taken for a change of the name that is more."""
    customers.execute("CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    begin_unguarded(customers)
    migrate(customers, DEFINITION)
    customers.execute(f"UPDATE pg_attribute SET attnotnull = true WHERE attrelid = '{table}'::regclass AND attname = 'nick'")
    with pytest.raises(REFUSED):
        customers.execute(f"ALTER TABLE {table} RENAME TO other")


def test_groups_and_rows_in_quarantine_go_by_the_new_name(customers):
    customers.execute("CREATE TABLE expected AS SELECT upper(city) AS town, count(*) AS n FROM customer WHERE id > 0 GROUP BY 1")
    customers.execute("UPDATE customer SET nick = NULL WHERE id = 5")
    definition = """CREATE TABLE named AS SELECT id, nick FROM customer; ALTER TABLE named ADD PRIMARY KEY (id), ALTER nick SET NOT NULL;
        CREATE TABLE "INSERT INTO" AS SELECT upper(city) AS town, count(*) AS n FROM customer GROUP BY 1; ALTER TABLE "INSERT INTO" ADD PRIMARY KEY (town)"""
    switch(customers, "ALTER TABLE named RENAME TO kept; ALTER TABLE \"INSERT INTO\" RENAME TO towns", definition, ", checks => 'quarantine'")
    assert customers.execute("SELECT new_table FROM bullfrog.quarantine").fetchall() == [("public.kept",)]
    customers.execute("UPDATE towns SET n = n; UPDATE kept SET nick = 'x'")
    assert differing(customers, "towns", "expected") == 0
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT count(*) FROM kept").fetchone() == (CUSTOMERS - 1,)


def test_a_name_that_cannot_be_followed_is_refused(customers):
    column = '"INSERT INTO public.named ("'
    customers.execute(f"ALTER TABLE customer ADD {column} int; BEGIN")
    migrate(customers, f"CREATE TABLE named AS SELECT id, {column} FROM customer; ALTER TABLE named ADD PRIMARY KEY (id)")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="Rename the table when the migration has ended"):
        customers.execute("ALTER TABLE named RENAME TO other")


def test_an_owner_of_tables_does_it(hostile, database):
    hostile.execute(f"GRANT EXECUTE ON FUNCTION {DOORS} TO mallory")
    owner = log_in(database, "mallory", "hers, public")
    switch(owner, "ALTER TABLE item RENAME TO item_old; ALTER TABLE named RENAME TO item",
        "CREATE TABLE named AS SELECT id, label FROM item; ALTER TABLE named ADD PRIMARY KEY (id)")
    assert owner.execute("UPDATE item SET label = 'x'").rowcount == 50
    with pytest.raises(REFUSED):
        owner.execute("ALTER TABLE item RENAME TO named")
    owner.execute("SELECT bullfrog.finish('m')")
    assert owner.execute("SELECT count(*) FROM item WHERE label = 'x'").fetchone() == (50,)
