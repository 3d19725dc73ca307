"""Runs files of sqllogictest against PostgreSQL and tenants side by side, and prints where they differ.

    tests/tenants/corpus.py --postgresql "host=.. dbname=.." --tenants "host=.. dbname=.." [--records 2000] [--show 5] FILE..

The expected answers of the files are not looked at (they are those of several systems): PostgreSQL's are. Each file begins with an empty database.
Rows are compared as text; those of a statement with `ORDER BY` that came in another order are counted apart; of errors the SQLSTATE. The exit code is 1 if anything differs.
"""

import argparse
import pathlib
import sys
from collections import Counter

import psycopg
from psycopg.pq import ExecStatus


def statements(text):
    """The statements of a file that are meant for PostgreSQL."""
    for record in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line for line in record.split("\n") if not line.startswith("#")]
        wanted = True
        while lines and lines[0].startswith(("skipif", "onlyif")):
            condition, system = lines.pop(0).split()[:2]
            wanted &= (system == "postgresql") == (condition == "onlyif")
        if not wanted or not lines or not lines[0].startswith(("statement", "query")):
            continue
        body = lines[1:]
        yield "\n".join(body[: body.index("----")] if "----" in body else body).strip()


def answer(connection, statement):
    result = connection.pgconn.exec_(statement.encode())
    if result.status == ExecStatus.FATAL_ERROR:
        return "error", (result.error_field(67) or b"").decode(), (result.error_field(77) or b"").decode()
    if result.status != ExecStatus.TUPLES_OK:
        return "done", (result.command_status or b"").decode(), ""
    rows = [tuple(result.get_value(row, column) for column in range(result.nfields)) for row in range(result.ntuples)]
    if "ORDER BY" not in statement.upper():
        rows.sort(key=repr)
    return "rows", rows, ""


def empty(connection):
    for kind, query in (
        ("VIEW", "SELECT table_name FROM information_schema.views WHERE table_schema = 'public'"),
        ("TABLE", "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"),
    ):
        for (name,) in connection.execute(query).fetchall():
            connection.execute(f'DROP {kind} IF EXISTS "{name}" CASCADE')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgresql", required=True)
    parser.add_argument("--tenants", required=True)
    parser.add_argument("--records", type=int, default=2000, help="of each file")
    parser.add_argument("--show", type=int, default=5, help="differences of each kind")
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    servers = [psycopg.connect(dsn, autocommit=True) for dsn in (options.postgresql, options.tenants)]
    same, other_order, differ = 0, 0, Counter()
    for number, file in enumerate(options.files):
        for server in servers:
            empty(server)
        for place, statement in enumerate(statements(file.read_text())):
            if place >= options.records:
                break
            theirs, ours = (answer(server, statement) for server in servers)
            if theirs[:2] == ours[:2]:
                same += 1
                continue
            if theirs[0] == ours[0] == "rows" and sorted(theirs[1], key=repr) == sorted(ours[1], key=repr):
                # Perhaps the statement leaves the order open.
                other_order += 1
                continue
            kind = f"{theirs[0]} {theirs[1] if theirs[0] != 'rows' else ''} / {ours[0]} {ours[1:] if ours[0] != 'rows' else ''}"
            differ[kind] += 1
            if differ[kind] <= options.show:
                print(f"{file}: {statement}\n  PostgreSQL: {theirs}\n  tenants:    {ours}"[:1500])
        print(f"{number + 1} of {len(options.files)} files, {same} answers alike, {other_order} in another order, {differ.total()} not", file=sys.stderr)
    for kind, count in differ.most_common():
        print(f"{count:7} {kind}"[:200])
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
