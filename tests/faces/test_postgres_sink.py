"""Streams into PostgreSQL, and into a tenant: each row is there once, whoever is killed."""

import collections
import os
import random
import subprocess
import time

import psycopg
import pytest
import requests

from node import SAVANNA, Node
from ports import free_port
from postgresql import USER, PostgreSQL

SEED = random.randrange(1 << 32)
PASSWORD = "open sesame"
EVENTS = 1_000_000
NEXMARK = f"""CREATE TABLE events (event_type INT, bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
    dateTime TIMESTAMP(3), extra VARCHAR>, at AS bid.dateTime, WATERMARK FOR at AS at - INTERVAL '1' SECOND) WITH ('connector' = 'nexmark',
    'events.num' = '{EVENTS}', 'rate-limited' = 'true', 'first-event.rate' = '150000', 'base-time' = '2026-01-01 00:00:00')"""
BIDS = "CREATE VIEW bids AS SELECT bid.auction AS auction, bid.price AS price, at FROM events WHERE event_type = 2"
# Of query 5 of Nexmark the windows, and the last price of some auctions.
QUERIES = {
    "hot": """INSERT INTO hot SELECT window_start, auction, count(*) FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '0.2' SECOND,
        INTERVAL '1' SECOND)) GROUP BY window_start, window_end, auction""",
    "latest": "INSERT INTO latest SELECT auction, price, price % 10 = 7 FROM bids WHERE auction % 10 = 0",
}
COLUMNS = {"hot": "at TIMESTAMP(3), auction BIGINT, bids BIGINT", "latest": "auction BIGINT, price BIGINT, goes BOOLEAN"}
KEYS = {"hot": "", "latest": ", PRIMARY KEY (auction) NOT ENFORCED"}
TABLES = ["CREATE TABLE hot (at timestamp(3), auction bigint, bids bigint)", "CREATE TABLE latest (auction bigint PRIMARY KEY, price bigint)"]


def connect(node):
    return psycopg.connect(host="127.0.0.1", port=node.ports["pgwire"], user="postgres", dbname="savanna_streams", autocommit=True)


def into(name, **options):
    """The statement that makes a table over one of the same name in PostgreSQL."""
    options = {"connector": "postgres", "table": name, "username": "postgres", **options}
    if name == "latest":
        options["sink.delete-column"] = "goes"
    given = ", ".join(f"'{name.replace('_', '-')}' = '{value}'" for name, value in options.items())
    return f"CREATE TABLE {name} ({COLUMNS[name]}{KEYS[name]}) WITH ({given})"


def begin(node, **options):
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, *(into(name, **options) for name in QUERIES)]:
            connection.execute(statement)
        for name, insert in QUERIES.items():
            connection.execute(f"SET 'query.name' = '{name}'")
            connection.execute(insert)


def states(node):
    with connect(node) as connection:
        shown = connection.execute("SHOW QUERIES")
        names = [column.name for column in shown.description]
        rows = [dict(zip(names, row)) for row in shown.fetchall()]
    return {row["name"]: row["state"] for row in rows if row["name"]}


def until(is_so, seconds=120):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"seed {SEED}"
        time.sleep(0.1)


def expected(tmp_path):
    """What the tables hold if nobody is ever killed: the rows of windows, and the latest prices."""
    tables = [f"CREATE TABLE {name} ({COLUMNS[name]}) WITH ('connector' = 'file', 'path' = '{tmp_path / name}', 'format' = 'csv', 'csv.header' = 'false')"
              for name in QUERIES]
    nexmark = NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'")
    subprocess.run([SAVANNA, "sql", "-c", ";\n".join([nexmark, BIDS, *tables, *QUERIES.values()])], check=True, capture_output=True, timeout=240)
    lines = {name: [line for part in sorted((tmp_path / name).rglob("part-*")) for line in part.read_text().splitlines()] for name in QUERIES}
    latest = {}
    for auction, price, goes in (line.split(",") for line in lines["latest"]):
        if goes == "true":
            latest.pop(int(auction), None)
        else:
            latest[int(auction)] = int(price)
    hot = collections.Counter((at.replace("T", " ")[:23].ljust(23, "0") if "." in at else at.replace("T", " ") + ".000", int(auction), int(bids))
                              for at, auction, bids in (line.split(",") for line in lines["hot"]))
    return hot, latest


