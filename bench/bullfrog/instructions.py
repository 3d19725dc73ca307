"""How many instructions of the server an update of one row by key takes while its table is split in two (bench/METHOD.md).

    bench/bullfrog/instructions.py [--statements 2000] [--options ..] [--no-build] [--dry]

    none    the table is on no move
    first   the row has not moved
    again   it has moved

A process of PostgreSQL 15 alone (`postgres --single`) runs a prepared update under callgrind, with one number of statements and with a larger one: the difference, by statement, is told. Rows
move inside of the transaction, by which no other process takes part. Appends to bench/results/bullfrog_instructions.jsonl.
"""

import argparse
import pathlib
import re
import shutil
import subprocess

from bars import NEW
from tables import EXTENSION_LOADED, LIBRARY, SETTINGS, build_extension, postgres, record

ROWS, FEW = 20_000, 500
# Has no factor in common with ROWS: neighbours in time are no neighbours on pages.
STEP = 7919
STATES = {"none": "beside", "first": "customer_private", "again": "customer_private"}


def prepare(options):
    """A server that has stopped, with a migration that has begun and a table that is in none."""
    server = postgres.Server(LIBRARY, {**SETTINGS, **EXTENSION_LOADED, "shared_buffers": "128MB", "bullfrog.start_delay": "1h", "autovacuum": "off"})
    with server.connect() as connection:
        for table in ("beside", "customer"):
            connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, name text, balance int NOT NULL, nick text, city text)")
            connection.execute(f"INSERT INTO {table} SELECT i, 'name ' || i, 0, 'nick ' || i, 'city ' || repeat('.', 60) FROM generate_series(1, {ROWS}) i")
        connection.execute("VACUUM (FREEZE, ANALYZE)")
        connection.execute("CREATE EXTENSION bullfrog")
        definition = NEW.format(private="customer_private", public="customer_public", old="customer")
        connection.execute(f"SELECT bullfrog.migrate('split', %s{options and ', '}{options})", (definition,))
        connection.execute("CHECKPOINT")
    server.stop()
    return server


def instructions(server, filled, table, keys):
    """Of a process that updates the rows that have these keys, one after the other."""
    shutil.rmtree(server.data)
    subprocess.run(["cp", "-a", filled, server.data], check=True)
    statements = ["SET plan_cache_mode = force_generic_plan", f"PREPARE u (int) AS UPDATE {table} SET balance = balance + 1 WHERE id = $1"]
    statements += [f"EXECUTE u ({key})" for key in keys]
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", server.programs / "postgres", "--single", "-D", server.data, "postgres"]
    done = subprocess.run(list(map(str, command)), input="\n".join(statements) + "\n", user=postgres.USER, cwd=server.root, capture_output=True, text=True)
    told = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not told or "ERROR" in done.stderr:
        raise SystemExit(done.stderr[-4000:])
    return int(told[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=2000)
    parser.add_argument("--options", default="", help="further arguments of bullfrog.migrate")
    parser.add_argument("--no-build", action="store_true", help="use what was built before")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    options = parser.parse_args()
    if not 0 < options.statements <= ROWS - FEW:
        parser.error(f"--statements is 1 to {ROWS - FEW}: no row is touched for the first time twice")
    if not options.no_build:
        build_extension()
    where = record.circumstances(record.head(), "release")
    server = prepare(options.options)
    try:
        filled = pathlib.Path(server.root) / "filled"
        subprocess.run(["cp", "-a", server.data, filled], check=True)
        keys = [number * STEP % ROWS + 1 for number in range(FEW + options.statements)]
        print("| update of one row by key | instructions |\n|---|---|")
        for state, table in STATES.items():
            few, many = (keys[: options.statements], keys[: options.statements] * 2) if state == "again" else (keys[:FEW], keys)
            taken = [instructions(server, filled, table, some) for some in (few, many)]
            figure = round((taken[1] - taken[0]) / options.statements)
            print(f"| {state} | {figure} |", flush=True)
            if not options.dry:
                record.keep("bullfrog_instructions", where, [{"state": state, "instructions": figure, "statements": options.statements, "options": options.options}])
    finally:
        server.remove()


if __name__ == "__main__":
    main()
