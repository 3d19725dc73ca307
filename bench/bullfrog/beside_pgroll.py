"""What clients notice of a change that pgroll makes, too: a column of two million rows gets another type (bench/METHOD.md).

    bench/bullfrog/beside_pgroll.py [--clients 8] [--rate 1000] [--arms none bullfrog pgroll] [--pairs 7] ..

So many clients update customers by key at random, one row per transaction, prepared, at moments that do not depend on the server. After --before seconds the column
balance becomes a bigint, while they go on:

    none      nothing happens
    bullfrog  bullfrog.migrate and ALTER TABLE .. RENAME, in one transaction, and bullfrog.finish when all rows have moved; the background begins at once
    pgroll    pgroll start, which fills a new column beside the old one, and triggers that keep both; clients come from the schema public to
              the new one's; then pgroll complete

`new` tells when the new schema answers, `ended` when the old one is gone. A server of PostgreSQL 15 has core 0 (all of its processes), clients and pgroll core 1. Each run
begins with a copy of the same table, read into memory. Afterwards the column has its new type, and the sum of all balances is compared with what clients did.
pgroll is the program that PGROLL names; else its version below is built by Go (1.26 or later) and a C compiler, for it has PostgreSQL's parser in it, from the Go module
proxy into target/pgroll; --get does that and nothing else. It takes minutes: do it before the machine is to be silent. Appends to bench/results/bullfrog_pgroll.jsonl.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import threading
import time

import psycopg
from bars import Table, percentile
from tables import BEFORE_CLIENT, EXTENSION_LOADED, build_extension, record

ARMS = ["none", "bullfrog", "pgroll"]
PGROLL, VERSION = "github.com/xataio/pgroll", "v0.16.2"
# Of this, `go install` would ask for a list of all versions, which not every proxy has.
MODULE = f"""module built

go 1.26

require {PGROLL} {VERSION}
"""
TOOLS = f"""//go:build tools

package tools

import _ "{PGROLL}"
"""
CHANGE = {"operations": [{"alter_column": {
    "table": "customer", "column": "balance", "type": "bigint", "up": "CAST(balance AS bigint)", "down": "CAST(balance AS int)"}}]}  # fmt: skip
NEW = """
    CREATE TABLE customer_new AS SELECT id, name, balance::bigint AS balance, nick, city FROM customer;
    ALTER TABLE customer_new ADD PRIMARY KEY (id);
    ALTER TABLE customer_new ALTER balance SET NOT NULL