def found(connection):
    hot = connection.execute("SELECT to_char(at, 'YYYY-MM-DD HH24:MI:SS.MS'), auction, bids FROM hot").fetchall()
    return collections.Counter(hot), dict(connection.execute("SELECT auction, price FROM latest").fetchall())


def check(tmp_path, connection):
    (hot, latest), (found_hot, found_latest) = expected(tmp_path), found(connection)
    assert len(hot) > 1000 and len(latest) > 100
    assert found_hot == hot, f"seed {SEED}: {list((found_hot - hot).items())[:5]} too many, {list((hot - found_hot).items())[:5]} are missing"
    assert found_latest == latest, f"seed {SEED}"


@pytest.fixture
def database():
    database = PostgreSQL(PASSWORD)
    with database.connect(autocommit=True) as connection:
        for table in TABLES:
            connection.execute(table)
    yield database
    database.stop()


def place(database):
    return {"host": "127.0.0.1", "port": database.port, "database": "postgres", "password": PASSWORD}


def test_rows_are_there_once_however_often_the_node_and_the_database_are_killed(tmp_path, database):
    dice = random.Random(SEED)
    node = Node(tmp_path)
    try:
        begin(node, **place(database))
        kills = 0
        for _ in range(7):
            time.sleep(dice.uniform(0.3, 1.2))
            kills += bool(states(node))
            who = dice.choice(["node", "database", "both"])
            if who != "node":
                database.kill()
                time.sleep(dice.uniform(0, 1))
            if who != "database":
                node.kill()
            if who != "node":
                database.start()
            if who != "database":
                node = Node(tmp_path)
        assert kills >= 3, f"seed {SEED}: it was over too soon"
        until(lambda: not states(node))
        with database.connect() as connection:
            check(tmp_path, connection)
            owners = dict(connection.execute("SELECT sink, owner FROM savanna_epochs").fetchall())
            assert set(owners) == set(QUERIES), owners
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_node_that_ends_at_a_commit_writes_each_row_once(tmp_path, database, point):
    node = Node(tmp_path, {"STREAMS_CRASH_AT": f"postgres-sink-{point}-commit:9"})
    try:
        begin(node, **place(database))
        until(lambda: node.process.poll() is not None)
        node = Node(tmp_path)
        until(lambda: not states(node))
        with database.connect() as connection:
            check(tmp_path, connection)
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()


@pytest.mark.long
def test_a_stream_goes_into_a_tenant_of_the_same_process(tmp_path):
    settings = {"tenants.port": free_port()}
    node = Node(tmp_path, settings=settings)
    tenant = {"host": "127.0.0.1", "port": settings["tenants.port"], "user": "postgres"}
    try:
        with psycopg.connect(dbname="postgres", autocommit=True, **tenant) as connection:
            connection.execute("CREATE DATABASE shop")
        with psycopg.connect(dbname="shop", autocommit=True, **tenant) as connection:
            for table in TABLES:
                connection.execute(table)
        begin(node, url=f"postgresql://127.0.0.1:{settings['tenants.port']}/shop")
        for _ in range(3):
            time.sleep(1)
            node.kill()
            node = Node(tmp_path, settings=settings)
        until(lambda: not states(node))
        with psycopg.connect(dbname="shop", **tenant) as connection:
            check(tmp_path, connection)
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()


def test_rows_are_looked_up_in_a_table_of_a_database(tmp_path, database):
    with database.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE names (id bigint, name text)")
        connection.execute("INSERT INTO names SELECT n, 'name ' || n FROM generate_series(0, 49) n")
    nexmark = NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'").replace(str(EVENTS), "20000")
    names = into("hot", **place(database)).replace("TABLE hot", "TABLE names").replace(COLUMNS["hot"], "id BIGINT, name VARCHAR").replace("'hot'", "'names'")
    asked = """SELECT B.auction, N.name FROM (SELECT *, PROCTIME() AS p FROM bids) B
        LEFT JOIN names FOR SYSTEM_TIME AS OF B.p AS N ON mod(B.auction, 100) = N.id"""
    node = Node(tmp_path)
    try:
        with connect(node) as connection:
            for statement in [nexmark, BIDS, names]:
                connection.execute(statement)
            rows = connection.execute(asked).fetchall()
            assert len(rows) > 10_000
            assert all(name == (f"name {auction % 100}" if auction % 100 < 50 else None) for auction, name in rows)
            assert len(connection.execute("SELECT * FROM names").fetchall()) == 50
            connection.execute("SET 'query.name' = 'hot'")
            connection.execute(into("latest", **place(database)))
            connection.execute(f"INSERT INTO latest SELECT auction, CAST(substring(name, 6) AS BIGINT), name IS NULL FROM ({asked}) J")
            until(lambda: "hot" not in states(node))
        with database.connect() as connection:
            latest = dict(connection.execute("SELECT auction, price FROM latest").fetchall())
        assert latest == {auction: auction % 100 for auction, name in rows if name is not None}
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()


