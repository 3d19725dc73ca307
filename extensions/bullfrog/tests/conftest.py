"""A PostgreSQL server of its own for the tests, from the system's packages, with the extension beside it.

The programs and files of the server are laid out again in a temporary directory (copies and links): a server finds its
libraries by where its program lies, so nothing is installed into the system, and no cluster of the system is touched.
"""

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import psycopg
import pytest

EXTENSION = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", EXTENSION / "target"))
LIBRARY = TARGET / "debug" / "libbullfrog.so"
PG_CONFIG = os.environ.get("PGRX_PG_CONFIG_PATH", "/usr/lib/postgresql/15/bin/pg_config")

# initdb refuses to run as root.
USER = "postgres" if os.geteuid() == 0 else None


def config(what):
    return pathlib.Path(subprocess.check_output([PG_CONFIG, f"--{what}"], text=True).strip())


def lay_out(root):
    """Builds the directory from which the server runs; gives the directory of its programs."""
    programs, libraries, shared = (root / config(what).relative_to("/") for what in ("bindir", "pkglibdir", "sharedir"))
    programs.mkdir(parents=True)
    for program in ("initdb", "pg_dump", "postgres"):
        shutil.copy(config("bindir") / program, programs)
    for source, destination in ((config("pkglibdir"), libraries), (config("sharedir"), shared)):
        destination.mkdir(parents=True)
        for entry in source.iterdir():
            if entry.name != "extension":
                (destination / entry.name).symlink_to(entry)
    (shared / "extension").mkdir()
    for entry in (config("sharedir") / "extension").iterdir():
        (shared / "extension" / entry.name).symlink_to(entry)
    shutil.copy(LIBRARY, libraries / "bullfrog.so")
    shutil.copy(EXTENSION / "bullfrog.control", shared / "extension")
    for script in (EXTENSION / "sql").iterdir():
        shutil.copy(script, shared / "extension")
    return programs


class Server:
    def __init__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="bullfrog-"))
        self.programs = lay_out(self.root)
        self.data = self.root / "data"
        self.log = self.root / "log"
        if USER:
            account = pwd.getpwnam(USER)
            os.chown(self.root, account.pw_uid, account.pw_gid)
        self.run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        settings = {
            "shared_preload_libraries": "bullfrog",
            "listen_addresses": "",
            "unix_socket_directories": str(self.root),
            "max_worker_processes": "20",
            "deadlock_timeout": "100ms",
            "max_prepared_transactions": "20",
            # The machine does not lose power in these tests, only processes die.
            "fsync": "off",
            "bullfrog.start_delay": "1h",
            "bullfrog.rest": "0",
        }
        with open(self.data / "postgresql.conf", "a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.start()

    def run(self, program, *arguments):
        done = subprocess.run([self.programs / program, *arguments], user=USER, capture_output=True, text=True, cwd=self.root)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}{self.log.read_text() if self.log.exists() else ''}"
        return done.stdout

    def start(self):
        with open(self.log, "a") as log:
            # A backtrace would be the detail of every error.
            environment = {name: value for name, value in os.environ.items() if name != "RUST_BACKTRACE"}
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data], user=USER, cwd=self.root, env=environment, stdout=log, stderr=log
            )
        wait_until(self.answers, "the server takes connections")

    def answers(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def kill(self):
        """Ends the whole server as a power failure does, but for what the operating system had in its caches."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in [self.process.pid, *map(int, children)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(60)
        wait_until(lambda: all(is_gone(pid) for pid in children), "killed processes are gone")

    def connect(self, database="postgres", **options):
        return psycopg.connect(host=str(self.root), user="postgres", dbname=database, autocommit=True, **options)

    def remove(self):
        try:
            self.stop()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)


def wait_until(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)


def is_gone(pid):
    """Whether a process has ended, be it that nobody has asked how."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


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
    server = Server()
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
    with server.connect() as admin:
        admin.execute("CREATE DATABASE template")
    with server.connect("template") as connection:
        connection.execute("CREATE EXTENSION bullfrog")
        connection.execute("CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL, ssn text, nick text, city text)")
        connection.execute(
            "INSERT INTO customer SELECT i, 'name ' || i, 's' || i, 'nick ' || i, 'city ' || (i % 10) || repeat('.', 200)"
            f" FROM generate_series(1, {CUSTOMERS}) i"
        )
        connection.execute("ANALYZE customer")
    with server.connect() as admin:
        admin.execute("ALTER DATABASE template ALLOW_CONNECTIONS false")
    return "template"


@contextlib.contextmanager
def database_from(server, template, name):
    name = "".join(c if c.isalnum() else "_" for c in name)[:60].lower()
    with server.connect() as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE {template}')
    database = Database(server, name)
    yield database
    database.close()
    with server.connect() as admin:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


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


def migrate(connection, definition, name="m"):
    connection.execute("SELECT bullfrog.migrate(%s, %s)", (name, definition), prepare=False)


def moved(connection):
    """How many pages or groups were moved."""
    return connection.execute("SELECT sum(granules_moved)::int FROM bullfrog.progress").fetchone()[0]


def differing(connection, table, expected):
    """How many rows are in one of two tables only."""
    return connection.execute(
        f"SELECT count(*) FROM ((TABLE {table} EXCEPT ALL TABLE {expected}) UNION ALL (TABLE {expected} EXCEPT ALL TABLE {table})) d"
    ).fetchone()[0]
