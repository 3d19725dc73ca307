"""A server of tenants, and PostgreSQL to compare it with."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BINARY = TARGET / "debug" / "examples" / "tenants_server"
# Seeds of what is killed, which also decide when.
CRASHES = range(int(os.environ.get("TENANTS_CRASHES", "2")))
# It would take years.
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000)"


class Server:
    """The server of tenants alone; it can be killed and started again on the same log."""

    def __init__(self, directory, address="127.0.0.1:0", more=()):
        self.directory = directory
        self.arguments = address, [str(argument) for argument in more]
        self.epoch = 0
        self.process = None
        # Seconds from a start until it listened, the last time that somebody waited for that.
        self.took = 0

    def start(self):
        self.epoch += 1
        self.began = time.monotonic()
        with open(self.directory / "server.log", "a") as log:
            address, more = self.arguments
            self.process = subprocess.Popen([BINARY, self.directory / "data", address, str(self.epoch), *more],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def listen(self):
        line = self.process.stdout.readline()
        assert line.startswith("listening on"), (self.directory / "server.log").read_text()
        self.port = int(line.rsplit(":", 1)[1])
        self.took = time.monotonic() - self.began

    def awake(self):
        """How many tenants are awake."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline().split()[3])

    def stop(self):
        """Stops in order."""
        self.process.communicate("stop\n", timeout=60)
        assert self.process.returncode == 0, (self.directory / "server.log").read_text()

    def kill(self):
        """Whether it has said what nobody has read, as that it listens."""
        self.process.send_signal(signal.SIGKILL)
        said, _ = self.process.communicate()
        return bool(said)

    def kill_while_it_starts(self, dice, times):
        """Starts, and is killed within so many times as long as it took to listen. Whether it listened already."""
        self.start()
        time.sleep(dice.uniform(0, times * self.took))
        return self.kill()

    def crash_storm(self, dice):
        """Comes back after a kill, and is killed twice before. How often it did not listen yet: it was reading its log."""
        early = [self.kill_while_it_starts(dice, times) for times in (1, 2)].count(False)
        self.start()
        self.listen()
        return early

    def connect(self, database="postgres", **options):
        return psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname={database}", **options)

    def run(self, *command):
        environment = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "postgres", "PGDATABASE": "postgres"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout, done.stderr


@contextlib.contextmanager
def busy_with_endless(connection):
    """Has a connection run a statement that still runs at the end, where it is cancelled."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(connection.execute, ENDLESS)
        try:
            yield
            assert not running.done()
        finally:
            connection.cancel_safe()
            error = running.exception()
    assert isinstance(error, psycopg.errors.QueryCanceled)


@contextlib.contextmanager
def running(directory, **options):
    """A server that listens, and is killed at the end."""
    server = Server(directory, **options)
    server.start()
    server.listen()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("tenants")) as server:
        yield server


PROGRAMS = pathlib.Path(os.environ.get("PG_PROGRAMS", "/usr/lib/postgresql/15/bin"))
# initdb refuses to run as root.
USER = "postgres" if os.geteuid() == 0 else None


class PostgreSQL:
    """A PostgreSQL of its own, with the collation and time zone of tenants."""

    def __init__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tenants-pg-"))
        if USER:
            shutil.chown(self.root, USER)
        options = {"user": USER, "cwd": self.root, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        initdb = [PROGRAMS / "initdb", "-D", self.root / "data", "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8",
                  "--locale=C", "--lc-ctype=C.UTF-8"]
        subprocess.run(initdb, check=True, **options)
        settings = {"listen_addresses": "", "unix_socket_directories": self.root, "fsync": "off", "timezone": "UTC"}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.process = subprocess.Popen([PROGRAMS / "postgres", "-D", self.root / "data", *flags], **options)

    def connect(self, database="postgres", **options):
        deadline = time.monotonic() + 30
        while True:
            try:
                return psycopg.connect(host=str(self.root), user="postgres", dbname=database, **options)
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        shutil.rmtree(self.root)


@pytest.fixture(scope="module")
def postgresql():
    postgresql = PostgreSQL()
    yield postgresql
    postgresql.stop()
