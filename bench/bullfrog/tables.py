"""The server of these benchmarks, filled with the tables of TPC-C."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(BENCH), str(BENCH.parent / "extensions" / "bullfrog" / "tests")]

import record  # noqa: E402
import server as postgres  # noqa: E402

CARGO_TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", record.ROOT / "target"))
CLIENT = CARGO_TARGET / "release" / "bullfrog_bench"
LIBRARY = postgres.TARGET / "release" / "libbullfrog.so"
EXTENSION_LOADED = {"shared_preload_libraries": "bullfrog"}
SERVER_CORE = "0"
BEFORE_CLIENT = ["taskset", "-c", "1"]
SETTINGS = {
    "shared_buffers": "1GB",
    "max_worker_processes": "20",
    # Neither the disk nor a checkpoint is what is measured.
    "fsync": "off",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
}
PREWARM = """
    CREATE EXTENSION IF NOT EXISTS pg_prewarm;
    SELECT pg_prewarm(oid) FROM pg_class WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace
"""


def build_extension():
    """The extension, in release."""
    extension = postgres.EXTENSION / "Cargo.toml"
    subprocess.run(["cargo", "build", "--locked", "--release", "--manifest-path", extension], check=True)


def build():
    """The extension and the client, in release."""
    build_extension()
    subprocess.run(["cargo", "build", "--locked", "--release", "-p", "savanna-bench-bullfrog"], cwd=record.ROOT, check=True)


def add_options(parser):
    """What all of these benchmarks can be told."""
    parser.add_argument("--data", type=pathlib.Path, help="where the filled tables stay, for the next call with as many warehouses")
    parser.add_argument("--no-build", action="store_true", help="use what was built before")
    parser.add_argument("--dry", action="store_true", help="keep nothing")


def prepare(options):
    """Does what was told."""
    if not options.no_build:
        build()


def processor(pid):
    """Seconds of processor time of a server and all of its processes, those that have ended too."""
    ticks = 0
    for process in [pid, *children(pid)]:
        try:
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(map(int, fields[11:15 if process == pid else 13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def children(pid):
    return map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


class Tables:
    """A server, and its directory as it was when the tables had been filled. With `kept`, that directory stays for later."""

    def __init__(self, warehouses, kept=None):
        # So that the server ends when this is told to.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        self.server = postgres.Server(LIBRARY, SETTINGS, cores=SERVER_CORE)
        self.filled = kept or self.server.root / "filled"
        if self.filled.exists():
            self.server.stop()
        else:
            self.client("load", "--warehouses", warehouses)
            self.server.connect().execute(PREWARM)
            self.server.stop()
            subprocess.run(["cp", "-a", self.server.data, self.filled], check=True)

    def client(self, *arguments):
        """What a command of the client prints."""
        connection = f"host={self.server.root} user=postgres dbname=postgres"
        command = [*BEFORE_CLIENT, CLIENT, "--server", connection, *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stderr}{self.server.log.read_text()[-4000:]}")
        return done.stdout

    def start(self, settings):
        """Starts the server with fresh tables, all of them in memory."""
        shutil.rmtree(self.server.data, ignore_errors=True)
        subprocess.run(["cp", "-a", self.filled, self.server.data], check=True)
        with open(self.server.data / "postgresql.auto.conf", "a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in {"unix_socket_directories": self.server.root, **settings}.items())
        self.server.start()
        with self.server.connect() as connection:
            connection.execute(PREWARM)
            if "shared_preload_libraries" in settings:
                connection.execute("CREATE EXTENSION bullfrog")
            connection.execute("CHECKPOINT")
