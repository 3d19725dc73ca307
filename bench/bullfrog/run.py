"""TPC-C while its schema changes: throughput and latency over time of bullfrog and of other ways (bench/METHOD.md).

    bench/bullfrog/run.py [--changes split totals joined] [--arms none bullfrog eager copy] [--rate 400] ..

Three changes of schema:
    split   the customers become two tables, private and public ones
    totals  the amount of each order gets a table of its own, beside the order lines
    joined  order lines and stock, joined by item, become one table, beside the stock

Four ways:
    none      no change, once before and once after the others, to see how far two runs of the same differ
    bullfrog  this project's extension: the application switches at once, rows move as they are needed and in the background
    eager     one transaction locks the old tables, copies all rows and ends the old schema; the application waits
    copy      triggers keep the new tables up to date while batches fill them, then the application switches

Builds the extension and the client (savanna-bench-bullfrog) in release. A server of PostgreSQL 15 in a temporary directory has core 0 (all
of its processes), the client core 1. Each run begins with a copy of the same tables, read into memory; the load goes on for --before
seconds, then the change is submitted, and the window begins. A rate of 0 is the closed loop: each terminal runs one transaction after the
other, as many as the server can do. With any other rate transactions arrive at random moments, whatever the server does. Afterwards the conditions of TPC-C are checked.
Appends a line per run to bench/results/bullfrog.jsonl; bench/plot.py draws them.

With --data the filled tables stay in a directory, for the next call; with --no-build nothing is built.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(BENCH), str(BENCH.parent / "extensions" / "bullfrog" / "tests")]

import record  # noqa: E402
import server as postgres  # noqa: E402

CARGO_TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", record.ROOT / "target"))
ARMS = ["none", "bullfrog", "eager", "copy"]
CLIENT = CARGO_TARGET / "release" / "bullfrog_bench"
LIBRARY = postgres.TARGET / "release" / "libbullfrog.so"
SERVER_CORE, CLIENT_CORE = "0", "1"
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


def build():
    extension = postgres.EXTENSION / "Cargo.toml"
    subprocess.run(["cargo", "build", "--locked", "--release", "--manifest-path", extension], check=True)
    subprocess.run(["cargo", "build", "--locked", "--release", "-p", "savanna-bench-bullfrog"], cwd=record.ROOT, check=True)


class Tables:
    """A server, and its directory as it was when the tables had been filled."""

    def __init__(self, warehouses, kept):
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
        connection = f"host={self.server.root} user=postgres dbname=postgres"
        command = ["taskset", "-c", CLIENT_CORE, CLIENT, "--server", connection, *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stderr}{self.server.log.read_text()[-4000:]}")
        return done.stdout

    def run(self, change, arm, arguments):
        """One run on fresh tables."""
        shutil.rmtree(self.server.data, ignore_errors=True)
        subprocess.run(["cp", "-a", self.filled, self.server.data], check=True)
        with open(self.server.data / "postgresql.auto.conf", "a") as settings:
            settings.write(f"unix_socket_directories = '{self.server.root}'\n")
            if arm == "bullfrog":
                settings.write("shared_preload_libraries = 'bullfrog'\n")
        self.server.start()
        with self.server.connect() as connection:
            connection.execute(PREWARM)
            if arm == "bullfrog":
                connection.execute("CREATE EXTENSION bullfrog")
            connection.execute("CHECKPOINT")
        report = json.loads(self.client("run", *(["--change", change, "--arm", arm] if change else []), *arguments))
        is_switched = any(name == "switched" for name, _ in report["events"])
        self.client("check", *(["--change", change] if is_switched else []))
        self.server.stop()
        return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", nargs="+", default=["split"], choices=["split", "totals", "joined"])
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    parser.add_argument("--rate", type=float, default=0, help="transactions per second; 0: as many as can be done")
    parser.add_argument("--warehouses", type=int, default=4)
    parser.add_argument("--terminals", type=int, default=16)
    parser.add_argument("--before", type=int, default=10)
    parser.add_argument("--window", type=int, default=120)
    parser.add_argument("--data", type=pathlib.Path, help="where the filled tables stay; they must be of as many warehouses")
    parser.add_argument("--no-build", action="store_true")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    options = parser.parse_args()
    if not options.no_build:
        build()
    tables = Tables(options.warehouses, options.data)
    where = record.circumstances(record.head(), "release")
    shape = {"warehouses": options.warehouses, "terminals": options.terminals, "before": options.before, "window": options.window}
    arguments = [word for name, value in shape.items() for word in (f"--{name}", value)] + (["--rate", options.rate] if options.rate else [])
    none = [(None, "none")] if "none" in options.arms else []
    runs = [*none, *((change, arm) for change in options.changes for arm in options.arms if arm != "none"), *none]
    heads = ["change", "way", "done", "per s", "p50 ms", "p99 ms", "max ms", "waiting", "server busy", "client busy",
             "events"]  # fmt: skip
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    try:
        for change, arm in runs:
            report = tables.run(change, arm, arguments)
            latency, cores = report["latency"], report["cores"]
            events = ", ".join(f"{name} {at:.1f}" for name, at in report["events"])
            cells = [change or "", arm, report["completed"], round(report["throughput"]), *latency.values(), report["waiting"],
                     *(f"{core['busy']:.2f}" for core in cores[:2]), events]  # fmt: skip
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            if not options.dry:
                record.keep("bullfrog", where, [{"change": change, "arm": arm, "rate": options.rate, **shape, **report}])
    finally:
        tables.server.remove()


if __name__ == "__main__":
    main()