"""


def program():
    """pgroll, built if it is not there."""
    if "PGROLL" in os.environ:
        return pathlib.Path(os.environ["PGROLL"]).resolve()
    built = record.target() / "pgroll" / "pgroll"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as module:
            pathlib.Path(module, "go.mod").write_text(MODULE)
            pathlib.Path(module, "tools.go").write_text(TOOLS)
            subprocess.run(["go", "build", "-mod=mod", "-o", built.resolve(), PGROLL], cwd=module, check=True)
    return built.resolve()


class Pgroll:
    """pgroll, on a server that does not know it yet."""

    def __init__(self, path, server):
        self.path, self.directory = path, tempfile.TemporaryDirectory()
        self.url = f"postgres://postgres@/postgres?host={server.root}&sslmode=disable"
        self.change = pathlib.Path(self.directory.name) / "02_bigint.json"
        self.change.write_text(json.dumps(CHANGE))
        self.say("init")
        self.say("baseline", "01_before", self.directory.name, "--yes")

    def say(self, *words):
        command = [*BEFORE_CLIENT, self.path, "--postgres-url", self.url, *words]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"pgroll {' '.join(map(str, words))}: {done.stdout}{done.stderr}")


class Clients:
    """Clients that update rows at random moments, and use the schema that they are told."""

    def __init__(self, server, rows, count, rate):
        self.server, self.rows, self.schema, self.is_ended, self.done, self.failures = server, rows, "public", False, [], []
        self.refused = 0
        self.threads = [threading.Thread(target=self.run, args=(number, rate / count), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, number, rate):
        chance = random.Random(number)
        try:
            with self.server.connect(prepare_threshold=0) as connection:
                schema, due = None, time.time()
                while not self.is_ended:
                    due += chance.expovariate(rate)
                    time.sleep(max(0, due - time.time()))
                    if schema != self.schema:
                        schema = self.schema
                        connection.execute(f"SET search_path = {schema}")
                    while True:
                        try:
                            connection.execute("UPDATE customer SET balance = balance + 1 WHERE id = %s", (chance.randrange(1, self.rows + 1),))
                            break
                        except psycopg.Error:
                            # It is tried again, as an application would.
                            if connection.closed:
                                raise
                            self.refused += 1
                            time.sleep(0.001)
                    now = time.time()
                    self.done.append((now, (now - due) * 1000))
        except BaseException as failure:
            self.failures.append(failure)

    def end(self):
        """(second since 1970, milliseconds since it was due) of each transaction."""
        self.is_ended = True
        for thread in self.threads:
            thread.join(60)
        if self.failures:
            raise self.failures[0]
        return self.done


def change(arm, server, pgroll, clients, note):
    """Changes the column, and notes what happened when."""
    if arm == "pgroll":
        pgroll.say("start", pgroll.change)
        clients.schema = "public_02_bigint"
        note("new")
        # Nobody is left in the old one.
        time.sleep(1)
        pgroll.say("complete")
        note("ended")
    elif arm == "bullfrog":
        with server.connect(prepare_threshold=None) as connection:
            with connection.transaction():
                connection.execute("SELECT bullfrog.migrate('bigint', %s)", (NEW,))
                connection.execute("ALTER TABLE customer RENAME TO customer_old; ALTER TABLE customer_new RENAME TO customer")
            note("new")
            while connection.execute("SELECT sum(pages_left) FROM bullfrog.progress").fetchone()[0]:
                time.sleep(1)
            connection.execute("SELECT bullfrog.finish('bigint')")
            note("ended")


def run(table, arm, path, options):
    """One run on a fresh table."""
    table.start({**EXTENSION_LOADED, "bullfrog.start_delay": "0"} if arm == "bullfrog" else {})
    pgroll = Pgroll(path, table.server) if arm == "pgroll" else None
    clients = Clients(table.server, table.rows, options.clients, options.rate)
    time.sleep(options.before)
    begun, events, failed = time.time(), [], []

    def act():
        try:
            change(arm, table.server, pgroll, clients, lambda what: events.append((what, round(time.time() - begun, 2))))
        except BaseException as error:
            failed.append(error)

    changing = threading.Thread(target=act, daemon=True)
    changing.start()
    time.sleep(max(0, begun + options.window - time.time()))
    changing.join(options.patience)
    done = clients.end()
    assert not changing.is_alive() and not failed, failed or f"the change had not ended after {options.patience} s"
    with table.server.connect() as connection:
        total, kind = connection.execute("SELECT sum(balance), min(pg_typeof(balance)::text) FROM customer").fetchone()
    assert total == len(done), f"{len(done)} updates were told to be done, {total} are there"
    assert kind == ("integer" if arm == "none" else "bigint"), kind
    table.server.stop()
    by_second = collections.defaultdict(list)
    for at, took in done:
        by_second[int((at - begun) // 1)].append(took)
    within = [took for at, took in done if begun <= at < begun + options.window]
    seconds = [by_second.get(second, []) for second in range(options.window)]
    return {
        "before": len([at for at, _ in done if begun - options.before + 2 <= at < begun]) / (options.before - 2), "done": len(within),
        "p50": percentile(within, 50), "p99": percentile(within, 99), "longest": round(max(within, default=0), 2), "refused": clients.refused,
        "p99_by_second": [percentile(second, 99) for second in seconds], "done_by_second": [len(second) for second in seconds], "events": events,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1000, help="transactions per second, of all clients")
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--before", type=int, default=10)
    parser.add_argument("--window", type=int, default=90)
    parser.add_argument("--patience", type=int, default=600, help="seconds to wait for the end of a change after the window")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--no-build", action="store_true", help="use what was built before")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    parser.add_argument("--get", action="store_true", help="only build pgroll, unless it is there")
    options = parser.parse_args()
    if options.get:
        print(program())
        return
    if not options.no_build:
        build_extension()
    path = program() if "pgroll" in options.arms else None
    os.sched_setaffinity(0, {1})
    table = Table(options.rows)
    where = record.circumstances(record.head(), "release")
    heads = ["way", "rate", "before, per s", "in the window", "p50 ms", "p99 ms", "worst second's p99", "median second's", "longest ms", "refused", "events"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)
    try:
        for number in range(options.pairs):
            for arm in options.arms if number % 2 == 0 else options.arms[::-1]:
                figures = run(table, arm, path, options)
                seconds = [second for second in figures["p99_by_second"] if second is not None]
                cells = [arm, round(options.rate), round(figures["before"]), figures["done"], figures["p50"], figures["p99"], max(seconds), statistics.median(seconds),
                         figures["longest"], figures["refused"], ", ".join(f"{name} {at}" for name, at in figures["events"])]  # fmt: skip
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
                if not options.dry:
                    what = {"clients": options.clients, "arm": arm, "rate": options.rate, "rows": options.rows, "number": number, "pgroll": VERSION}
                    record.keep("bullfrog_pgroll", where, [{**what, **figures}])
    finally:
        table.server.remove()


if __name__ == "__main__":
    main()
