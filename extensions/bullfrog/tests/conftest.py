"""The server and the databases of the tests."""

import collections
import contextlib
import itertools
import random

import psycopg
import pytest
from psycopg import sql

import seeds
from server import TARGET, Server, wait_until

LIBRARY = TARGET / "debug" / "libbullfrog.so"
SETTINGS = {
    "shared_preload_libraries": "bullfrog",
    "max_worker_processes": "20",
    "max_connections": "200",
    "deadlock_timeout": "100ms",
    "max_prepared_transactions": "20",
    "wal_level": "logical",
    # The machine does not lose power in these tests, only processes die.
    "fsync": "off",
    # Plans that are estimated to be dear are not compiled, and nothing reads tables by itself.
    "jit": "off",
    "autovacuum": "off",
    "bullfrog.start_delay": "1h",
    "bullfrog.rest": "0",
    "bullfrog.yield_at": "0",
    "bullfrog.movers": "3",
}


# How many of its cases a test has where there is a selection of everything: `make suites` has all.
CASES = 4


def pytest_configure(config):
    config.addinivalue_line("markers", "long: left to the long tests (`make suites`)")


def pytest_collection_modifyitems(items):
    """Leaves all but some cases of each test to the long tests: some that are always the same, and no pattern of their parameters."""
    if seeds.COUNT:
        return
    of_tests = collections.defaultdict(list)
    for item in items:
        of_tests[item.path, item.originalname].append(item)
    for (_, name), cases in of_tests.items():
        for case in random.Random(name).sample(cases, max(len(cases) - CASES, 0)):
            case.add_marker(pytest.mark.long)


def wait_for_crash(connection):
    """Waits until the server has noticed that one of its processes was killed: it ends all sessions. Until then it would
    take a connection that it is about to end."""
    def is_ended():
        try:
            connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return True
        return False

    wait_until(is_ended, "the server noticed the crash")


def reconnect(database):
    connections = []

    def try_to():
        try:
            connections.append(database.connect())
        except psycopg.OperationalError:
            return False
        return True

    wait_until(try_to, "the server takes connections")
    return connections[0]


@pytest.fixture(scope="session")
def server():
    server = Server(LIBRARY, SETTINGS, in_memory=True)
    yield server
    server.remove()


class Database:
    """A database of its own for one test."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.connections = []

    def connect(self, **options):
        connection = self.server.connect(self.name, **options)
        self.connections.append(connection)
        return connection

    def close(self):
        for connection in self.connections:
            connection.close()


CUSTOMERS = 1000

SPLIT = """
    CREATE TABLE customer_private AS SELECT id, name, ssn FROM customer;
    CREATE TABLE customer_public AS SELECT id, nick, upper(city) AS town FROM customer;
    ALTER TABLE customer_private ADD PRIMARY KEY (id);
    ALTER TABLE customer_public ADD PRIMARY KEY (id);
    CREATE INDEX ON customer_public (nick);
