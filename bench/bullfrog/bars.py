"""What clients notice of a split of two million rows, beside no migration, a copy under a lock, and a copy by triggers, and what reads cost meanwhile (bench/METHOD.md).

    bench/bullfrog/bars.py [--short] [--parts load reads] [--transaction order] [--clients 8 200] [--loads share saturated] [--pairs 7] ..

Load: pgbench runs transactions, prepared: as many as it can (`saturated`), or so many per second as are --share of what the same number of connections could do without a
migration (`share`). After --before seconds the table becomes two, and the one with the balance takes the old one's name in the same transaction, so that clients go on with the
statements that they have:

    none      nothing happens
    bullfrog  bullfrog.migrate, and ALTER TABLE .. RENAME in its transaction; the background begins at once
    eager     one transaction locks the table, copies all rows, and renames
    copy      triggers keep two new tables up to date while batches of rows are copied; then a transaction renames

A transaction is an `order`, as that of pgbench itself: it updates a customer by key at random, reads its balance, updates two rows of other tables and inserts one; or an `update` of a customer and
nothing else, the least that a transaction can be, beside which each move weighs most.
A server of PostgreSQL 15 has core 0 (all of its processes), pgbench core 1. Each run begins with a copy of the same tables, read into memory. Told are
transactions in the window of --window seconds from the change on, the p99 of each second, the server's processor time per transaction, and when
all had moved. Afterwards the sum of all balances is compared with what pgbench did. Appends to bench/results/bullfrog_bars.jsonl.

Reads: see `reads.py`, to bench/results/bullfrog_reads.jsonl.

In the end, or when it is interrupted, the bars are told, each by the worse end of its interval over pairs. --short has a quarter of the rows and of the window: all that grows with the table
is the same for a second of the window; what does not (the switch, plans that are made anew) weighs four times as much. But the worst second is that of 20 instead of 90, and what comes once in a minute is mostly not in it: of that bar a long run has the last word. With it all seven
pairs take some 40 minutes.
"""

import argparse
import collections
import math
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import textwrap
import threading
import time

import reads
from tables import EXTENSION_LOADED, LIBRARY, SERVER_CORE, SETTINGS, build_extension, postgres, processor, record

# What each load has to be compared with.
ARMS = {"share": ["none", "bullfrog"], "saturated": ["bullfrog", "eager", "copy"]}
TELLERS, BRANCHES = 10_000, 1000
TRANSACTIONS = {
    "update": "UPDATE customer SET balance = balance + 1 WHERE id = :id;",
    "order": f"""
        \\set teller random(1, {TELLERS})
        \\set branch random(1, {BRANCHES})
        BEGIN;
        UPDATE customer SET balance = balance + 1 WHERE id = :id;
        SELECT balance FROM customer WHERE id = :id;
        UPDATE teller SET balance = balance + 1 WHERE id = :teller;
        UPDATE branch SET balance = balance + 1 WHERE id = :branch;
        INSERT INTO history (teller, branch, customer, at) VALUES (:teller, :branch, :id, CURRENT_TIMESTAMP);
        END;
    """,
}
# Of each bar: the figure of a pair of runs, and what it is to be.
BARS = {
    "worst second's p99 / p99 of no migration": ("share", "none", lambda ours, theirs: worst(ours) / theirs["p99"], "below", 2),
    "worst second's p99 / worst second's of no migration": ("share", "none", lambda ours, theirs: worst(ours) / worst(theirs), "below", 2),
    "transactions / those of no migration": ("share", "none", lambda ours, theirs: ours["done"] / theirs["done"], "at least", 0.99),
    "transactions / those of eager": ("saturated", "eager", lambda ours, theirs: ours["done"] / theirs["done"], "at least", 1),
    "transactions / those of copy": ("saturated", "copy", lambda ours, theirs: ours["done"] / theirs["done"], "at least", 1),
}
NEW = """
    CREATE TABLE {private} AS SELECT id, name, balance FROM {old};
    CREATE TABLE {public} AS SELECT id, nick, city FROM {old};
    ALTER TABLE {private} ADD PRIMARY KEY (id);
    ALTER TABLE {public} ADD PRIMARY KEY (id);
"""
BATCH = 2000


