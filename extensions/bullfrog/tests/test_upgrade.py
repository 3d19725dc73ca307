"""Backup and upgrade in the middle of a migration."""

import psycopg
import pytest

from conftest import CUSTOMERS, LIBRARY, SETTINGS, migrate
from server import Server, needs

pytestmark = needs("pg_upgrade")

# What a table's form is made of: constraints, triggers, functions, keys of all kinds; a live table, too.
SCHEMA = """
    CREATE EXTENSION bullfrog;
    CREATE SCHEMA own;
    CREATE FUNCTION own.loud(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT upper($1)';
    CREATE FUNCTION own.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TABLE own.town (id int PRIMARY KEY, name text);
    CREATE TABLE own.customer (id int PRIMARY KEY, name text NOT NULL, town int REFERENCES own.town, CHECK (id > 0));
    CREATE TRIGGER note AFTER UPDATE ON own.customer FOR EACH ROW EXECUTE FUNCTION own.note();
    INSERT INTO own.town SELECT i, 'town ' || i FROM generate_series(1, 10) i;
    INSERT INTO own.customer SELECT i, 'name ' || i || repeat('.', 200), 1 + i % 10 FROM generate_series(1, 1000) i"""
DEFINITION = """
    CREATE TABLE own.person AS SELECT id, own.loud(name) AS called, town FROM own.customer;
    ALTER TABLE own.person ADD PRIMARY KEY (id); ALTER TABLE own.person ADD FOREIGN KEY (town) REFERENCES own.town;
    ALTER TABLE own.person ADD CHECK (id > 0); CREATE UNIQUE INDEX ON own.person ((id + 1)) WHERE town IS NOT NULL;
    CREATE TRIGGER note AFTER UPDATE ON own.person FOR EACH ROW EXECUTE FUNCTION own.note();
    CREATE TABLE own.place AS SELECT id, name FROM own.town; ALTER TABLE own.place ADD PRIMARY KEY (id)"""


@pytest.fixture
def upgrade():
    """Two servers, of which the first can become the second."""
    old, new = Server(LIBRARY, SETTINGS, in_memory=True), Server(LIBRARY, SETTINGS, in_memory=True)

    def run():
        old.stop()
        new.stop()
        new.run("pg_upgrade", "-b", old.programs, "-B", new.programs, "-d", old.data, "-D", new.data, "-U", "postgres", "-s", new.root)
        new.start()

    try:
        yield old, new, run
    finally:
        for server in (old, new):
            server.remove()


def test_a_migration_goes_on_after_pg_upgrade(upgrade):
    old, new, run = upgrade
    for name in ("finished", "aborted"):
        with old.connect() as admin:
            # Numbers of what is created next are others than in a fresh server.
            admin.execute(f"CREATE DATABASE {name}")
        with old.connect(name) as connection:
            connection.execute("CREATE TABLE gap (id int PRIMARY KEY, CHECK (id > 0)); DROP TABLE gap")
            connection.execute(SCHEMA)
            migrate(connection, DEFINITION, options=", live => '{own.town}'")
            connection.execute("UPDATE own.person SET called = 'x' WHERE id = 7; UPDATE own.town SET name = 'later' WHERE id = 1")
    run()
    for name in ("finished", "aborted"):
        with new.connect(name) as connection:
            assert connection.execute("SELECT count(*), count(*) FILTER (WHERE called = 'x') FROM own.person").fetchone() == (1000, 1)
            assert connection.execute("SELECT name FROM own.place WHERE id = 1").fetchone() == ("town 1",)
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
                connection.execute("SELECT FROM own.customer")
            connection.execute("CREATE TABLE other (id int)")
            with pytest.raises(psycopg.errors.ObjectInUse):
                connection.execute("ALTER TABLE own.person ADD COLUMN more int")
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.execute("INSERT INTO own.person VALUES (900, 'twice')")
            connection.execute("UPDATE own.town SET name = 'later' WHERE id = 2; UPDATE own.person SET called = 'x' WHERE id = 8")
            assert connection.execute("SELECT name FROM own.place WHERE id = 2").fetchone() == ("town 2",)
            if name == "finished":
                connection.execute("SELECT bullfrog.finish('m')")
                assert connection.execute("SELECT count(*), count(*) FILTER (WHERE called = 'x') FROM own.person").fetchone() == (1000, 2)
                connection.execute("ALTER TABLE own.person ADD COLUMN more int")
            else:
                connection.execute("SELECT bullfrog.abort('m', discard_writes => true)")
                assert connection.execute("SELECT count(*) FROM own.customer").fetchone() == (1000,)


def written(split):
    split.execute("UPDATE customer_private SET name = 'moved' WHERE id = 7; INSERT INTO customer_private VALUES (5000, 'new', 's')")


def test_a_dump_is_restored_in_one_transaction(server, database, split):
    written(split)
    file = server.root / "dump"
    with pytest.raises(AssertionError, match="is closed"):
        server.run("pg_dump", "-h", server.root, "-U", "postgres", "-f", file, database.name)
    server.run("pg_dump", "-h", server.root, "-U", "postgres", "--no-table-access-method", "-f", file, database.name,
        PGOPTIONS="-c bullfrog.dump_closed=on")
    with server.connect() as admin:
        admin.execute("CREATE DATABASE restored")
    try:
        server.run("psql", "-X", "-h", server.root, "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-1", "-f", file, "restored")
        with server.connect("restored") as restored:
            assert restored.execute("SELECT count(*), count(*) FILTER (WHERE name = 'moved') FROM customer_private").fetchone() == (
                CUSTOMERS + 1, 1)
            # As of the switch.
            assert restored.execute("SELECT count(*), count(*) FILTER (WHERE name = 'moved') FROM customer").fetchone() == (CUSTOMERS, 0)
            assert restored.execute("SELECT count(*) FROM bullfrog.progress").fetchone() == (0,)
            restored.execute("INSERT INTO customer_private VALUES (5001, 'new', 's')")
            restored.execute("DROP SCHEMA bullfrog CASCADE")
            assert restored.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchone() == (0,)
            migrated = restored.execute("SELECT count(*) FROM customer_private JOIN customer_public USING (id)").fetchone()
            assert migrated == (CUSTOMERS,)
            restored.execute("DROP TABLE customer")
    finally:
        with server.connect() as admin:
            admin.execute("DROP DATABASE restored WITH (FORCE)")


def test_pg_dumpall_reads_all_rows(server, split):
    written(split)
    dumped = server.run("pg_dumpall", "-h", server.root, "-U", "postgres", "--no-table-access-method",
        PGOPTIONS="-c bullfrog.dump_closed=on")
    assert "\n5000\tnew\ts\n" in dumped and "\n7\tmoved\ts7\n" in dumped and "\n8\tname 8\ts8\n" in dumped


def test_a_closed_table_is_dumped_only_where_that_was_asked_for(split):
    split.execute("SET bullfrog.dump_closed = on")
    with split.cursor().copy("COPY customer TO STDOUT") as copy:
        assert len(list(copy.rows())) == CUSTOMERS
    for statement in ("SELECT FROM customer", "COPY customer FROM STDIN", "UPDATE customer SET name = ''"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            split.execute(statement)
