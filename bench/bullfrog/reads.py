"""What reads and writes by key cost while rows move, and when all have moved (a part of `bars.py`).

Customers are split into two tables in four servers:

    before    the library is loaded, and nothing was migrated
    moving    half of the customers have moved, half of these with their pages and half one by one, and nothing moves any more
    moved     all have moved and statements no longer look for others, but the migration was not ended
    finished  it was

That nothing is measurable when all have moved means at most 1.05 times as much, by the worse end of the interval; where the interval goes from less to more, it is not known. One connection after the other asks each of them so many times, prepared: for the customers of the twenty visits of a day (a join by key), a customer by key, the first ten in order; and, where no row moves by it, updates
one by key. Told is the server's processor time per statement. A round asks all four, one round in this order and the next in the other, after one that warms up.
"""

import pathlib
import subprocess
import tempfile
import time

from tables import BEFORE_CLIENT, EXTENSION_LOADED, LIBRARY, SERVER_CORE, SETTINGS, postgres, processor, record

STATES = ["before", "moving", "moved", "finished"]
VISITS, PER_DAY = 100_000, 20
STATEMENTS = {
    "join by key": "SELECT v.id, c.balance FROM visit v JOIN customer c ON c.id = v.customer WHERE v.day = :day",
    "select by key": "SELECT balance FROM customer WHERE id = :id",
    "first ten": "SELECT balance FROM customer ORDER BY id LIMIT 10",
    "update by key": "UPDATE customer SET balance = balance + 1 WHERE id = :id",
}
DEFINITION = """
    CREATE TABLE customer AS SELECT id, name, balance FROM customer_old;
    CREATE TABLE customer_public AS SELECT id, nick, city FROM customer_old;
    ALTER TABLE customer ADD PRIMARY KEY (id);
    ALTER TABLE customer_public ADD PRIMARY KEY (id);
"""
# More than this can be measured.
MEASURABLE = 1.05
# What is compared with what, of which statements, and how many times as much it may be. None: that is told only.
BARS = [("moving", "before", ["join by key"], 3), ("moving", "before", ["select by key", "first ten"], None),
    ("moved", "finished", list(STATEMENTS), MEASURABLE)]  # fmt: skip


def asks(state, statement):
    return state != "moving" or not statement.startswith("update")


def server_in(state, rows):
    """A server with the customers in a state."""
    delay = "1h" if state == "moving" else "0"
    server = postgres.Server(LIBRARY, {**SETTINGS, **EXTENSION_LOADED, "shared_buffers": "512MB", "bullfrog.start_delay": delay, "bullfrog.rest": "0",
        "autovacuum": "off"}, cores=SERVER_CORE)  # fmt: skip
    with server.connect() as connection:
        connection.execute("CREATE EXTENSION bullfrog")
        connection.execute("CREATE TABLE customer (id int PRIMARY KEY, name text, balance int NOT NULL, nick text, city text)")
        connection.execute("INSERT INTO customer SELECT i, 'name ' || i, 0, 'nick ' || i, 'city ' || repeat('.', 60) FROM generate_series(1, %s) i", (rows,))
        connection.execute("CREATE TABLE visit (id int PRIMARY KEY, day int NOT NULL, customer int NOT NULL)")
        connection.execute("INSERT INTO visit SELECT i, i / %s, 1 + (i * 7919::bigint) %% %s FROM generate_series(0, %s) i", (PER_DAY, rows, VISITS - 1))
        connection.execute("CREATE INDEX ON visit (day)")
        connection.execute("VACUUM (FREEZE, ANALYZE)")
        if state != "before":
            with connection.transaction():
                connection.execute("ALTER TABLE customer RENAME TO customer_old")
                connection.execute("SELECT bullfrog.migrate('split', %s)", (DEFINITION,), prepare=False)
        if state == "moving":
            # One half of those with their pages, as the background moves them, the other one by one, as clients do.
            some = "ARRAY(SELECT p FROM generate_series(0, pages - 1) p WHERE p / 16 % 4 = 0)"
            connection.execute(f"SELECT bullfrog.sweep(id, {some}) FROM bullfrog.source")
            connection.execute("SELECT bullfrog.move(id, ARRAY(SELECT bullfrog.place(bullfrog_tid) FROM bullfrog.unmoved_1 WHERE id % 3 = 0)) FROM bullfrog.source")
        if state in ("moved", "finished"):
            until = time.time() + 300
            while connection.execute("SELECT FROM pg_trigger WHERE tgname LIKE 'bullfrog%'").rowcount > 0:
                assert time.time() < until, "rows have not moved after five minutes"
                time.sleep(0.2)
        if state == "finished":
            connection.execute("SELECT bullfrog.finish('split')")
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
    return server


def micros(server, statement, count, rows):
    """The server's processor time per statement."""
    with tempfile.TemporaryDirectory() as directory:
        script = pathlib.Path(directory) / "statement.sql"
        script.write_text(f"\\set id random(1, {rows})\n\\set day random(0, {VISITS // PER_DAY - 1})\n{STATEMENTS[statement]};\n")
        options = ["-n", "-M", "prepared", "-c", 1, "-t", count, "-f", script]
        command = [*BEFORE_CLIENT, postgres.config("bindir") / "pgbench", "-h", server.root, "-U", "postgres", *options, "postgres"]
        used = processor(server.process.pid)
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return (processor(server.process.pid) - used) / count * 1e6


def measure(options, where):
    servers, rounds = {}, []
    try:
        for state in STATES:
            servers[state] = server_in(state, options.rows)
        for number in range(options.pairs + 1):
            figures = {(state, statement): micros(servers[state], statement, options.statements, options.rows)
                for state in (STATES if number % 2 == 0 else STATES[::-1]) for statement in STATEMENTS if asks(state, statement)}  # fmt: skip
            if number > 0:
                rounds.append(figures)
                if not options.dry:
                    record.keep("bullfrog_reads", where, [{"number": number, "rows": options.rows, "statements": options.statements, "state": state, "statement": statement,
                        "micros": figure} for (state, statement), figure in figures.items()])  # fmt: skip
    finally:
        for server in servers.values():
            server.remove()
        tell(rounds)


def tell(rounds):
    print("\n| statement | | µs | compared with | ratio | interval | bar | |\n|---|---|---|---|---|---|---|---|")
    for state, other, statements, bar in BARS:
        for statement in statements:
            ratios = [figures[state, statement] / figures[other, statement] for figures in rounds]
            if ratios:
                told = record.interval(ratios)
                taken = record.interval([figures[state, statement] for figures in rounds])
                verdict = "" if bar is None else "met" if told["high"] <= bar else "missed" if told["low"] > bar else "not known"
                print(f"| {statement} | {state} | {taken['median']:.1f} | {other} | {told['median']:.2f} | {told['low']:.2f}-{told['high']:.2f} | "
                      f"{'' if bar is None else f'at most {bar}'} | {verdict} |")  # fmt: skip
    print(flush=True)