def test_passwords_are_shown_nowhere(tmp_path, database):
    node = Node(tmp_path)
    try:
        url = f"postgresql://postgres:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{database.port}/postgres"
        statements = [NEXMARK, BIDS, into("latest", **place(database)), into("hot", url=url).replace("'username' = 'postgres', ", "")]
        shown = []
        with connect(node) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.execute(QUERIES["hot"])
            asked = [*(f"SHOW CREATE TABLE {name}" for name in QUERIES), "SHOW QUERIES", "SHOW TABLES", "DESCRIBE hot", f"EXPLAIN {QUERIES['hot']}",
                     "SELECT reloptions FROM pg_class"]
            for statement in asked:
                shown += [str(row) for row in connection.execute(statement).fetchall()]
            assert any("******" in line for line in shown) and any("postgres:******@" in line for line in shown)
            for options in ({"password": "open sesam"}, {"port": free_port()}, {"table": "absent"}):
                connection.execute("DROP TABLE latest")
                connection.execute(into("latest", **{**place(database), **options}))
                with pytest.raises(psycopg.Error) as error:
                    connection.execute(QUERIES["latest"])
                shown.append(str(error.value))
        for path in ("/api/v1/queries", "/metrics", "/api/v1/status"):
            shown.append(requests.get(f"http://127.0.0.1:{node.ports['http']}{path}", timeout=60).text)
        assert node.stop() == 0
        shown.append(node.log.read_text())
        assert not [text for text in shown if "sesam" in text]
    finally:
        node.kill()


def test_connections_are_encrypted_and_a_certificate_is_looked_at(tmp_path, papers):
    _, folder = papers
    database = PostgreSQL(PASSWORD)
    node = None
    try:
        database.kill()
        for name in ("server.pem", "key.pem"):
            path = database.root / name
            path.write_bytes((folder / name).read_bytes())
            path.chmod(0o600)
            if USER:
                os.chown(path, *[getattr(database.root.stat(), field) for field in ("st_uid", "st_gid")])
        database.settings |= {"ssl": "on", "ssl_cert_file": database.root / "server.pem", "ssl_key_file": database.root / "key.pem"}
        database.start()
        with database.connect(autocommit=True) as connection:
            connection.execute(TABLES[0])
        node = Node(tmp_path, {"SSL_CERT_FILE": str(folder / "server.pem")})
        with connect(node) as connection:
            for statement in [NEXMARK, BIDS]:
                connection.execute(statement)
            for mode in ("require", "verify-full"):
                connection.execute(into("hot", **place(database), sslmode=mode))
                connection.execute(QUERIES["hot"])
                with database.connect(autocommit=True) as asks:
                    encrypted = """SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'savanna' AND ssl"""
                    until(lambda: asks.execute(encrypted).fetchone()[0] > 0, seconds=30)
                    for query, state, *_ in connection.execute("SHOW QUERIES").fetchall():
                        if state == "running":
                            connection.execute(f"STOP QUERY '{query}'")
                    until(lambda: asks.execute(encrypted).fetchone()[0] == 0, seconds=30)
                connection.execute("DROP TABLE hot")
        node.kill()
        node = Node(tmp_path, {"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"})
        with connect(node) as connection:
            connection.execute(into("hot", **place(database), sslmode="verify-full"))
            with pytest.raises(psycopg.Error, match="invalid peer certificate"):
                connection.execute(QUERIES["hot"])
    finally:
        if node:
            node.kill()
        database.stop()
