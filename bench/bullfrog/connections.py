"""Many connections while rows move: transactions per second of two builds of the extension beside each other (bench/METHOD.md).

    bench/bullfrog/connections.py [--clients 90 120 200] [--extensions OLD NEW] [--pairs 7] [--seconds 15] ..

A table of customers is split into two. pgbench updates customers by key at random, one row per transaction, prepared, with so many
connections: for --before seconds before the switch, then from the switch on. The background is at its defaults but begins at once. Each run
has a server of its own; runs of several builds take turns, each named by its source, in which it was built. Told are transactions per second before and after, their ratio, and the
slowest second. Appends to bench/results/bullfrog_connections.jsonl.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(BENCH), str(BENCH.parent / "extensions" / "bullfrog" / "tests")]

import record  # noqa: E402
from server import EXTENSION, Server, config  # noqa: E402

SETTINGS = {
    "shared_preload_libraries": "bullfrog",
    "shared_buffers": "512MB",
    "max_connections": "250",
    "max_worker_processes": "20",
    "bullfrog.start_delay": "0",
    # Neither the disk nor a checkpoint is what is measured.
    "fsync": "off",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}
DEFINITION = """
    CREATE TABLE customer_private AS SELECT id, name, balance FROM customer;
    CREATE TABLE customer_public AS SELECT id, nick, city FROM customer;
    ALTER TABLE customer_private ADD PRIMARY KEY (id);
    ALTER TABLE customer_public ADD PRIMARY KEY (id);
"""


def load(server, table, rows, clients, seconds, directory):
    """Runs pgbench; gives its transactions per second in each second."""
    script = directory / f"{table}.sql"
    script.write_text(f"\\set id random(1, {rows})\nUPDATE {table} SET balance = balance + 1 WHERE id = :id;\n")
    options = ["-n", "-M", "prepared", "-c", clients, "-j", 2, "-T", seconds, "-P", 1, "-f", script]
    command = [config("bindir") / "pgbench", "-h", server.root, "-U", "postgres", *options, "postgres"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr + server.log.read_text()[-4000:])
    return [float(figure) for figure in re.findall(r"^progress: .*?, ([\d.]+) tps", done.stderr, re.MULTILINE)]


def run(extension, clients, options):
    """One run on a fresh server."""
    server = Server(extension / "target" / options.profile / "libbullfrog.so", SETTINGS, extension=extension)
    try:
        with tempfile.TemporaryDirectory() as directory, server.connect() as connection:
            connection.execute("CREATE EXTENSION bullfrog")
            connection.execute("CREATE TABLE customer (id int PRIMARY KEY, name text, balance int NOT NULL, nick text, city text)")
            connection.execute(
                "INSERT INTO customer SELECT i, 'name ' || i, 0, 'nick ' || i, 'city ' || repeat('.', 200)"
                f" FROM generate_series(1, {options.rows}) i"
            )
            connection.execute("VACUUM ANALYZE customer")
            directory = pathlib.Path(directory)
            before = load(server, "customer", options.rows, clients, options.before, directory)
            wishes = options.options and f", {options.options}"
            connection.execute(f"SELECT bullfrog.migrate('split', %s{wishes})", (DEFINITION,), prepare=False)
            after = load(server, "customer_private", options.rows, clients, options.seconds, directory)
            left, pages = connection.execute("SELECT sum(pages_left)::int, sum(pages)::int FROM bullfrog.progress").fetchone()
    finally:
        server.remove()
    figures = {"before": statistics.mean(before), "after": statistics.mean(after), "slowest_second": min(after)}
    return {**figures, "ratio": figures["after"] / figures["before"], "pages_left": left, "pages": pages, "seconds": after}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", nargs="+", type=int, default=[90, 120, 200])
    parser.add_argument("--extensions", nargs="+", type=pathlib.Path, default=[EXTENSION])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--before", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--options", default="", help="further arguments of bullfrog.migrate, as \"granularity => 'tuple'\"")
    parser.add_argument("--profile", default="release", choices=["release", "debug"])
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    options = parser.parse_args()
    where = record.circumstances(record.head(), options.profile)
    print("| connections | extension | before, per s | after | ratio | slowest second | pages left |\n|---|---|---|---|---|---|---|")
    for clients in options.clients:
        for number in range(options.pairs):
            for extension in options.extensions if number % 2 == 0 else options.extensions[::-1]:
                figures = run(extension, clients, options)
                print(f"| {clients} | {extension} | {figures['before']:.0f} | {figures['after']:.0f} | {figures['ratio']:.3f} | "
                      f"{figures['slowest_second']:.0f} | {figures['pages_left']} of {figures['pages']} |", flush=True)  # fmt: skip
                if not options.dry:
                    what = {"clients": clients, "extension": extension.name, "options": options.options, "rows": options.rows}
                    record.keep("bullfrog_connections", where, [{**what, "number": number, **figures}])


if __name__ == "__main__":
    main()