"""


@pytest.fixture(scope="session")
def template(server):
    """A database with the extension and a table of 1000 customers on many pages, from which those of tests are copied."""
    begin_template(server)
    with server.connect("template") as connection:
        connection.execute("CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL, ssn text, nick text, city text)")
        connection.execute(
            "INSERT INTO customer SELECT i, 'name ' || i, 's' || i, 'nick ' || i, 'city ' || (i % 10) || repeat('.', 200)"
            f" FROM generate_series(1, {CUSTOMERS}) i"
        )
        connection.execute("ANALYZE customer")
    with server.connect() as admin:
        admin.execute("ALTER DATABASE template ALLOW_CONNECTIONS false")
    return "template"


def begin_template(server):
    """Creates the template, with the extension."""
    with server.connect() as admin:
        admin.execute("CREATE DATABASE template")
    with server.connect("template") as connection:
        connection.execute("CREATE EXTENSION bullfrog")


NUMBERS = itertools.count(1)


@contextlib.contextmanager
def database_from(server, template, name):
    """A copy of a template, with a name of its own that begins with this one."""
    name = f"{''.join(c if c.isalnum() else '_' for c in name)[:50].lower()}_{next(NUMBERS)}"
    server.ask(f'CREATE DATABASE "{name}" TEMPLATE {template} STRATEGY file_copy')
    database = Database(server, name)
    try:
        yield database
    finally:
        database.close()
        roll_back_prepared(server, name)
        drop_later(server, name)


def drop_later(server, name):
    """Tells the processes in a database to end, and drops those in which they have had time to: the server looks ten times a second only
    whether the last has ended."""
    server.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
    while len(server.left_over) > 1:
        server.ask(f'DROP DATABASE IF EXISTS "{server.left_over.pop(0)}" WITH (FORCE)')
    server.left_over.append(name)


def roll_back_prepared(server, name):
    """A test that fails may leave prepared transactions: their database could not be dropped, and their locks and names would
    be in the way of later tests."""
    left = server.ask("SELECT gid FROM pg_prepared_xacts WHERE database = %s", (name,)).fetchall()
    if left:
        with server.connect(name) as connection:
            for (gid,) in left:
                connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(gid))


@pytest.fixture
def database(server, template, request):
    with database_from(server, template, request.node.name) as database:
        yield database


@pytest.fixture(scope="module")
def shared_database(server, template, request):
    """For tests that leave everything as they found it."""
    with database_from(server, template, f"shared by {request.node.name}") as database:
        yield database


@pytest.fixture
def customers(database):
    return database.connect()


@pytest.fixture
def split(customers):
    """The customers, with the split under way and nothing moved yet."""
    migrate(customers, SPLIT, "split")
    return customers


@pytest.fixture(scope="module")
def shared_customers(shared_database):
    return shared_database.connect()


@pytest.fixture(scope="module")
def shared_split(shared_customers):
    migrate(shared_customers, SPLIT, "split")
    return shared_customers


def migrate(connection, definition, name="m", options=""):
    """Switches; `options` are further arguments of bullfrog.migrate. Where they do not say how, rows move by pages and movers."""
    for name_of_option, value in (("granularity", "page"), ("moves", "worker")):
        if name_of_option not in options:
            options += f", {name_of_option} => '{value}'"
    connection.execute(f"SELECT bullfrog.migrate(%s, %s{options})", (name, definition), prepare=False)


def finish_under_load(admin):
    """Finishes migration m as an operator does: again, as long as somebody still needs the old rows."""
    def is_finished():
        try:
            admin.execute("SELECT bullfrog.finish('m')")
        except psycopg.errors.ObjectInUse:
            return False
        return True

    wait_until(is_finished, "the migration is finished")


@contextlib.contextmanager
def setting(server, name, value):
    """A setting of the server, for a while."""
    def change(statement):
        with server.connect() as admin:
            admin.execute(statement)
            admin.execute("SELECT pg_reload_conf()")

    def is_set():
        with server.connect() as admin:
            return admin.execute(f"SELECT sourcefile LIKE '%auto.conf' FROM pg_settings WHERE name = '{name}'").fetchone() == (True,)

    change(f"ALTER SYSTEM SET {name} = '{value}'")
    try:
        wait_until(is_set, f"{name} is {value}")
        yield
    finally:
        change(f"ALTER SYSTEM RESET {name}")
        wait_until(lambda: not is_set(), f"{name} is not {value} any more")


def begin_unguarded(connection):
    """Begins a transaction that writes new tables behind the back of their migration. To be rolled back; the session has not
    used these tables before."""
    connection.execute("BEGIN")
    connection.execute("SET LOCAL allow_system_table_mods = on")
    connection.execute("SET LOCAL session_replication_role = replica")
    connection.execute("UPDATE pg_trigger SET tgenabled = 'O' WHERE tgname LIKE 'bullfrog%'")


def answered(connection):
    """Waits for the answer to a query that was sent; it must be no error."""
    result = connection.pgconn.get_result()
    assert result.error_message == b"", result.error_message
    while connection.pgconn.get_result():
        pass


def moved(connection):
    """How many pages or groups were moved."""
    return connection.execute("SELECT sum(granules_moved)::int FROM bullfrog.progress").fetchone()[0]


def differing(connection, table, expected):
    """How many rows are in one of two tables only."""
    return connection.execute(
        f"SELECT count(*) FROM ((TABLE {table} EXCEPT ALL TABLE {expected}) UNION ALL (TABLE {expected} EXCEPT ALL TABLE {table})) d"
    ).fetchone()[0]


def require_icu(connection):
    """Leaves a test out where the server has no collations that are not deterministic."""
    try:
        connection.execute("CREATE COLLATION of_icu (provider = icu, locale = 'und')")
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("the server was built without ICU")


ATTACKS = [
    "ALTER ROLE mallory SUPERUSER",
    "SET ROLE postgres",
    "RESET ROLE",
    "SET SESSION AUTHORIZATION postgres",
    "CREATE TEMPORARY TABLE trap (x int)",
    "DROP TABLE bullfrog.moved",
]


@pytest.fixture
def hostile(database):
    """A table whose owner wrote a function that tries what it can when somebody else calls it, and notes how it went."""
    connection = database.connect()
    connection.execute("CREATE ROLE mallory LOGIN")
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


def escalated(connection):
    """Whom mallory's code ran as."""
    assert connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'").fetchone() == (False,)
    assert connection.execute("SELECT attack FROM hers.done").fetchall() == []
    return connection.execute("SELECT DISTINCT who FROM hers.seen").fetchall()
