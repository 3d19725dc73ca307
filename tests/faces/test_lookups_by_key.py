"""Rows are looked up in a database, or in keys, that is asked for the rows of the keys that come."""

import os
import pathlib
import random
import signal
import threading
import time

import psycopg
import pytest
import redis

from node import Node
from ports import free_port
from postgresql import PostgreSQL
from test_redis_sink import Target
from test_survival import BIDS, NEXMARK, append, connect, followed, lines, named, states, until

SEED = random.randrange(1 << 32)
PASSWORD = "open sesame"
LOOKED_UP = "FROM (SELECT *, PROCTIME() AS p FROM {stream}) S {join} JOIN {table} FOR SYSTEM_TIME AS OF S.p AS T ON {on}"


@pytest.fixture(scope="module")
def shared():
    database = PostgreSQL(PASSWORD)
    yield database
    database.stop()


@pytest.fixture
def database():
    database = PostgreSQL(PASSWORD)
    yield database
    database.stop()


def names(port, columns="id BIGINT, name VARCHAR", table="names", **options):
    options = {"connector": "postgres", "host": "127.0.0.1", "port": port, "database": "postgres", "username": "postgres", "password": PASSWORD,
               "table": table, "lookup.cache": "partial", **{name.replace("_", "."): value for name, value in options.items()}}
    given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return f"CREATE TABLE {table} ({columns}) WITH ({given})"


def looked_up(columns, stream="bids", join="LEFT", table="names", on="mod(S.auction, 100) = T.id"):
    return f"SELECT {columns} " + LOOKED_UP.format(stream=stream, join=join, table=table, on=on)


def stream_of(path, keys, types):
    """A file of these keys, NULL where a value is None, and the table that reads it."""
    def field(value):
        return "" if value is None else '"' + str(value).replace('"', '""') + '"'

    rows = [",".join(map(field, key)) for key in [[f"k{at}" for at in range(len(types))], *keys]]
    path.write_text("\n".join(rows) + "\n")
    columns = ", ".join(f"k{at} {of}" for at, of in enumerate(types))
    return f"CREATE TABLE keys ({columns}) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv')"


