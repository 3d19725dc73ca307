"""Tables on the move keep their form, as far as a migration relies on it."""

import psycopg
import pytest

from conftest import CUSTOMERS, differing, migrate

DEFINITION = r"""
    CREATE TABLE t AS SELECT id, name, nick FROM customer; ALTER TABLE t ADD PRIMARY KEY (id);
    ALTER TABLE t ADD CONSTRAINT small CHECK (id < 100000 AND id::float8 > -0.12345678901234567 AND ('2026-01-02 03:04:05+00'::timestamptz
        < '2026-05-06'::timestamptz OR '1 day 2 hours'::interval > '0' OR id::text::bytea <> '\xff00')); ALTER TABLE t ADD CONSTRAINT known FOREIGN KEY (id) REFERENCES other;
    CREATE UNIQUE INDEX keyed ON t (upper(nick)); CREATE TRIGGER note AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note()"""


@pytest.fixture(scope="module")
def moving(shared_customers):
    shared_customers.execute(f"""
        CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other SELECT generate_series(1, {CUSTOMERS}); CREATE SCHEMA elsewhere;
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'""")
    migrate(shared_customers, DEFINITION)
    return shared_customers


@pytest.mark.parametrize("change", [
    "ALTER TABLE t DROP CONSTRAINT small", "ALTER TABLE t ADD CHECK (id > 0)",
    "ALTER TABLE t DROP CONSTRAINT small, ADD CONSTRAINT small CHECK (id < 2000)", "ALTER TABLE t DROP CONSTRAINT known",
    "ALTER TABLE t DROP CONSTRAINT known, ADD CONSTRAINT known FOREIGN KEY (id) REFERENCES other ON DELETE CASCADE",
    "ALTER TABLE other ADD FOREIGN KEY (id) REFERENCES t NOT VALID", "ALTER TABLE t DISABLE TRIGGER note", "DROP TRIGGER note ON t",
    "CREATE OR REPLACE TRIGGER note AFTER DELETE ON t FOR EACH ROW EXECUTE FUNCTION note()", "DROP TRIGGER bullfrog_insert ON t",
    "CREATE OR REPLACE TRIGGER note AFTER UPDATE ON t FOR EACH ROW WHEN (NEW.id > 5) EXECUTE FUNCTION note()",
    "CREATE OR REPLACE TRIGGER note AFTER UPDATE OF name ON t FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE OR REPLACE TRIGGER note AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note('x')",
    "CREATE TRIGGER more AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note()", "ALTER TABLE t DISABLE TRIGGER bullfrog_update",
    "CREATE RULE r AS ON DELETE TO t DO INSTEAD NOTHING", "CREATE POLICY p ON t USING (true)", "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "DROP INDEX keyed", "CREATE UNIQUE INDEX ON t (nick)", "ALTER TABLE t RENAME TO u", "ALTER TABLE t SET SCHEMA elsewhere",
    "ALTER TABLE t ADD COLUMN more int", "ALTER TABLE t ALTER nick SET NOT NULL", "ALTER TABLE t ALTER name TYPE varchar",
    "CREATE VIEW v AS SELECT FROM customer", "CREATE TABLE child () INHERITS (t)", "ALTER TABLE customer ADD CHECK (id > 0)",
])
def test_a_change_of_form_is_refused(moving, change):
    with pytest.raises((psycopg.errors.ObjectInUse, psycopg.errors.ObjectNotInPrerequisiteState)):
        moving.execute(change)


@pytest.mark.parametrize("change", [
    "ALTER TABLE other RENAME TO another", "ALTER TABLE other RENAME id TO number", "ALTER TABLE other SET SCHEMA elsewhere",
    "ALTER TABLE t RENAME CONSTRAINT small TO little", "CREATE INDEX ON t (name)", "ALTER TABLE t ALTER name SET DEFAULT 'x'",
    "CREATE VIEW v AS SELECT FROM t", "CREATE TABLE more (id int)",
])
def test_what_a_migration_does_not_rely_on_may_change(moving, change):
    moving.execute("BEGIN")
    try:
        moving.execute(change)
    finally:
        moving.execute("ROLLBACK")


@pytest.mark.parametrize("setting", ["quote_all_identifiers = on", "timezone = 'Asia/Tokyo'", "datestyle = 'German'", "intervalstyle = 'iso_8601'",
    "extra_float_digits = -15", "bytea_output = 'escape'", "search_path = elsewhere"])
def test_a_form_is_the_same_whatever_the_session_is_set_to(moving, setting):
    moving.execute(f"SET {setting}")
    try:
        moving.execute("CREATE TABLE elsewhere.more (id int); DROP TABLE elsewhere.more")
    finally:
        moving.execute("RESET ALL")


@pytest.mark.parametrize("style", ["postgres", "sql_standard", "iso_8601", "postgres_verbose"])
def test_constants_of_a_definition_do_not_depend_on_how_the_caller_is_shown_them(database, style):
    """They go by way of their texts: a name of a zone or a sign may mean another one there, and digits may be missing."""
    client = database.connect()
    client.execute("CREATE TABLE c (id int PRIMARY KEY, x float8, d timestamptz, i interval); INSERT INTO c VALUES (1, 0, '2026-01-01', NULL), (2, 1, NULL, '5 s')")
    client.execute(f"SET timezone = 'Asia/Kolkata'; SET datestyle = 'SQL'; SET extra_float_digits = -12; SET intervalstyle = '{style}'")
    rows = "SELECT id, x + '1.23456789'::float8 AS y, greatest(d, timestamptz '2030-01-01 00:00:00+00') AS g, " \
        "coalesce(i, make_interval(days => -1, hours => 2)) AS h, coalesce(i, make_interval(years => -1, months => 1, days => 2, secs => -3)) AS k FROM c"
    client.execute(f"CREATE TABLE expected AS {rows}")
    migrate(client, f"CREATE TABLE n AS {rows}; ALTER TABLE n ADD PRIMARY KEY (id); CREATE INDEX ON n ((h + make_interval(days => -1, hours => 2)))", "m")
    client.execute("RESET ALL")
    assert differing(client, "n", "expected") == 0
    client.execute("UPDATE n SET id = id; SELECT bullfrog.finish('m')")
    assert differing(client, "n", "expected") == 0
