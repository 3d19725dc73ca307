"""Expressions of a definition run with the rights of the old table's owner, and nothing that they do outlives them."""

import psycopg
import pytest

from conftest import migrate

ATTACKS = [
    "ALTER ROLE mallory SUPERUSER",
    "SET ROLE postgres",
    "RESET ROLE",
    "SET SESSION AUTHORIZATION postgres",
    "CREATE TEMPORARY TABLE trap (x int)",
    "DROP TABLE bullfrog.moved",
]

LOUD = "CREATE TABLE hers.loud AS SELECT id, hers.shout(label) AS label FROM hers.item; ALTER TABLE hers.loud ADD PRIMARY KEY (id)"


@pytest.fixture
def hostile(database):
    """A table whose owner wrote a function that tries what it can when somebody else calls it, and notes how it went."""
    connection = database.connect()
    connection.execute("CREATE ROLE mallory")
    connection.execute("CREATE SCHEMA hers AUTHORIZATION mallory")
    connection.execute("SET ROLE mallory")
    connection.execute("CREATE TABLE hers.item (id int PRIMARY KEY, label text)")
    connection.execute("INSERT INTO hers.item SELECT i, 'label ' || i || repeat('.', 1000) FROM generate_series(1, 50) i")
    connection.execute("CREATE TABLE hers.seen (who name)")
    connection.execute("CREATE TABLE hers.done (attack text)")
    attacks = ", ".join(f"'{attack}'" for attack in ATTACKS)
    connection.execute(f"""
        CREATE FUNCTION hers.attack() RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            attack text;
        BEGIN
            INSERT INTO hers.seen VALUES (current_user);
            FOREACH attack IN ARRAY ARRAY[{attacks}] LOOP
                BEGIN
                    EXECUTE attack;
                    INSERT INTO hers.done VALUES (attack);
                EXCEPTION WHEN OTHERS THEN NULL;
                END;
            END LOOP;
            PERFORM set_config('search_path', 'hers', false), set_config('application_name', 'hers', false);
        END $$""")
    connection.execute("""
        CREATE FUNCTION hers.shout(label text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
        $$ BEGIN PERFORM hers.attack(); RETURN upper(label); END $$""")
    connection.execute("RESET ROLE")
    yield connection
    connection.execute("ROLLBACK")
    connection.execute("DROP SCHEMA hers CASCADE; DROP OWNED BY mallory; DROP ROLE mallory")


def test_an_owners_function_gets_nobody_elses_rights(hostile):
    settings = "SELECT current_user, session_user, current_setting('search_path'), current_setting('application_name')"
    before = hostile.execute(settings).fetchone()
    migrate(hostile, LOUD)
    checked = hostile.execute("SELECT count(*) FROM hers.seen").fetchone()[0]
    assert checked == 50
    hostile.execute("SELECT FROM hers.loud WHERE id = 1 FOR UPDATE")
    assert hostile.execute("SELECT count(*) FROM hers.seen").fetchone()[0] > checked
    hostile.execute("SELECT bullfrog.finish('m', keep_old => true)")
    assert hostile.execute("SELECT DISTINCT who FROM hers.seen").fetchall() == [("mallory",)]
    assert hostile.execute("SELECT attack FROM hers.done").fetchall() == []
    assert hostile.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'").fetchone() == (False,)
    assert hostile.execute(settings).fetchone() == before
    assert hostile.execute("SELECT count(*) FROM hers.loud WHERE label LIKE 'LABEL%'").fetchone() == (50,)


def test_abort_compares_with_the_owners_rights(hostile):
    migrate(hostile, LOUD)
    hostile.execute("SELECT bullfrog.abort('m')")
    assert hostile.execute("SELECT DISTINCT who FROM hers.seen").fetchall() == [("mallory",)]
    assert hostile.execute("SELECT attack FROM hers.done").fetchall() == []


@pytest.mark.parametrize("statement", [
    "CREATE OR REPLACE FUNCTION hers.shout(label text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT lower(label)'",
    "ALTER FUNCTION hers.shout VOLATILE",
])
def test_a_function_of_a_definition_stays_as_it_is(hostile, statement):
    migrate(hostile, LOUD)
    with pytest.raises(psycopg.errors.ObjectInUse):
        hostile.execute(statement)
    hostile.execute("SELECT bullfrog.finish('m')")
    hostile.execute(statement)


def test_an_owner_who_may_not_use_the_schema_of_the_new_table_stops_the_switch(hostile):
    hostile.execute("CREATE SCHEMA elsewhere")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not use the schema"):
        migrate(hostile, "CREATE TABLE elsewhere.t AS SELECT id FROM hers.item")


def test_only_a_superuser_may_take_an_owners_rights(hostile):
    hostile.execute("GRANT EXECUTE ON FUNCTION bullfrog.evaluate TO mallory")
    hostile.execute("SET ROLE mallory")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        hostile.execute("SELECT bullfrog.evaluate('pg_class'::regclass, 'SELECT to_jsonb(1)')")
    hostile.execute("RESET ROLE")