UUIDS = ["0e37df36-f698-11e6-8dd4-cb9ced3df976", "a81bc81b-dead-4e5d-abff-90865d1e13b1"]
ODD = ["plain", "it's", 'a "word"', "back\\slash", "{a,b}", "", "ümlaut", "a,b", "line\nend", "E'x'", "NULL", " "]
# The types of the columns in the stream and in PostgreSQL; keys that are there, and others.
KEYS = {
    "whole numbers": (["BIGINT"], ["bigint"], [(n,) for n in range(0, 200, 3)], [(1,), (-(1 << 63),), ((1 << 63) - 1,)]),
    "smaller numbers than the stream has": (["BIGINT"], ["int"], [(n,) for n in range(20)], [(1 << 40,), (-(1 << 40),), (77,)]),
    "small numbers": (["SMALLINT"], ["smallint"], [(-3,), (0,), (32767,)], [(5,)]),
    "texts": (["VARCHAR"], ["text"], [(text,) for text in ODD], [("absent",), ("it''s",), ("\\",)]),
    "texts of a length": (["VARCHAR"], ["varchar(20)"], [("a",), ("b'c",)], [("x" * 100,)]),
    "uuids": (["VARCHAR"], ["uuid"], [(one,) for one in UUIDS], [("no uuid",), (UUIDS[0].upper(),), (UUIDS[0][:-1] + "0",)]),
    "decimals": (["DECIMAL(10, 2)"], ["numeric(10, 2)"], [("1.50",), ("-7.00",), ("12345678.99",)], [("1.51",)]),
    "truth": (["BOOLEAN"], ["boolean"], [("true",)], [("false",)]),
    "days": (["DATE"], ["date"], [("2026-12-01",), ("1969-01-31",)], [("2026-12-02",)]),
    "two columns": (["VARCHAR", "BIGINT"], ["text", "bigint"], [(f"k{n % 3}'", n % 5) for n in range(15)], [("k0'", 9), ("k1", 1)]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("join", ["INNER", "LEFT"])
def test_rows_meet_what_the_database_has_for_their_keys(tmp_path, shared, kind, join):
    types, in_database, there, absent = KEYS[kind]
    columns = [f"k{at}" for at in range(len(types))]
    dice = random.Random(SEED)
    stream = [key for key in there + absent for _ in range(3)] + [tuple([None] * len(types))] * 2
    if len(types) > 1:
        stream.append(("k0'", None))
    dice.shuffle(stream)
    with shared.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS names")
        connection.execute(f"CREATE TABLE names ({', '.join(f'{c} {of}' for c, of in zip(columns, in_database))}, n int)")
        for number, key in enumerate(there):
            # Some have a row more.
            for n in [number, *([1000 + number] if number % 4 == 0 else [])]:
                connection.execute(f"INSERT INTO names VALUES ({', '.join(['%s'] * len(key))}, %s)", [*map(str, key), n])
        connection.execute("INSERT INTO names (n) VALUES (-1)")
    table = names(shared.port, columns=", ".join(f"{c} {of}" for c, of in zip(columns, types)) + ", n INT")
    on = " AND ".join(f"S.{c} = T.{c}" for c in columns)
    node = Node(tmp_path)
    try:
        with connect(node) as connection:
            for statement in [stream_of(tmp_path / "keys.csv", stream, types), table]:
                connection.execute(statement)
            shown = ", ".join(f"CAST(S.{c} AS VARCHAR)" for c in columns)
            rows = connection.execute(looked_up(f"{shown}, T.n", "keys", join, on=on)).fetchall()
            plan = "\n".join(str(row) for row in connection.execute("EXPLAIN " + looked_up(f"{shown}, T.n", "keys", join, on=on)).fetchall())
        assert f"asked by key ({', '.join(columns)}), answers of 10000 rows are kept for 60s" in plan, plan
    finally:
        node.kill()
    place = {key: number for number, key in enumerate(there)}
    expected = []
    for key in stream:
        number = place.get(key) if None not in key else None
        texts = tuple(None if value is None else str(value) for value in key)
        found = [] if number is None else [number, *([1000 + number] if number % 4 == 0 else [])]
        expected += [(*texts, n) for n in found or ([None] if join == "LEFT" else [])]
    assert sorted(rows, key=repr) == sorted(expected, key=repr), f"seed {SEED}"


def test_one_statement_asks_for_all_keys_of_a_batch_and_answers_are_used_again(tmp_path, shared):
    with shared.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS names")
        connection.execute("CREATE TABLE names (id bigint PRIMARY KEY, name text)")
        connection.execute("INSERT INTO names SELECT n, 'name ' || n FROM generate_series(0, 49) n")
    nexmark = NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'").replace("1500000", "200000")
    found = f"CREATE TABLE found (auction BIGINT, name VARCHAR) WITH ('connector' = 'blackhole')"
    node = Node(tmp_path)
    try:
        with connect(node) as connection:
            for statement in [nexmark, BIDS, names(shared.port), found]:
                connection.execute(statement)
            connection.execute("INSERT INTO found " + looked_up("S.auction, T.name"))
            until(lambda: all(row["state"] == "finished" for row in states(node).values()))
            rows = connection.execute(looked_up("S.auction, T.name")).fetchall()
        assert all(name == (f"name {auction % 100}" if auction % 100 < 50 else None) for auction, name in rows)
        assert len(rows) == 200_000 * 46 // 50
    finally:
        node.kill()
    with shared.connect() as connection:
        # 184,000 rows of 100 keys, twice: a few statements.
        calls = connection.execute("SELECT coalesce(idx_scan, 0) + coalesce(seq_scan, 0) FROM pg_stat_user_tables WHERE relname = 'names'").fetchone()[0]
    assert calls <= 2000, calls


def test_a_query_writes_each_row_once_however_often_the_node_and_the_database_are_killed(tmp_path, database):
    dice, count, out = random.Random(SEED), 400_000, tmp_path / "out"
    with database.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE names (id bigint PRIMARY KEY, name text)")
        connection.execute("INSERT INTO names SELECT n, 'name ' || n || ' 0' FROM generate_series(0, 49) n")
    over = threading.Event()

    def change():
        version = 0
        while not over.is_set():
            version += 1
            try:
                with database.connect(autocommit=True) as connection:
                    connection.execute(f"UPDATE names SET name = 'name ' || id || ' {version}'")
            except psycopg.Error:
                pass
            over.wait(0.05)

    changing = threading.Thread(target=change)
    changing.start()
    nexmark = NEXMARK.replace("1500000", str(count)).replace("250000", "100000")
    found = f"CREATE TABLE found (auction BIGINT, name VARCHAR) WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'csv.header' = 'false')"
    node, kills = Node(tmp_path), 0
    try:
        with connect(node) as connection:
            for statement in [nexmark, BIDS, names(database.port, **{"lookup_cache_ttl": "100ms", "lookup_cache_max-rows": 60}), found, named("found"),
                              "INSERT INTO found " + looked_up("S.auction, T.name")]:
                connection.execute(statement)
        assert states(node)["found"]["delivery"] == "exactly-once"
        until(lambda: lines(out))
        for _ in range(5):
            kills += "found" in states(node)
            who = dice.choice(["node", "database", "both"])
            if who != "node":
                database.kill()
                time.sleep(dice.uniform(0, 0.5))
            if who != "database":
                node.kill()
            if who != "node":
                database.start()
            if who != "database":
                node = Node(tmp_path)
            time.sleep(dice.uniform(0.3, 1))
        until(lambda: "found" not in states(node), deadline=120)
        assert node.stop() == 0, node.log.read_text()
    finally:
        over.set()
        changing.join()
        node.kill()
    assert kills >= 3, f"seed {SEED}: it was over too soon"
    rows = [line.split(",") for line in lines(out)]
    assert len(rows) == count * 46 // 50, f"seed {SEED}"
    wrong = [row for row in rows if not (row[1].startswith(f"name {int(row[0]) % 100} ") if int(row[0]) % 100 < 50 else row[1] == "")]
    assert not wrong, f"seed {SEED}: {wrong[:5]}"
    assert len({name.split(" ")[2] for _, name in rows if name}) > 2, "it was asked again while it changed"
    assert not list((tmp_path / "data/streams/lookups").iterdir()), "nothing is kept of a query that is over"


@pytest.mark.parametrize("kind", ["postgres", "savanna"])
def test_an_epoch_that_was_recorded_meets_what_was_answered_then(tmp_path, kind):
    log, out = tmp_path / "log.csv", tmp_path / "out"
    log.write_text("at,n\n")
    target = PostgreSQL(PASSWORD) if kind == "postgres" else Target("savanna", tmp_path / "target")
    if kind == "postgres":
        table = names(target.port, lookup_cache="none")
        with target.connect(autocommit=True) as connection:
            connection.execute("CREATE TABLE names (id bigint PRIMARY KEY, name text)")
    else:
        table = f"""CREATE TABLE names (id BIGINT, name VARCHAR) WITH ('connector' = 'redis', 'url' = 'redis://127.0.0.1:{target.port}', 'key' = 'name:',
            'key.fields' = 'id', 'lookup.cache' = 'none')"""

    def rename(name):
        if kind == "postgres":
            with target.connect(autocommit=True) as connection:
                connection.execute("DELETE FROM names")
                connection.execute("INSERT INTO names SELECT n, %s FROM generate_series(0, 9) n", [name])
        else:
            for number in range(10):
                redis.Redis(port=target.port).hset(f"name:{number}", mapping={"name": name})

    rename("before")
    found = f"CREATE TABLE found (n BIGINT, name VARCHAR) WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'csv.header' = 'false')"
    # Epochs without rows are recorded as well.
    node = Node(tmp_path, {"STREAMS_CRASH_AT": "record-durable:1"})
    try:
        with connect(node) as connection:
            for statement in [followed(log), table, found, named("found")]:
                connection.execute(statement)
            append(log, 1, 2, 3, 11)
            connection.execute("INSERT INTO found " + looked_up("S.n, T.name", "log", on="S.n = T.id"))
        assert node.process.wait(60) == -signal.SIGABRT
        assert not lines(out), "it ended before the epoch was committed"
        rename("behind")
        append(log, 4, 12)
        node = Node(tmp_path)
        until(lambda: len(lines(out)) >= 6)
        assert lines(out) == sorted(["1,before", "2,before", "3,before", "11,", "4,behind", "12,"])
    finally:
        node.kill()
        target.stop() if kind == "postgres" else target.kill()


def tell(database, number):
    """Sends a signal to a database and to all who serve clients in it, which have sessions of their own."""
    postmaster = database.process.pid
    for process in [postmaster, *map(int, pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split())]:
        os.kill(process, number)


def test_a_database_that_is_away_or_slow_is_waited_for_without_spinning(tmp_path, database):
    log, out = tmp_path / "log.csv", tmp_path / "out"
    log.write_text("at,n\n")
    with database.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE names (id bigint PRIMARY KEY, name text)")
        connection.execute("INSERT INTO names SELECT n, 'name ' || n FROM generate_series(0, 9) n")
    found = f"CREATE TABLE found (n BIGINT, name VARCHAR) WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'csv.header' = 'false')"
    beside = f"CREATE TABLE beside (n BIGINT) WITH ('connector' = 'file', 'path' = '{tmp_path / 'beside'}', 'format' = 'csv', 'csv.header' = 'false')"
    node = Node(tmp_path)
    try:
        database.kill()
        with connect(node) as connection:
            for statement in [followed(log), names(database.port, lookup_cache="none"), found, beside, named("found"),
                              "INSERT INTO found " + looked_up("S.n, T.name", "log", on="S.n = T.id"), named("beside"),
                              "INSERT INTO beside SELECT n FROM log"]:
                connection.execute(statement)
        append(log, 1, 2)
        until(lambda: lines(tmp_path / "beside") == ["1", "2"])
        time.sleep(1)
        before = node.processor_seconds()
        time.sleep(4)
        assert node.processor_seconds() - before < 2, "nobody spins"
        assert states(node)["found"]["state"] == "running" and not lines(out)
        database.start()
        until(lambda: lines(out) == ["1,name 1", "2,name 2"])
        # Of a database that stands still its connection is there.
        tell(database, signal.SIGSTOP)
        append(log, 3)
        until(lambda: "3" in lines(tmp_path / "beside"))
        before = node.processor_seconds()
        time.sleep(3)
        assert node.processor_seconds() - before < 1.5, "nobody spins"
        assert len(lines(out)) == 2
        tell(database, signal.SIGCONT)
        until(lambda: "3,name 3" in lines(out))
        # Nobody waits for what nobody needs.
        database.kill()
        append(log, 4)
        until(lambda: "4" in lines(tmp_path / "beside"))
        with connect(node) as connection:
            began = time.monotonic()
            connection.execute("STOP QUERY 'found'")
            until(lambda: states(node)["found"]["state"] == "cancelled")
            assert time.monotonic() - began < 10
            database.start()
            connection.execute("RESUME QUERY 'found'")
        until(lambda: "4,name 4" in lines(out))
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()
        # One that stands still does not end.
        tell(database, signal.SIGCONT)


def test_what_cannot_be_looked_up_is_told_and_a_database_that_stays_away_fails_the_query(tmp_path, shared):
    with shared.connect(autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS names")
        connection.execute("CREATE TABLE names (id bigint, name text, mood bytea)")
    keys = stream_of(tmp_path / "keys.csv", [(1,), (2,)], ["BIGINT"])
    texts = "CREATE VIEW texts AS SELECT CAST(k0 AS VARCHAR) AS k0 FROM keys"
    asked = looked_up("S.k0, T.id", "keys", on="S.k0 = T.id")
    node = Node(tmp_path)

    def told(table, query=asked):
        with connect(node) as connection:
            connection.execute("DROP TABLE IF EXISTS names")
            connection.execute(table)
            with pytest.raises(psycopg.Error) as error:
                connection.execute(query).fetchall()
        return str(error.value)

    try:
        with connect(node) as connection:
            connection.execute(keys)
            connection.execute(texts)
        began = time.monotonic()
        away = told(names(free_port(), **{"lookup_retry_timeout": "1s"}))
        assert "look up in" in away and "look whether the server is up" in away and time.monotonic() - began < 20, away
        assert "does not let user 'postgres' in" in told(names(shared.port, password="wrong"))
        assert "does not exist in PostgreSQL" in told(names(shared.port).replace("'table' = 'names'", "'table' = 'absent'"))
        by_text = looked_up("S.k0, T.mood", "texts", on="S.k0 = T.mood")
        assert "expected text or varchar or bpchar or uuid" in told(names(shared.port, columns="mood VARCHAR"), by_text)
        assert "its columns must be compared as they are" in told(names(shared.port, columns="id INT"))
        assert "'lookup.cache.ttl' of table names says nothing" in told(names(shared.port, lookup_cache="none", lookup_cache_ttl="1s"))
    finally:
        node.kill()


@pytest.mark.parametrize("kind", [pytest.param("redis", marks=pytest.mark.long), "savanna"])
@pytest.mark.parametrize("form", ["hash", "string"])
def test_rows_meet_the_keys_that_a_server_has(tmp_path, kind, form):
    target = Target(kind, tmp_path / "target")
    keys = redis.Redis(port=target.port)

    def put(key, n):
        if form == "hash":
            keys.hset(key, mapping={"n": n})
        else:
            keys.set(key, f'{{"n": {n}}}')

    for at, text in enumerate(ODD[:5]):
        put(f"name:{at}:{text}", at * 10)
    keys.rpush("name:7:list", "no row of this table")
    stream = [(at % 9, text) for at, text in enumerate(ODD[:5])] * 3 + [(7, "list"), (8, "absent"), (None, "plain"), (0, None), (0, "0:plain")]
    table = f"""CREATE TABLE names (id BIGINT, word VARCHAR, n INT) WITH ('connector' = 'redis', 'url' = 'redis://127.0.0.1:{target.port}', 'key' = 'name:',
        'key.fields' = 'id;word', 'type' = '{form}', 'lookup.cache' = 'partial', 'lookup.cache.ttl' = '1h')"""
    node = Node(tmp_path)
    try:
        with connect(node) as connection:
            for statement in [stream_of(tmp_path / "keys.csv", stream, ["BIGINT", "VARCHAR"]), table]:
                connection.execute(statement)
            for join in ["LEFT", "INNER"]:
                rows = connection.execute(looked_up("S.k0, S.k1, T.n", "keys", join, on="S.k0 = T.id AND S.k1 = T.word")).fetchall()
                found = {(at, text): at * 10 for at, text in enumerate(ODD[:5])}
                expected = [(*key, found.get(key)) for key in stream if join == "LEFT" or key in found]
                assert sorted(rows, key=repr) == sorted(expected, key=repr)
    finally:
        node.kill()
        target.kill()


@pytest.mark.parametrize("kind", [pytest.param("redis", marks=pytest.mark.long), "savanna"])
def test_a_server_of_keys_that_is_killed_is_asked_again(tmp_path, kind):
    log, out = tmp_path / "log.csv", tmp_path / "out"
    log.write_text("at,n\n")
    target = Target(kind, tmp_path / "target")
    redis.Redis(port=target.port).hset("name:1", mapping={"name": "first"})
    table = f"""CREATE TABLE names (id BIGINT, name VARCHAR) WITH ('connector' = 'redis', 'url' = 'redis://127.0.0.1:{target.port}', 'key' = 'name:',
        'key.fields' = 'id', 'lookup.cache' = 'none')"""
    found = f"CREATE TABLE found (n BIGINT, name VARCHAR) WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'csv.header' = 'false')"
    node = Node(tmp_path)
    try:
        with connect(node) as connection:
            for statement in [followed(log), table, found, named("found"),
                              "INSERT INTO found " + looked_up("S.n, T.name", "log", on="S.n = T.id")]:
                connection.execute(statement)
        append(log, 1)
        until(lambda: lines(out) == ["1,first"])
        target.kill()
        append(log, 1)
        time.sleep(1)
        before = node.processor_seconds()
        time.sleep(3)
        assert node.processor_seconds() - before < 1.5, "nobody spins"
        assert states(node)["found"]["state"] == "running" and lines(out) == ["1,first"]
        target.start()
        redis.Redis(port=target.port).hset("name:1", mapping={"name": "second"})
        append(log, 1, 2)
        until(lambda: len(lines(out)) == 4)
        assert lines(out)[0] == "1,first" and lines(out)[-1] == "2,", lines(out)
    finally:
        node.kill()
        target.kill()


@pytest.mark.long
def test_rows_meet_those_of_a_tenant(tmp_path):
    settings = {"tenants.port": free_port()}
    node = Node(tmp_path, settings=settings)
    tenant = {"host": "127.0.0.1", "port": settings["tenants.port"], "user": "postgres"}
    try:
        with psycopg.connect(dbname="postgres", autocommit=True, **tenant) as connection:
            connection.execute("CREATE DATABASE shop")
        with psycopg.connect(dbname="shop", autocommit=True, **tenant) as connection:
            connection.execute("CREATE TABLE names (k0 text, k1 bigint, n int, PRIMARY KEY (k0, k1))")
            for at, text in enumerate(ODD):
                connection.execute("INSERT INTO names VALUES (%s, %s, %s)", [text, at, at * 10])
        table = f"""CREATE TABLE names (k0 VARCHAR, k1 BIGINT, n INT) WITH ('connector' = 'postgres', 'table' = 'names', 'username' = 'postgres',
            'url' = 'postgresql://127.0.0.1:{settings['tenants.port']}/shop', 'lookup.cache' = 'partial')"""
        stream = [(text, at) for at, text in enumerate(ODD)] + [("absent", 1), (None, 2)]
        with connect(node) as connection:
            for statement in [stream_of(tmp_path / "keys.csv", stream, ["VARCHAR", "BIGINT"]), table]:
                connection.execute(statement)
            both = connection.execute(looked_up("S.k0, T.n", "keys", on="S.k0 = T.k0 AND S.k1 = T.k1")).fetchall()
            one = connection.execute(looked_up("S.k1, T.n", "keys", on="S.k1 = T.k1")).fetchall()
        assert sorted(both, key=repr) == sorted([(text, at * 10) for at, text in enumerate(ODD)] + [("absent", None), (None, None)], key=repr)
        assert sorted(one) == sorted([(at, at * 10) for at in range(len(ODD))] + [(1, 10), (2, 20)])
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()
