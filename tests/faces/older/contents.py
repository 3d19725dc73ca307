"""What is in the data directories that this folder keeps, one for each form that data on disks has had.

    python tests/faces/older/contents.py NAME       # with the binary of today (or $BINARY): NAME-killed.tar.gz, NAME-stopped.tar.gz

A release that changes a form adds its own two; those that are here stay as they are.
"""

import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

import psycopg
import redis

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from node import SAVANNA, Node  # noqa: E402 # found by the line above

# Short, so that a database falls asleep while the directory is made.
SETTINGS = {"SAVANNA_TENANTS_IDLE": "1s"}
FAR = 4_000_000_000

TABLES = """
    CREATE TYPE mood AS ENUM ('calm', 'angry');
    CREATE TABLE owner (id int PRIMARY KEY, name text NOT NULL UNIQUE, feels mood DEFAULT 'calm');
    CREATE TABLE animal (
        id bigserial PRIMARY KEY, owner int REFERENCES owner ON DELETE CASCADE, born date, weight numeric(8, 3) CHECK (weight > 0),
        tags text[], notes jsonb, seen timestamptz, code uuid, raw bytea, ratio double precision, tame boolean, pause interval);
    CREATE INDEX animal_by_born ON animal (born DESC) INCLUDE (weight) WHERE tame;
    CREATE INDEX animal_by_name ON owner (lower(name));
    CREATE VIEW tame AS SELECT id, owner, weight FROM animal WHERE tame;
    CREATE SEQUENCE tickets INCREMENT 5 START 100;
    CREATE SCHEMA farm;
    CREATE TABLE farm.field (id int PRIMARY KEY, area real);
"""
ROWS = """
    INSERT INTO owner SELECT g, 'Owner ' || g FROM generate_series(1, 50) g;
    INSERT INTO animal (owner, born, weight, tags, notes, seen, code, raw, ratio, tame, pause)
        SELECT 1 + g % 50, date '2020-01-01' + g, g + 0.125, ARRAY['a' || g, NULL, 'ü'], jsonb_build_object('n', g, 'list', ARRAY[g, g + 1]),
            timestamptz '2026-01-01 00:00:00+00' + g * interval '1 minute', ('00000000-0000-0000-0000-' || lpad(g::text, 12, '0'))::uuid,
            decode(lpad(to_hex(g), 8, '0'), 'hex'), g / 7.0::float8, g % 3 = 0, g * interval '1 hour'
        FROM generate_series(1, 400) g;
    UPDATE animal SET weight = weight * 2 WHERE id % 10 = 0;
    DELETE FROM owner WHERE id = 50;
    SELECT nextval('tickets'), nextval('tickets');
    INSERT INTO farm.field VALUES (1, 0.5), (2, 'NaN');
"""
# Of each query, what it gives.
QUERIES = {
    "SELECT count(*), sum(weight), count(*) FILTER (WHERE tame) FROM animal WHERE born IS NOT NULL": (392, 86662.000, 130),
    "SELECT tags::text, notes::text, born::text, seen AT TIME ZONE 'UTC' = '2026-01-01 00:21', code::text, encode(raw, 'hex'), ratio, pause::text"
    " FROM animal WHERE id = 21": (
        "{a21,NULL,ü}", '{"n": 21, "list": [21, 22]}', "2020-01-22", True, "00000000-0000-0000-0000-000000000021", "00000015", 3.0, "21:00:00"),
    "SELECT count(*), min(weight) FROM tame": (130, 3.125),
    "SELECT feels::text FROM owner WHERE lower(name) = 'owner 7'": ("calm",),
    "SELECT count(*) FROM animal WHERE born > '2021-01-20' AND tame": (4,),
    "SELECT nextval('tickets') % 5, nextval('tickets') > 105": (0, True),
    "SELECT sum(id), count(*) FILTER (WHERE area = 'NaN') FROM farm.field": (3, 1),
}
WRONG = {
    "INSERT INTO owner VALUES (60, 'Owner 7')": "23505",
    "INSERT INTO animal (owner, weight) VALUES (99, 1)": "23503",
    "INSERT INTO animal (owner, weight) VALUES (1, -1)": "23514",
}
PASSWORD = "a password of 2026"


def fill(ports):
    """Writes to every service what `check` looks for."""
    fill_keys(redis.Redis(port=ports["keys"]))
    with connect(ports) as admin:
        for name in ("asleep", "awake"):
            admin.execute(f"CREATE DATABASE {name}")
    for name in ("asleep", "awake"):
        with connect(ports, name) as connection:
            connection.execute(TABLES)
            connection.execute(ROWS)
    time.sleep(4)  # `asleep` goes to its segments; `awake` has a commit behind them.
    with connect(ports, "awake") as connection:
        connection.execute("INSERT INTO farm.field VALUES (3, 1)")
        connection.execute("DELETE FROM farm.field WHERE id = 3")
    with connect(ports) as admin:
        admin.execute(f"CREATE USER postgres PASSWORD '{PASSWORD}'")


def connect(ports, database="postgres", **options):
    return psycopg.connect(host="127.0.0.1", port=ports["tenants"], user="postgres", dbname=database, autocommit=True, **options)


