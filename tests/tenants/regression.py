"""Runs PostgreSQL's own regression files (src/test/regress/sql) against PostgreSQL and tenants side by side, and prints where they differ.

    tests/tenants/regression.py --postgresql "host=.. dbname=.." --tenants "host=.. dbname=.." [--show 3] FILE..

Each file begins with an empty database and a few tables that many of them read; what defines functions, operators, rights and the like, which tenants do
not have, runs on PostgreSQL alone (with --as-before so does all that earlier releases had not); tables are never temporary, and COPY and EXPLAIN are left out. Only rows, tags and SQLSTATEs are compared. The exit code is 1 if rows differ or something is taken that PostgreSQL refuses.
"""

import argparse
import functools
import pathlib
import re
import sys
from collections import Counter

import psycopg
from corpus import answer, empty

# Kinds of things that tenants do not have, and words before them.
KINDS = """function operator aggregate trigger rule cast role user group procedure routine language collation conversion publication subscription
    statistics policy server tablespace extension configuration dictionary parser template privileges""".split()
BEFORE = "trusted procedural constraint event text search foreign default data".split()
NOT_HERE = re.compile(
    rf"(grant|revoke|reassign|do|call)\b|(create|alter|drop|comment on) (or replace )?(({'|'.join(BEFORE)}) )*({'|'.join(KINDS)})\b", re.IGNORECASE
)
# What was left out of counts of releases that had no types but enumerations.
AS_BEFORE = re.compile(
    r"(analyze|vacuum|explain|alter|comment|grant|prepare|execute|deallocate"
    r"|create (or replace )?(function|operator|aggregate|trigger|rule|cast|role|type(?!\s+\S+\s+as\s+enum)|procedure|collation|domain))",
    re.IGNORECASE,
)
PART = re.compile(r"""--[^\n]*|/\*.*?\*/|[eE]'(?:\\.|''|[^'\\])*'|'(?:''|[^'])*'|"[^"]*"|(\$\w*\$).*?\1|[();]|.""", re.DOTALL)
WIDE = "(unique1 int, unique2 int, two int, four int, ten int, twenty int, hundred int, thousand int, twothousand int, fivethous int, tenthous int,"
TABLES = f"""
CREATE TABLE int2_tbl (f1 int2); INSERT INTO int2_tbl VALUES (0), (1234), (-1234), (32767), (-32767);
CREATE TABLE int4_tbl (f1 int4); INSERT INTO int4_tbl VALUES (0), (123456), (-123456), (2147483647), (-2147483647);
CREATE TABLE int8_tbl (q1 int8, q2 int8);
INSERT INTO int8_tbl VALUES (123, 456), (123, 4567890123456789), (4567890123456789, 123), (4567890123456789, -4567890123456789);
CREATE TABLE text_tbl (f1 text); INSERT INTO text_tbl VALUES ('doh!'), ('hi de ho neighbor');
CREATE TABLE float8_tbl (f1 float8); INSERT INTO float8_tbl VALUES (0), (-34.84), (-1004.3), (-1.2345678901234e+200), (-1.2345678901234e-200);
CREATE TABLE onek {WIDE} odd int, even int, stringu1 text, stringu2 text, string4 text);
INSERT INTO onek SELECT (i * 7 + 3) % 1000, i, i % 2, i % 4, i % 10, i % 20, i % 100, i % 1000, i % 2000, i % 5000, i, i % 100 * 2 + 1, i % 100 * 2,
    's' || i * 7 % 1000, 't' || i, (ARRAY['AAAAxx', 'HHHHxx', 'OOOOxx', 'VVVVxx'])[i % 4 + 1] FROM generate_series(0, 999) i;
CREATE TABLE tenk1 {WIDE} odd int, even int, stringu1 text, stringu2 text, string4 text);
INSERT INTO tenk1 SELECT * FROM onek
"""


def statements(text):
    """The statements of a file of psql, without its own commands."""
    text = "\n".join(line for line in text.split("\n") if not line.startswith("\\"))
    statement, depth = "", 0
    for part in PART.finditer(text):
        part = part.group()
        if part.startswith(("--", "/*")):
            continue
        depth += (part == "(") - (part == ")")
        if part == ";" and depth <= 0:
            if statement.strip():
                yield re.sub(r"^create\s+(temp|temporary)\s", "CREATE ", statement.strip(), flags=re.IGNORECASE)
            statement, depth = "", 0
        else:
            statement += part


def kind_of(theirs, ours):
    if ours[0] == "error":
        refused = "refused" if ours[1] == "0A000" else "fails"
        return f"{refused} otherwise" if theirs[0] == "error" else refused
    return "taken" if theirs[0] == "error" else "rows differ"


class Played:
    """What came of files."""

    def __init__(self):
        self.alike, self.differ, self.messages = 0, Counter(), Counter()

    def __iadd__(self, other):
        self.alike += other.alike
        self.differ += other.differ
        self.messages += other.messages
        return self

    def __str__(self):
        return f"{self.alike} of {self.alike + self.differ.total()} answers alike, {dict(self.differ)} not"


def play(file, connects, left_out=NOT_HERE, show=0):
    """Plays a file on PostgreSQL and tenants, each of which `connects` makes a new session of: a file may leave roles, settings and paths behind."""
    servers, played = [connect() for connect in connects], Played()
    for server in servers:
        server.execute("SET statement_timeout = '20s'")
        empty(server)
        for statement in statements(TABLES + ";"):
            server.execute(statement)
    for statement in statements(file.read_text(errors="replace")):
        if statement.lower().startswith(("copy", "explain")):
            continue
        if left_out.match(statement):
            servers[0].pgconn.exec_(statement.encode())
            continue
        theirs, ours = (answer(server, statement) for server in servers)
        if theirs[:2] == ours[:2]:
            played.alike += 1
            continue
        kind = kind_of(theirs, ours)
        played.differ[kind] += 1
        if ours[0] == "error":
            played.messages[f"{ours[1]} {ours[2]}"] += 1
        if played.differ[kind] <= show:
            print(f"{file.name}: {statement}\n  PostgreSQL: {theirs}\n  tenants:    {ours}"[:1500])
    for server in servers:
        server.close()
    return played


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgresql", required=True)
    parser.add_argument("--tenants", required=True)
    parser.add_argument("--show", type=int, default=3, help="differences of each kind in each file")
    parser.add_argument("--as-before", action="store_true", help="leave out what was left out by releases that had neither types nor ALTER")
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    left_out = AS_BEFORE if options.as_before else NOT_HERE
    connects = [functools.partial(psycopg.connect, dsn, autocommit=True) for dsn in (options.postgresql, options.tenants)]
    total = Played()
    for file in options.files:
        played = play(file, connects, left_out, options.show)
        print(f"{file.name}: {played}", file=sys.stderr)
        total += played
    print(total, file=sys.stderr)
    for message, count in total.messages.most_common(60):
        print(f"{count:7} {message}"[:200])
    sys.exit(1 if total.differ["taken"] or total.differ["rows differ"] else 0)


if __name__ == "__main__":
    main()