def fill(server, rows):
    with server.connect() as connection:
        connection.execute("CREATE TABLE customer (id int PRIMARY KEY, name text, balance int NOT NULL, nick text, city text)")
        connection.execute(
            "INSERT INTO customer SELECT i, 'name ' || i, 0, 'nick ' || i, 'city ' || repeat('.', 60)"
            f" FROM generate_series(1, {rows}) i"
        )
        for table, count in (("teller", TELLERS), ("branch", BRANCHES)):
            connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, balance int NOT NULL)")
            connection.execute(f"INSERT INTO {table} SELECT i, 0 FROM generate_series(1, {count}) i")
        connection.execute("CREATE TABLE history (teller int, branch int, customer int, at timestamptz)")
        connection.execute("VACUUM (FREEZE, ANALYZE)")
        connection.execute("CREATE EXTENSION pg_prewarm")


class Load:
    """pgbench at work: the instants of its commits and what each took, as it logs them."""

    def __init__(self, server, rows, clients, seconds, rate, transaction):
        self.directory = tempfile.TemporaryDirectory()
        script = pathlib.Path(self.directory.name) / "transaction.sql"
        script.write_text(f"\\set id random(1, {rows})\n{textwrap.dedent(TRANSACTIONS[transaction])}\n")
        options = ["-n", "-M", "prepared", "-c", clients, "-j", 1, "-T", seconds, "-f", script, "-l", "--log-prefix", "log"]
        options += ["-R", rate] if rate else []
        # It meets a closed table or a deadlock with the switch, if anything.
        options += ["--max-tries", 100]
        command = ["taskset", "-c", "1", postgres.config("bindir") / "pgbench", "-h", server.root, "-U", "postgres", *options, "postgres"]
        self.process = subprocess.Popen(list(map(str, command)), cwd=self.directory.name, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def done(self):
        """(second since 1970, milliseconds) of each transaction; with a rate, from when it was due."""
        _, errors = self.process.communicate()
        if self.process.returncode != 0:
            raise SystemExit(errors[-4000:])
        done = []
        for log in pathlib.Path(self.directory.name).glob("log*"):
            for line in log.read_text().splitlines():
                words = line.split()
                if words[2].isdigit():
                    done.append((int(words[4]) + int(words[5]) / 1e6, int(words[2]) / 1000))
        self.directory.cleanup()
        return done


def change(arm, server, events, begun, wishes):
    """Changes the schema, and notes what happened when."""

    def note(what):
        events.append((what, round(time.time() - begun, 2)))

    with server.connect(prepare_threshold=None) as connection:
        if arm == "bullfrog":
            with connection.transaction():
                definition = NEW.format(private="customer_private", public="customer_public", old="customer")
                connection.execute(f"SELECT bullfrog.migrate('split', %s{wishes and ', '}{wishes})", (definition,))
                connection.execute("ALTER TABLE customer RENAME TO customer_old; ALTER TABLE customer_private RENAME TO customer")
            note("switched")
            connection.execute("SET jit = off")
            while connection.execute("SELECT sum(pages_left) FROM bullfrog.progress").fetchone()[0]:
                time.sleep(1)
            note("all moved")
        elif arm == "eager":
            with connection.transaction():
                connection.execute("LOCK TABLE customer IN ACCESS EXCLUSIVE MODE")
                connection.execute("ALTER TABLE customer RENAME TO customer_old")
                connection.execute("ALTER INDEX customer_pkey RENAME TO customer_old_pkey")
                connection.execute(NEW.format(private="customer", public="customer_public", old="customer_old"))
            note("switched")
        elif arm == "copy":
            copy(connection)
            note("switched")


def copy(connection):
    connection.execute("""
        CREATE TABLE customer_private (id int PRIMARY KEY, name text, balance int);
        CREATE TABLE customer_public (id int PRIMARY KEY, nick text, city text);
        CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO customer_private VALUES (new.id, new.name, new.balance)
                ON CONFLICT (id) DO UPDATE SET name = excluded.name, balance = excluded.balance;
            INSERT INTO customer_public VALUES (new.id, new.nick, new.city)
                ON CONFLICT (id) DO UPDATE SET nick = excluded.nick, city = excluded.city;
            RETURN NULL;
        END $$;
        CREATE TRIGGER follow AFTER INSERT OR UPDATE ON customer FOR EACH ROW EXECUTE FUNCTION follow()
    """)
    last = connection.execute("SELECT max(id) FROM customer").fetchone()[0]
    for first in range(1, last + 1, BATCH):
        connection.execute(f"""
            WITH batch AS MATERIALIZED (SELECT * FROM customer WHERE id >= {first} AND id < {first + BATCH} FOR SHARE),
                private AS (INSERT INTO customer_private SELECT id, name, balance FROM batch ON CONFLICT (id) DO NOTHING)
            INSERT INTO customer_public SELECT id, nick, city FROM batch ON CONFLICT (id) DO NOTHING
        """)
    with connection.transaction():
        connection.execute("LOCK TABLE customer IN ACCESS EXCLUSIVE MODE")
        connection.execute("ALTER TABLE customer RENAME TO customer_old")
        connection.execute("ALTER TABLE customer_private RENAME TO customer")


class Table:
    """A server with the filled table, of which each run gets a copy."""

    def __init__(self, rows):
        self.rows = rows
        self.server = postgres.Server(LIBRARY, {**SETTINGS, "max_connections": "250", "autovacuum_naptime": "1h"}, cores=SERVER_CORE)
        fill(self.server, rows)
        self.server.stop()
        self.filled = self.server.root / "filled"
        subprocess.run(["cp", "-a", self.server.data, self.filled], check=True)

    def start(self, settings):
        shutil.rmtree(self.server.data, ignore_errors=True)
        subprocess.run(["cp", "-a", self.filled, self.server.data], check=True)
        with open(self.server.data / "postgresql.auto.conf", "a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.server.start()
        with self.server.connect() as connection:
            connection.execute("SELECT pg_prewarm('customer'), pg_prewarm('customer_pkey')")
            if settings:
                connection.execute("CREATE EXTENSION bullfrog")
            connection.execute("CHECKPOINT")

    def run(self, arm, clients, rate, before, window, options):
        self.start({**EXTENSION_LOADED, "bullfrog.start_delay": "0"} if arm == "bullfrog" else {})
        load = Load(self.server, self.rows, clients, before + window + 1, rate, options.transaction)
        time.sleep(before)
        begun, events = time.time(), []
        used = processor(self.server.process.pid)
        failed = []

        def act():
            try:
                change(arm, self.server, events, begun, options.options)
            except BaseException as failure:
                failed.append(failure)

        changing = threading.Thread(target=act, daemon=True)
        changing.start()
        time.sleep(max(0, begun + window - time.time()))
        used = processor(self.server.process.pid) - used
        done = load.done()
        changing.join(options.patience)
        # A change that did not happen costs nothing.
        assert not failed and not changing.is_alive(), failed or f"the change had not ended after {options.patience} s"
        assert arm == "none" or "switched" in dict(events), events
        with self.server.connect() as connection:
            total = connection.execute("SELECT sum(balance) FROM customer").fetchone()[0]
        assert total == len(done), f"{len(done)} updates were told to be done, {total} are there"
        self.server.stop()
        by_second = collections.defaultdict(list)
        for at, took in done:
            by_second[int((at - begun) // 1)].append(took)
        within = [took for at, took in done if begun <= at < begun + window]
        seconds = [by_second.get(second, []) for second in range(window)]
        return {
            "before": len([at for at, _ in done if begun - before + 2 <= at < begun]) / (before - 2), "done": len(within),
            "p50": percentile(within, 50), "p99": percentile(within, 99), "longest": max(within, default=0),
            "p99_by_second": [percentile(second, 99) for second in seconds], "done_by_second": [len(second) for second in seconds],
            "server_micros": used / max(1, len(within)) * 1e6, "events": events,
        }  # fmt: skip


def percentile(values, percent):
    values = sorted(values)
    return round(values[min(len(values) - 1, len(values) * percent // 100)], 2) if values else None


def worst(figures):
    """The p99 of the second in which it was highest; of one in which nothing ended it is not finite."""
    return max(math.inf if second is None else second for second in figures["p99_by_second"])


def tell_bars(runs):
    """The bars, as far as there are pairs: `runs` has figures by number, connections, load and way."""
    print("\n| connections | figure | pairs | median | interval | bar | |\n|---|---|---|---|---|---|---|")
    for clients in sorted({clients for _, clients, _, _ in runs}):
        for name, (load, other, figure, kind, bar) in BARS.items():
            ours, theirs = ({number: figures for (number, *what), figures in runs.items() if what == [clients, load, way]} for way in ("bullfrog", other))
            pairs = [figure(ours[number], theirs[number]) for number in sorted(ours.keys() & theirs.keys())]
            if pairs:
                told = record.interval(pairs)
                is_met = told["high"] < bar if kind == "below" else told["low"] >= bar
                print(f"| {clients} | {load}: {name} | {len(pairs)} | {told['median']:.2f} | {told['low']:.2f}-{told['high']:.2f} | {kind} {bar} | {'met' if is_met else 'missed'} |")


def load_pairs(options, where):
    """All runs under load."""
    table, runs = Table(options.rows), {}
    heads = ["connections", "load", "way", "rate", "before, per s", "in the window", "p50 ms", "p99 ms", "worst second's p99", "median second's",
             "longest ms", "server µs", "events"]  # fmt: skip
    try:
        peaks = {clients: statistics.median(table.run("none", clients, None, options.before, 5, options)["before"] for _ in range(3 if options.pairs > 1 else 1))
            for clients in options.clients}  # fmt: skip
        print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)
        for number in range(options.pairs):
            turns = [(clients, load, arm) for clients in options.clients for load in options.loads for arm in options.arms or ARMS[load]]
            for clients, load, arm in turns if number % 2 == 0 else turns[::-1]:
                rate = round(peaks[clients] * options.share) if load == "share" else None
                figures = table.run(arm, clients, rate, options.before, options.window, options)
                runs[number, clients, load, arm] = figures
                seconds = [second for second in figures["p99_by_second"] if second is not None]
                cells = [clients, load, arm, rate or "", round(figures["before"]), figures["done"], figures["p50"], figures["p99"], worst(figures),
                         statistics.median(seconds), figures["longest"], round(figures["server_micros"]),
                         ", ".join(f"{name} {at}" for name, at in figures["events"])]  # fmt: skip
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
                if not options.dry:
                    what = {"clients": clients, "load": load, "arm": arm, "options": options.options, "rate": rate, "rows": options.rows,
                        "transaction": options.transaction, "number": number, "peak": peaks[clients]}  # fmt: skip
                    record.keep("bullfrog_bars", where, [{**what, **figures}])
    finally:
        table.server.remove()
        tell_bars(runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["load", "reads"], choices=["load", "reads"])
    parser.add_argument("--short", action="store_true", help="--rows 500000 --before 4 --window 20")
    parser.add_argument("--transaction", default="order", choices=list(TRANSACTIONS))
    parser.add_argument("--clients", nargs="+", type=int, default=[8, 200])
    parser.add_argument("--loads", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--arms", nargs="+", choices=["none", "bullfrog", "eager", "copy"], help="in place of those that each load is compared with")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--share", type=float, default=0.65)
    parser.add_argument("--before", type=int, default=10)
    parser.add_argument("--window", type=int, default=90)
    parser.add_argument("--patience", type=int, default=300, help="seconds to wait for the end of a change after the window")
    parser.add_argument("--statements", type=int, default=20_000, help="of each kind in each state, for the cost of reads")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--options", default="", help="further arguments of bullfrog.migrate, as \"granularity => 'page'\"")
    parser.add_argument("--no-build", action="store_true", help="use what was built before")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    options = parser.parse_args()
    if options.short:
        options.rows, options.before, options.window = 500_000, 4, 20
    if not options.no_build:
        build_extension()
    where = record.circumstances(record.head(), "release")
    if "reads" in options.parts:
        reads.measure(options, where)
    if "load" in options.parts:
        load_pairs(options, where)


if __name__ == "__main__":
    main()