def fill_keys(keys):
    keys.set("text", "value")
    keys.set("bytes", bytes(range(256)) * 40)
    keys.incrby("number", 41)
    keys.incr("number")
    keys.rpush("list", *range(300))
    keys.lpop("list", 10)
    keys.sadd("set", *range(100), "word")
    keys.srem("set", 99)
    keys.hset("hash", mapping={f"field {i}": i for i in range(50)})
    keys.zadd("sorted", {f"member {i}": i / 4 for i in range(200)})
    keys.setbit("bits", 1001, 1)
    keys.set("gone", "x", px=1)
    keys.set("expires", "later", exat=FAR)
    keys.execute_command("SAV.REPLICATE", "set", "FULL")
    keys.sadd("set", "behind")
    with keys.pipeline(transaction=True) as both:
        both.set("{pair}1", 1).set("{pair}2", 2).execute()
    keys.execute_command("BGREWRITEAOF")
    time.sleep(1)
    keys.set("tail", "of the log")
    keys.delete("text")
    other = redis.Redis(port=keys.connection_pool.connection_kwargs["port"], db=3)
    other.set("third", "database")


def check(ports):
    """All that `fill` wrote is there, and the services go on from it."""
    check_keys(redis.Redis(port=ports["keys"], decode_responses=True), redis.Redis(port=ports["keys"]))
    check_tenants(ports)


def check_tenants(ports):
    """The same of databases, at any node that has them or the way to them."""
    for name in ("asleep", "awake"):
        with connect(ports, name, password=PASSWORD) as connection:
            for query, expected in QUERIES.items():
                assert connection.execute(query).fetchall() == [expected], (name, query)
            for statement, state in WRONG.items():
                try:
                    connection.execute(statement)
                except psycopg.Error as error:
                    assert error.sqlstate == state, (name, statement, error)
                else:
                    raise AssertionError(f"{name}: {statement} was taken")
            before = connection.execute("SELECT max(id) FROM animal").fetchone()[0]
            assert connection.execute("INSERT INTO animal (owner, weight) VALUES (2, 1) RETURNING id").fetchone()[0] > before


def check_keys(keys, raw):
    assert keys.get("text") is None and keys.get("gone") is None
    assert raw.get("bytes") == bytes(range(256)) * 40
    assert keys.get("number") == "42"
    assert keys.lrange("list", 0, -1) == [str(i) for i in range(10, 300)]
    assert keys.smembers("set") == {*map(str, range(99)), "word", "behind"}
    assert int(keys.execute_command("SAV.REPLICAS", "set")) >= 1
    assert keys.hgetall("hash") == {f"field {i}": str(i) for i in range(50)}
    assert keys.zrangebyscore("sorted", 10, 10.5, withscores=True) == [("member 40", 10), ("member 41", 10.25), ("member 42", 10.5)]
    assert keys.zcard("sorted") == 200
    assert keys.bitcount("bits") == 1 and keys.getbit("bits", 1001) == 1
    assert keys.expiretime("expires") == FAR
    assert keys.mget("{pair}1", "{pair}2", "tail") == ["1", "2", "of the log"]
    assert redis.Redis(port=keys.connection_pool.connection_kwargs["port"], db=3).get("third") == b"database"


# The file sink's own records: what one query left in a directory is read, and another one writes beside it.
SINK = """CREATE TABLE parts (kind VARCHAR, amount BIGINT) PARTITIONED BY (kind)
    WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'ndjson');"""


def sql(text):
    done = subprocess.run([SAVANNA, "sql", "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fill_sink(path):
    rows = path.parent / "rows.csv"
    rows.write_text("kind,amount\n" + "".join(f"kind {i % 3},{i}\n" for i in range(30)))
    sql(f"CREATE TABLE source (kind VARCHAR, amount BIGINT) WITH ('connector' = 'file', 'path' = '{rows}', 'format' = 'csv');"
        f"{SINK.format(path=path)} INSERT INTO parts SELECT kind, amount FROM source;")


def check_sink(path):
    query = SINK.format(path=path) + "CREATE TABLE out (kind VARCHAR, amount BIGINT) WITH ('connector' = 'print', 'format' = 'csv');" \
        " INSERT INTO out SELECT kind, amount FROM parts;"
    once = sorted(f"+I,kind {i % 3},{i}" for i in range(30))
    assert sorted(line for line in sql(query).splitlines() if line.startswith("+I,")) == once
    fill_sink(path)
    assert sorted(line for line in sql(query).splitlines() if line.startswith("+I,")) == sorted(once * 2)


def make(name):
    for end in ("killed", "stopped"):
        with tempfile.TemporaryDirectory() as scratch:
            directory = pathlib.Path(scratch)
            node = Node(directory, SETTINGS)
            try:
                fill(node.ports)
            finally:
                if end == "killed":
                    node.kill()
                else:
                    assert node.stop() == 0
            fill_sink(directory / "parts")
            with tarfile.open(HERE / f"{name}-{end}.tar.gz", "w:gz") as archive:
                for part in ("data", "parts"):
                    archive.add(directory / part, part)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.access(SAVANNA, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} NAME, with a binary at {SAVANNA}")
    make(sys.argv[1])
