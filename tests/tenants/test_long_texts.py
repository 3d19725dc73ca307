"""Long texts are answered or refused in time proportional to their length, and other databases are served meanwhile.

What takes more than that takes minutes here, and is cancelled: the bound is no measure."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

BYTES = 1 << 20
GUARD = "SET statement_timeout = '60s'"


def listed(part, between=", ", least=BYTES):
    """Numbered parts up to a length."""
    count = least // (len(part.format(100_000)) + len(between))
    return between.join(part.format(number) for number in range(count))


def repeated(part, least=BYTES):
    return part * (least // len(part))


TEXTS = {
    "brackets": "SELECT " + "(" * 8_192 + "1" + ")" * 8_192,
    "open brackets": repeated("("),
    "columns of a table": f"CREATE TABLE wide ({', '.join(f'c{number} int' for number in range(3_000))})",
    "columns of a row": f"SELECT {listed('{}')}",
    "lines of columns": "SELECT 1" + repeated("\n, 1"),
    "a short list": f"SELECT 1 FROM t WHERE id IN ({', '.join(map(str, range(5_000)))})",
    "a list": f"SELECT 1 FROM t WHERE id IN ({listed('{}')})",
    "a list of texts": "SELECT 1 FROM t WHERE id::text IN (" + listed("'{}'") + ")",
    "an array": f"SELECT 1 FROM t WHERE id = ANY (ARRAY[{listed('{}')}])",
    "a literal": "SELECT '{" + listed("{}") + "}'::int[]",
    "statements": "; ".join(["SELECT 1"] * 20_000),
    "semicolons": repeated(";"),
    "rows": f"SELECT count(*) FROM (VALUES {listed('({})')}) v",
    "a sum": "SELECT 1" + repeated(" + 1"),
    "a sum of columns": "SELECT id" + " + id" * 4_000 + " FROM t",
    "alternatives": "SELECT 1 FROM t WHERE " + " OR ".join(f"id = {number}" for number in range(1_600)),
    "conditions": "SELECT 1 FROM t WHERE " + " AND ".join(f"id <> {number}" for number in range(1_600)),
    "conditions with alternatives": "SELECT 1 FROM t WHERE " + " AND ".join(f"(id = {n} OR id = {n + 1})" for n in range(990)),
    "arrays in conditions": "SELECT 1 FROM t WHERE " + " AND ".join(f"id = ANY (ARRAY[{n}, {n + 1}])" for n in range(990)),
    "lists in a chain": "SELECT id" + " IN (1, 2) = id" * 900 + " FROM t",
    "patterns": "SELECT 'a'" + " ~ 'a'" * 2_500,
    "collations": "SELECT 'a'" + " COLLATE \"C\"" * 3_000,
    "casts": "SELECT 1" + "::int" * 3_000,
    "cases": "SELECT CASE id" + "".join(f" WHEN {number} THEN {number}" for number in range(2_000)) + " END FROM t",
    "lines": "SELECT 1" + "\n" * BYTES,
    "locks": "SELECT 1 FROM t LIMIT 1" + repeated(" FOR UPDATE,"),
    "weak locks": "SELECT 1 FROM t" + repeated(" FOR KEY SHARE,"),
    "modes": "BEGIN" + repeated(" DEFERRABLE,"),
    "groups": "SELECT 1" + repeated(" GROUP BY DISTINCT 1,"),
    "frames": "SELECT 1" + repeated(" EXCLUDE GROUP,"),
    "options": f"CREATE TABLE o (a int) WITH ({listed('o{}')})",
    "words": repeated("a "),
    "quotes": repeated("'"),
    "unions": "SELECT 1" + " UNION ALL SELECT 1" * 2_000,
    "tables": "SELECT 1 FROM " + listed("t a{}"),
    "a chain of WITH": "WITH a0 AS (SELECT 1 AS x)" + "".join(f", a{n} AS (SELECT x FROM a{n - 1})" for n in range(1, 60_000)) + " SELECT x FROM a59999",
    "a chain of WITH that runs": "WITH a0 AS MATERIALIZED (SELECT 1 AS x)"
                                 + "".join(f", a{n} AS MATERIALIZED (SELECT x + 1 AS x FROM a{n - 1})" for n in range(1, 1_000)) + " SELECT x FROM a999",
    "queries of WITH": "WITH " + listed("a{} AS (SELECT 1)", least=BYTES // 4) + " SELECT 1",
    "columns of a wide table": "CREATE TABLE w (" + listed("c{} int") + ")",
    "columns of an index": "CREATE INDEX ON t (id" + repeated(", id") + ")",
    "columns of a key": "CREATE TABLE k (a int, PRIMARY KEY (a" + repeated(", a") + "))",
    "checks": "CREATE TABLE c (a int" + repeated(", CHECK (a > 0)") + ")",
    "unique keys": "CREATE TABLE u (a int" + repeated(", UNIQUE (a)") + ")",
    "foreign keys": "CREATE TABLE f (a int" + repeated(", FOREIGN KEY (a) REFERENCES t") + ")",
    "changes": "ALTER TABLE t ADD COLUMN a int" + repeated(", ADD COLUMN a int"),
    "names": f"DROP TABLE {listed('a{}')}",
    "labels": "CREATE TYPE e AS ENUM (" + listed("'{}'") + ")",
    "arguments": f"SELECT concat({listed('{}')})",
    "order": "SELECT id FROM t ORDER BY " + ", ".join(["id"] * 20_000),
    "a rollup": "SELECT 1 FROM t GROUP BY ROLLUP (id" + repeated(", id") + ")",
    "groups of many keys": "SELECT 1 FROM t GROUP BY " + listed("id + {}"),
    "many groupings": "SELECT 1 FROM t GROUP BY id" + repeated(", id"),
    "groupings": "SELECT 1 FROM t GROUP BY " + ", ".join(["id"] * 20_000),
}


@pytest.fixture(scope="module")
def databases(server):
    with server.connect(autocommit=True) as connection:
        for name in ("long_texts", "beside_long_texts"):
            connection.execute(f"CREATE DATABASE {name}")
    with contextlib.ExitStack() as stack:
        busy, beside = (stack.enter_context(server.connect(name, autocommit=True)) for name in ("long_texts", "beside_long_texts"))
        busy.execute("CREATE TABLE t (id int PRIMARY KEY)")
        yield busy, beside


@pytest.mark.parametrize("prepare", [False, True])
def test_a_long_text_is_ended_while_it_is_planned(databases, prepare):
    busy, _ = databases
    busy.execute("SET statement_timeout = '20ms'")
    text = TEXTS["a list"]
    try:
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            busy.execute(text, prepare=prepare)
    finally:
        busy.execute(GUARD)
    assert busy.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("text", ["SELECT 1" + repeated("\n, 1") + " FROM", "SELECT '" + repeated("a ", 4 * BYTES), "EXECUTE q (" + listed("f({})") + ",)"],
                         ids=["columns", "an open text", "arguments"])  # fmt: skip
@pytest.mark.parametrize("prepare", [False, True])
def test_a_long_text_is_ended_while_it_is_read(databases, text, prepare):
    """An error that stands at its end is not met."""
    busy, _ = databases
    busy.execute("SET statement_timeout = '20ms'")
    send = (lambda: busy.pgconn.prepare(b"", text.encode())) if prepare else (lambda: busy.pgconn.exec_(text.encode()))
    assert send().error_field(67) == b"57014"
    busy.execute(GUARD)
    assert send().error_field(67) == b"42601"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_long_text_is_answered_or_refused(databases, text):
    busy, beside = databases
    busy.execute(GUARD)
    beside.execute("SET statement_timeout = '20s'")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(busy.pgconn.exec_, text.encode())
        while not running.done():
            beside.execute("SELECT 1")
    state = running.result().error_field(67)
    assert state != b"57014" and (state or b"").decode()[:2] != "XX"
    busy.execute("ROLLBACK")
