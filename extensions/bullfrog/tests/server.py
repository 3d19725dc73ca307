"""A PostgreSQL server of its own for tests and benchmarks, from the system's packages, with the extension beside it.

The programs and files of the server are laid out again in a temporary directory (copies and links): a server finds its
libraries by where its program lies, so nothing is installed into the system, and no cluster of the system is touched.
"""

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
PG_CONFIG = os.environ.get("PGRX_PG_CONFIG_PATH", "/usr/lib/postgresql/15/bin/pg_config")

# initdb refuses to run as root.
USER = "postgres" if os.geteuid() == 0 else None


# A server is upgraded by all of them. Not every package has more than the first three.
PROGRAMS = ("initdb", "pg_dump", "postgres", "pg_controldata", "pg_ctl", "pg_dumpall", "pg_resetwal", "pg_restore", "pg_upgrade", "psql",
    "vacuumdb")


# Files in memory, and how much of it has to be free.
MEMORY, ROOM = "/dev/shm", 4 << 30


def place_of_data(in_memory):
    """An empty directory. The databases of tests are made and dropped in half of the time where no file system has to find inodes for them."""
    try:
        free = os.statvfs(MEMORY)
        has_room = free.f_bavail * free.f_frsize >= ROOM
    except FileNotFoundError:
        has_room = False
    return pathlib.Path(tempfile.mkdtemp(prefix="bullfrog-", dir=MEMORY if in_memory and has_room else None))


def config(what):
    return pathlib.Path(subprocess.check_output([PG_CONFIG, f"--{what}"], text=True).strip())


def needs(program):
    """Of tests that need a program of the server's package: not every one has it."""
    return pytest.mark.skipif(not (config("bindir") / program).exists(), reason=f"the server of {PG_CONFIG} comes without {program}")


def lay_out(root, library, extension):
    """Builds the directory from which the server runs; gives the directory of its programs."""
    programs, libraries, shared = (root / config(what).relative_to("/") for what in ("bindir", "pkglibdir", "sharedir"))
    programs.mkdir(parents=True)
    for program in PROGRAMS:
        if (config("bindir") / program).exists():
            shutil.copy(config("bindir") / program, programs)
    for source, destination in ((config("pkglibdir"), libraries), (config("sharedir"), shared)):
        destination.mkdir(parents=True)
        for entry in source.iterdir():
            if entry.name != "extension":
                (destination / entry.name).symlink_to(entry)
    (shared / "extension").mkdir()
    for entry in (config("sharedir") / "extension").iterdir():
        (shared / "extension" / entry.name).symlink_to(entry)
    # What programs of a package need of others lies beside them, or beside the package.
    for other in (config("bindir").parent / "lib").glob("*.so*"):
        if not (programs.parent / "lib" / other.name).exists():
            (programs.parent / "lib" / other.name).symlink_to(other)
    for others in config("bindir").parents[2].glob("*.libs"):
        (root / others.relative_to("/")).symlink_to(others)
    shutil.copy(library, libraries / "bullfrog.so")
    subprocess.run([EXTENSION / "assemble", shared / "extension", extension], check=True)
    return programs


class Server:
    """A server with this build of the extension and these settings, on all cores or those that `taskset -c` would get. The extension's
    script is that of this source, or of another one. In memory: what it keeps is there, if there is room."""

    def __init__(self, library, settings, cores=None, extension=EXTENSION, in_memory=False):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="bullfrog-"))
        self.programs = lay_out(self.root, library, extension)
        self.cores = cores
        # Databases that tests have left, to be dropped.
        self.left_over = []
        self.admin = None
        self.data = place_of_data(in_memory)
        self.log = self.root / "log"
        if USER:
            account = pwd.getpwnam(USER)
            for directory in (self.root, self.data):
                os.chown(directory, account.pw_uid, account.pw_gid)
        self.run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.root), **settings}
        with open(self.data / "postgresql.conf", "a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.start()

    def run(self, program, *arguments, **environment):
        done = subprocess.run([self.programs / program, *arguments], user=USER, capture_output=True, text=True, cwd=self.root,
            env={**os.environ, **environment})
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}{self.log.read_text() if self.log.exists() else ''}"
        return done.stdout

    def start(self):
        with open(self.log, "a") as log:
            # A backtrace would be the detail of every error.
            environment = {name: value for name, value in os.environ.items() if name != "RUST_BACKTRACE"}
            pinned = ["taskset", "-c", self.cores] if self.cores else []
            self.process = subprocess.Popen(
                [*pinned, self.programs / "postgres", "-D", self.data], user=USER, cwd=self.root, env=environment, stdout=log, stderr=log
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
        # It starts no others meanwhile, which would be left.
        self.process.send_signal(signal.SIGSTOP)
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

    def ask(self, statement, parameters=None):
        """Runs a statement in the database postgres, on a connection that is kept as long as the server lives."""
        try:
            if self.admin:
                return self.admin.execute(statement, parameters)
        except psycopg.OperationalError:
            # It was ended with all others.
            if not self.admin.closed:
                raise
        self.admin = self.connect()
        return self.admin.execute(statement, parameters)

    def remove(self):
        try:
            if self.process.poll() is None:
                self.stop()
        finally:
            for directory in (self.root, self.data):
                shutil.rmtree(directory, ignore_errors=True)


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
