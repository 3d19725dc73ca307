"""What clients notice of a way back: bullfrog.abort, of a split of two million rows (bench/METHOD.md).

    bench/bullfrog/back.py [--states none all written meanwhile] [--rate 1000] [--clients 8] [--pairs 3] ..

The table becomes two, one of which takes its name, and then

    none      no rows move but those that clients write
    all       all rows move, and nobody writes before the way back begins
    written   all rows move, and a fifth of them are written
    meanwhile all rows move, and the last fifth of them, which pgbench leaves alone, are written by one transaction while abort is at work

pgbench updates rows by key at random, so many a second (--rate 0: as fast as it can), prepared, before, during and after the way back; another client reads a row every 5 ms. Told are how long abort took, the longest
that a write and a read took meanwhile (of a write from when it was due), the p99 of writes, the server's processor time, and the same p99 before. The server (PostgreSQL 15, all of its processes) has core
0, pgbench core 1. Afterwards the old table has its name and a sum of balances that is what was written. Appends to bench/results/bullfrog_back.jsonl.
"""

import argparse
import random
import threading
import time

import psycopg
from bars import NEW, Load, Table, percentile
from tables import EXTENSION_LOADED, build_extension, processor, record

# Of how many rows one is written before.
EACH = 5
STATES = ["none", "all", "written", "meanwhile"]


class Reader:
    """A client that reads rows by key, and notes what each read took and when it was over."""

    def __init__(self, server, rows):
        self.server, self.rows, self.is_ended, self.done, self.failures = server, rows, False, [], []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        chance = random.Random(1)
        try:
            with self.server.connect(prepare_threshold=0) as connection:
                while not self.is_ended:
                    begun = time.time()
                    connection.execute("SELECT balance FROM customer WHERE id = %s", (chance.randrange(1, self.rows + 1),)).fetchone()
                    self.done.append((time.time(), (time.time() - begun) * 1000))
                    time.sleep(0.005)
        except BaseException as failure:
            self.failures.append(failure)

    def end(self):
        self.is_ended = True
        self.thread.join(60)
        if self.failures:
            raise self.failures[0]
        return self.done


class Bulk:
    """A client that writes many rows in one transaction as soon as writes are noted, or behind the way back."""

    def __init__(self, server, above):
        self.server, self.rows, self.failures = server, 0, []
        self.update = f"UPDATE customer SET balance = balance + 1 WHERE id > {above}"
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            with self.server.connect(prepare_threshold=None) as connection:
                while connection.execute("SELECT count(*) > 0 FROM bullfrog.source WHERE noted_for IS NULL").fetchone()[0]:
                    time.sleep(0.005)
                try:
                    self.rows = connection.execute(self.update).rowcount
                except psycopg.errors.UndefinedTable:
                    # It waited for the way back, and its table is gone.
                    self.rows = connection.execute(self.update).rowcount
        except BaseException as failure:
            self.failures.append(failure)

    def end(self):
        self.thread.join(600)
        if self.failures:
            raise self.failures[0]
        return self.rows


def prepare(connection, state):
    """Switches, and brings the tables to a state. Gives how many balances were written."""
    with connection.transaction():
        definition = NEW.format(private="customer_private", public="customer_public", old="customer")
        connection.execute("SELECT bullfrog.migrate('split', %s)", (definition,))
        connection.execute("ALTER TABLE customer RENAME TO customer_old; ALTER TABLE customer_private RENAME TO customer")
    written = 0
    if state != "none":
        while connection.execute("SELECT sum(pages_left) FROM bullfrog.progress").fetchone()[0]:
            time.sleep(0.5)
    if state == "written":
        written = connection.execute(f"UPDATE customer SET balance = balance + 1 WHERE id % {EACH} = 0").rowcount
    connection.execute("VACUUM (ANALYZE) customer")
    connection.execute("CHECKPOINT")
    return written


def go_back(server):
    """As the README has it; gives how long that took."""
    with server.connect(prepare_threshold=None) as connection:
        begun = time.time()
        with connection.transaction():
            connection.execute("SELECT bullfrog.abort('split')")
            connection.execute("ALTER TABLE customer_old RENAME TO customer")
        return begun, time.time()


def run(table, state, options):
    """One run on a fresh table."""
    table.start({**EXTENSION_LOADED, "bullfrog.start_delay": "1h" if state == "none" else "0"})
    server = table.server
    with server.connect(prepare_threshold=None) as connection:
        written = prepare(connection, state)
    # Who writes a row that another one writes waits for that one, not for abort.
    reached = table.rows - table.rows // EACH if state == "meanwhile" else table.rows
    load = Load(server, reached, options.clients, options.before + options.window, options.rate, "update")
    reader = Reader(server, table.rows)
    time.sleep(options.before)
    used = processor(server.process.pid)
    bulk = Bulk(server, reached) if state == "meanwhile" else None
    begun, ended = go_back(server)
    used = processor(server.process.pid) - used
    done = load.done()
    reads = reader.end()
    written += bulk.end() if bulk else 0
    assert ended < begun + options.window, f"it took {ended - begun:.0f} s: give it more time (--window)"
    with server.connect() as connection:
        total, = connection.execute("SELECT sum(balance) FROM customer").fetchone()
        left = connection.execute("SELECT count(*) FROM pg_class WHERE relname IN ('customer_old', 'customer_private', 'customer_public')").fetchone()
    assert total == len(done) + written and left == (0,), f"{len(done)} and {written} updates were told to be done, {total} are there; {left}"
    server.stop()
    # All that somebody waited for meanwhile, however long after it that was done.
    during = lambda taken: [took for at, took in taken if begun <= at and at - took / 1000 < ended]
    before = [took for at, took in done if begun - options.before + 1 <= at < begun]
    return {
        "seconds": round(ended - begun, 2), "writes": len(during(done)), "longest_write": round(max(during(done), default=0), 1),
        "p99": percentile(during(done), 99), "longest_read": round(max(during(reads), default=0), 1),
        "p99_before": percentile(before, 99), "longest_before": round(max(before, default=0), 1), "server_seconds": round(used, 1),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", nargs="+", default=STATES, choices=STATES)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1000, help="writes per second")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--before", type=int, default=10)
    parser.add_argument("--window", type=int, default=120, help="seconds that clients go on from the beginning of abort")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    parser.add_argument("--no-build", action="store_true", help="use what was built before")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    options = parser.parse_args()
    if not options.no_build:
        build_extension()
    where = record.circumstances(record.head(), "release")
    table = Table(options.rows)
    heads = ["state", "rows", "writes per s", "abort, s", "longest write, ms", "p99 of writes", "longest read, ms", "before: p99 of writes", "longest", "server's CPU, s"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)
    try:
        for number in range(options.pairs):
            for state in options.states:
                told = run(table, state, options)
                cells = [state, options.rows, round(options.rate), told["seconds"], told["longest_write"], told["p99"], told["longest_read"], told["p99_before"],
                         told["longest_before"], told["server_seconds"]]  # fmt: skip
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
                if not options.dry:
                    what = {"state": state, "clients": options.clients, "rate": options.rate, "rows": options.rows, "number": number}
                    record.keep("bullfrog_back", where, [{**what, **told}])
    finally:
        table.server.remove()


if __name__ == "__main__":
    main()
