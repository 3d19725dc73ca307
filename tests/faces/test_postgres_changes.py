"""The changes of a table of PostgreSQL as a stream: each of them once, and in order, whoever is killed."""

import os
import random
import signal
import time

import psycopg
import pytest
import redis
from pyarrow import parquet

from node import Node
from ports import free_port
from postgresql import PostgreSQL

SEED = random.randrange(1 << 32)
PASSWORD = "open sesame"
COLUMNS = "id BIGINT, part VARCHAR, amount DECIMAL(12, 2), body VARCHAR, at TIMESTAMP_LTZ(6), op VARCHAR, lsn BIGINT"
ORDERS = """CREATE TABLE orders (id bigint, part text, amount numeric(12, 2), body text, at timestamptz, ignored int, PRIMARY KEY (id, part))"""
COPY = "CREATE TABLE copy (id bigint, part text, amount numeric(12, 2), body text, at timestamptz, PRIMARY KEY (id, part))"


def connect(node):
    return psycopg.connect(host="127.0.0.1", port=node.ports["pgwire"], user="postgres", dbname="savanna_streams", autocommit=True)


def given(options):
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def place(database):
    return {"host": "127.0.0.1", "port": database.port, "database": "postgres", "username": "postgres", "password": PASSWORD}


def source(database, columns=COLUMNS, **options):
    """The statement that makes a table over the changes of orders."""
    options = {"connector": "postgres-cdc", "table": "orders", "op.column": "op", "lsn.column": "lsn", "slot.name": "savanna", **place(database),
               "heartbeat.interval": "200ms", **{name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}}
    return f"CREATE TABLE orders ({columns}) WITH ({given({name: value for name, value in options.items() if value})})"


def into_postgres(database):
    """A table that becomes what orders is."""
    options = {"connector": "postgres", "table": "copy", "sink.delete-column": "goes", **place(database)}
    return (f"CREATE TABLE copy (id BIGINT, part VARCHAR, amount DECIMAL(12, 2), body VARCHAR, at TIMESTAMP_LTZ(6), goes BOOLEAN, "
            f"PRIMARY KEY (id, part) NOT ENFORCED) WITH ({given(options)})")


def log(tmp_path, columns):
    """A table that is written to files, a line for each row."""
    options = {"connector": "file", "path": tmp_path / "out", "format": "csv", "csv.header": "false"}
    return f"CREATE TABLE log ({columns}) WITH ({given(options)})"


FOLLOW = "INSERT INTO copy SELECT id, part, amount, body, at, op IN ('delete', 'update_before') FROM orders"


def begin(node, name, *statements, settings=()):
    with connect(node) as connection:
        for statement in statements[:-1]:
            connection.execute(statement)
        connection.execute(f"SET 'query.name' = '{name}'")
        for setting in settings:
            connection.execute(setting)
        connection.execute(statements[-1])


def queries(node):
    with connect(node) as connection:
        shown = connection.execute("SHOW QUERIES")
        names = [column.name for column in shown.description]
        return {row["name"]: row for row in (dict(zip(names, row)) for row in shown.fetchall()) if row["name"]}


def until(is_so, seconds=90):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"seed {SEED}"
        time.sleep(0.1)


def failure(node, name):
    until(lambda: queries(node)[name]["state"] == "failed")
    return queries(node)[name]["error"]


def refusal(node, name):
    """Why a query does not go on: the statement tells, or the query."""
    with connect(node) as streams:
        try:
            streams.execute(f"RESUME QUERY '{name}'")
        except psycopg.Error as error:
            return str(error)
    return failure(node, name)


def rows(database, table):
    with database.connect() as connection:
        return connection.execute(f"SELECT id, part, amount, body, at FROM {table} ORDER BY 1, 2").fetchall()


def is_copied(database):
    return lambda: rows(database, "copy") == rows(database, "orders")


def parts(folder):
    """The lines of all parts in the order of their epochs."""
    def epoch(part):
        return int(part.stem.rsplit("-", 1)[1])

    return [line for part in sorted(folder.rglob("part-*.csv"), key=epoch) for line in part.read_text().splitlines()]


def change(connection, dice, count):
    """Some transactions, some of them with many changes, of which some are taken back."""
    for _ in range(count):
        with connection.transaction(force_rollback=dice.random() < 0.1):
            for _ in range(dice.choice([1, 1, 2, 5, 300])):
                number, part, what = dice.randrange(40), dice.choice(["a", "b"]), dice.random()
                if what < 0.5:
                    connection.execute("INSERT INTO orders (id, part, amount, body, at) VALUES (%s, %s, %s, %s, now()) ON CONFLICT (id, part) DO UPDATE "
                                       "SET amount = orders.amount + 1, at = now()",
                                       (number, part, dice.randrange(1000) / 100, dice.choice([None, "", "\\N", "x\ty\nz", "ä"])))
                elif what < 0.7:
                    # The key may change, too.
                    connection.execute("UPDATE orders SET id = %s, amount = %s WHERE id = %s AND part = %s",
                                       (dice.randrange(1000, 1 << 40), dice.randrange(9), number, part))
                elif what < 0.8:
                    connection.execute("UPDATE orders SET body = %s WHERE id = %s", (dice.choice(["long" * 2000, "short"]), number))
                else:
                    connection.execute("DELETE FROM orders WHERE id = %s OR id > 1000 AND id %% 40 = %s", (number, number))


@pytest.fixture
def database():
    database = PostgreSQL(PASSWORD, {"wal_level": "logical", "wal_sender_timeout": "5s"})
    with database.connect(autocommit=True) as connection:
        connection.execute(ORDERS)
        connection.execute(COPY)
    yield database
    database.stop()


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.kill()


def test_rows_that_are_there_come_first_and_then_each_change(tmp_path, database, node):
    with database.connect(autocommit=True) as connection:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 1.50, 'one', '2026-01-01 12:00:00.123456+02', 7), (2, 'a', NULL, NULL, NULL, 7)")
        sink = log(tmp_path, "op VARCHAR, id BIGINT, part VARCHAR, amount DECIMAL(12, 2), body VARCHAR, at TIMESTAMP_LTZ(6)")
        begin(node, "log", source(database), sink, "INSERT INTO log SELECT op, id, part, amount, body, at FROM orders")
        until(lambda: len(parts(tmp_path / "out")) == 2)
        connection.execute("INSERT INTO orders VALUES (3, 'b', 3, 'three', NULL, 7)")
        connection.execute("UPDATE orders SET amount = 4 WHERE id = 3")
        connection.execute("UPDATE orders SET id = 5 WHERE id = 3")
        connection.execute("DELETE FROM orders WHERE id = 1")
    until(lambda: len(parts(tmp_path / "out")) == 7)
    assert sorted(parts(tmp_path / "out")[:2]) == ["read,1,a,1.50,one,2026-01-01T10:00:00.123456Z", "read,2,a,,,"]
    assert parts(tmp_path / "out")[2:] == ["insert,3,b,3.00,three,", "update_after,3,b,4.00,three,", "update_before,3,b,,,",
                                           "update_after,5,b,4.00,three,", "delete,1,a,,,"]


def test_the_time_zone_and_the_forms_of_dates_of_server_and_user_change_nothing(tmp_path, database, node):
    with database.connect(autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET timezone = 'America/St_Johns'")
        connection.execute("SELECT pg_reload_conf()")
        for setting in ("timezone = 'Asia/Kathmandu'", "DateStyle = 'German, DMY'", "IntervalStyle = 'sql_standard'", "bytea_output = 'escape'", "extra_float_digits = -3"):
            connection.execute(f"ALTER ROLE postgres SET {setting}")
    with database.connect(autocommit=True) as connection:
        assert connection.execute("SHOW timezone").fetchone() == ("Asia/Kathmandu",)
        connection.execute("INSERT INTO orders VALUES (1, 'a', 1.5, 'one', '2026-01-01 12:00:00.123456+02', 7)")
        sink = log(tmp_path, "op VARCHAR, id BIGINT, at TIMESTAMP_LTZ(6)")
        begin(node, "log", source(database), sink, "INSERT INTO log SELECT op, id, at FROM orders")
        until(lambda: len(parts(tmp_path / "out")) == 1)
        connection.execute("INSERT INTO orders VALUES (2, 'a', 1.5, 'two', '2026-07-01 12:00:00+00', 7)")
        until(lambda: len(parts(tmp_path / "out")) == 2)
    assert parts(tmp_path / "out") == ["read,1,2026-01-01T10:00:00.123456Z", "insert,2,2026-07-01T12:00:00Z"]


def test_a_database_that_is_slow_or_away_is_waited_for_without_spinning_also_at_the_start(tmp_path, database):
    node = Node(tmp_path)
    try:
        with database.connect(autocommit=True) as connection:
            begin(node, "follow", source(database), into_postgres(database), FOLLOW)
            connection.execute("INSERT INTO orders VALUES (1, 'a')")
            until(is_copied(database))
            connection.execute("INSERT INTO orders VALUES (2, 'a')")
        # All of its processes stand still; then they are gone.
        os.killpg(database.process.pid, signal.SIGSTOP)
        assert spent(node, seconds=4) < 2, "nobody spins"
        os.killpg(database.process.pid, signal.SIGCONT)
        until(is_copied(database))
        database.kill()
        assert spent(node, seconds=4) < 2, "nobody spins"
        node.kill()
        node = Node(tmp_path)
        until(lambda: queries(node)["follow"]["state"] in ("loading", "failed"))
        assert spent(node, seconds=4) < 2, "nobody spins"
        database.start()
        with database.connect(autocommit=True) as connection:
            connection.execute("INSERT INTO orders VALUES (3, 'a')")
        # By itself.
        until(is_copied(database))
        until(lambda: queries(node)["follow"]["state"] == "running")
        assert len(rows(database, "copy")) == 3
    finally:
        node.kill()


def spent(node, seconds):
    """Processor time of a node in the next seconds."""
    before = node.processor_seconds()
    time.sleep(seconds)
    return node.processor_seconds() - before


@pytest.mark.long
def test_a_table_is_the_same_elsewhere_however_often_the_node_and_the_database_are_killed(tmp_path, database):
    dice = random.Random(SEED)
    with database.connect(autocommit=True) as connection:
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        change(connection, dice, 50)
    node = Node(tmp_path)
    try:
        begin(node, "follow", source(database), into_postgres(database), FOLLOW)
        for _ in range(6):
            with database.connect(autocommit=True) as connection:
                change(connection, dice, dice.randrange(10, 60))
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
        until(is_copied(database))
        # What nobody needs any more goes: the server's log, and the copy of the rows that were there.
        with database.connect(autocommit=True) as connection:
            def is_confirmed():
                until_now = connection.execute("SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots").fetchone()[0]
                return until_now < 1 << 16 and connection.execute("SELECT to_regclass('savanna_copy_savanna')").fetchone() == (None,)

            until(is_confirmed)
            change(connection, dice, 20)
        until(is_copied(database))
        assert queries(node)["follow"]["state"] == "running", queries(node)
    finally:
        node.kill()


def test_each_change_is_told_once_in_order_over_kills(tmp_path, database):
    dice = random.Random(SEED)
    sink = log(tmp_path, "op VARCHAR, lsn BIGINT, id BIGINT, amount DECIMAL(12, 2)")
    node, last = Node(tmp_path), 0
    try:
        with database.connect(autocommit=True) as connection:
            connection.execute("INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 20000) n")
            begin(node, "log", source(database), sink, "INSERT INTO log SELECT op, lsn, id, amount FROM orders", settings=["SET 'epoch-events' = '700'"])
            for _ in range(5):
                # Transactions are longer than epochs.
                for _ in range(dice.randrange(1, 20)):
                    count = dice.choice([1, 10, 3000])
                    connection.execute("INSERT INTO orders SELECT n, 'new', n FROM generate_series(%s::int, %s::int) n", (last + 1, last + count))
                    last += count
                time.sleep(dice.uniform(0, 0.5))
                node.kill()
                node = Node(tmp_path)
        with database.connect(autocommit=True) as connection:
            # The last epoch is full, too.
            connection.execute("INSERT INTO orders SELECT n, 'last', n FROM generate_series(1, 700) n")
        until(lambda: len(parts(tmp_path / "out")) >= 20_000 + last)
        lines = [line.split(",") for line in parts(tmp_path / "out")]
        assert sorted(int(line[2]) for line in lines[:20_000]) == list(range(1, 20_001)), f"seed {SEED}"
        assert {line[0] for line in lines[:20_000]} == {"read"}
        assert [int(line[2]) for line in lines[20_000 : 20_000 + last]] == list(range(1, last + 1)), f"seed {SEED}"
    finally:
        node.kill()


def test_changes_are_in_keys_and_in_parquet_whoever_is_killed(tmp_path, database):
    dice = random.Random(SEED)
    settings = {"keys.port": free_port(), "keys.appendfsync": "always"}
    copy = {"connector": "redis", "url": f"redis://127.0.0.1:{settings['keys.port']}", "key": "order:", "key.fields": "id;part", "sink.delete-column": "goes"}
    file = {"connector": "file", "path": tmp_path / "log", "format": "parquet"}
    node = Node(tmp_path, settings=settings)
    try:
        with database.connect(autocommit=True) as connection:
            connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
            change(connection, dice, 30)
        begin(node, "copy", source(database, slot__name="copies"), f"CREATE TABLE copy (id BIGINT, part VARCHAR, amount DECIMAL(12, 2), body VARCHAR, goes BOOLEAN) WITH ({given(copy)})",
              "INSERT INTO copy SELECT id, part, amount, body, op IN ('delete', 'update_before') FROM orders")
        begin(node, "log", "DROP TABLE orders", source(database), f"CREATE TABLE log (op VARCHAR, lsn BIGINT, id BIGINT, part VARCHAR, amount DECIMAL(12, 2)) WITH ({given(file)})",
              "INSERT INTO log SELECT op, lsn, id, part, amount FROM orders")
        for round_ in range(4):
            with database.connect(autocommit=True) as connection:
                change(connection, dice, dice.randrange(10, 40))
            if round_ == 1:
                database.kill()
                database.start()
            node.kill()
            node = Node(tmp_path, settings=settings)
        expected = [(id_, part, amount, body) for id_, part, amount, body, _ in rows(database, "orders")]

        def copied():
            keys = redis.Redis(port=settings["keys.port"], decode_responses=True)
            found = [(key.removeprefix("order:").split(":", 1), keys.hgetall(key)) for key in keys.scan_iter("order:*", count=1000)]
            return sorted((int(id_), part, *(fields.get(name) for name in ("amount", "body"))) for (id_, part), fields in found)

        def logged():
            """What the changes of the log make of a table, and how many they are."""
            parts = sorted((tmp_path / "log").rglob("part-*.parquet"), key=lambda part: int(part.stem.rsplit("-", 1)[1]))
            changes = [change for part in parts for change in parquet.read_table(part).to_pylist()]
            held = {}
            for change in changes:
                key = change["id"], change["part"]
                if change["op"] in ("delete", "update_before"):
                    assert key in held, f"seed {SEED}: {change} of a row that is not there"
                    del held[key]
                else:
                    assert key not in held, f"seed {SEED}: {change} of a row that is there"
                    held[key] = change["amount"]
            return held

        until(lambda: copied() == [(id_, part, None if amount is None else str(amount), body) for id_, part, amount, body in expected if amount is not None or body is not None])
        until(lambda: logged() == {(id_, part): amount for id_, part, amount, _ in expected})
        assert {name: row["state"] for name, row in queries(node).items()} == {"copy": "running", "log": "running"}
    finally:
        node.kill()


@pytest.mark.parametrize("what", ["toast", "truncate", "altered", "moved"])
def test_what_would_be_lost_is_told(tmp_path, database, node, what):
    with database.connect(autocommit=True) as connection:
        connection.execute("ALTER TABLE orders ALTER body SET STORAGE EXTERNAL")
        connection.execute("INSERT INTO orders VALUES (1, 'a', 1, repeat('long', 2000))")
        begin(node, "follow", source(database), into_postgres(database), FOLLOW)
        until(is_copied(database))
        if what == "toast":
            connection.execute("UPDATE orders SET amount = 2")
            assert "column body, which was not sent" in failure(node, "follow")
        if what == "truncate":
            connection.execute("TRUNCATE orders")
            assert "got TRUNCATE" in failure(node, "follow")
        if what == "altered":
            connection.execute("ALTER TABLE orders DROP COLUMN amount")
            connection.execute("INSERT INTO orders VALUES (2, 'a')")
            assert "column amount of" in failure(node, "follow")
        if what == "moved":
            with connect(node) as streams:
                streams.execute("STOP QUERY 'follow'")
            until(lambda: connection.execute("SELECT count(*) FROM pg_replication_slots WHERE active").fetchone() == (0,))
            connection.execute("INSERT INTO orders VALUES (2, 'a')")
            connection.execute("SELECT pg_replication_slot_advance('savanna', pg_current_wal_lsn())")
            with connect(node) as streams:
                streams.execute("RESUME QUERY 'follow'")
            assert "was moved on to" in failure(node, "follow")
        # What was written before stays.
        assert rows(database, "copy")[0][:3] == (1, "a", 1)


@pytest.mark.parametrize("when", ["running", "stopped"])
@pytest.mark.parametrize("what", ["left-out", "less", "filtered", "made-anew"])
def test_a_publication_that_was_altered_and_altered_back_fails_the_query_before_anything_behind_it_is_written(tmp_path, database, node, what, when):
    with database.connect(autocommit=True) as connection:
        begin(node, "follow", source(database), into_postgres(database), FOLLOW)
        connection.execute("INSERT INTO orders VALUES (1, 'a')")
        until(is_copied(database))
        # Others, and whoever tidies, disturb nobody.
        connection.execute("CREATE TABLE other (id bigint PRIMARY KEY)")
        for tidy in ("ALTER PUBLICATION savanna_orders ADD TABLE other", "ALTER PUBLICATION savanna_orders DROP TABLE other", "VACUUM (FULL, FREEZE) pg_publication",
                     "VACUUM (FULL, FREEZE) pg_publication_rel", "VACUUM (FULL, FREEZE) orders"):
            connection.execute(tidy)
        connection.execute("INSERT INTO orders VALUES (2, 'a')")
        until(is_copied(database))
        if when == "stopped":
            with connect(node) as streams:
                streams.execute("STOP QUERY 'follow'")
            until(lambda: connection.execute("SELECT count(*) FROM pg_replication_slots WHERE active").fetchone() == (0,))
        there, back = {
            "left-out": ("ALTER PUBLICATION savanna_orders DROP TABLE orders", "ALTER PUBLICATION savanna_orders ADD TABLE orders"),
            "less": ("ALTER PUBLICATION savanna_orders SET (publish = 'insert')", "ALTER PUBLICATION savanna_orders SET (publish = 'insert, update, delete, truncate')"),
            "filtered": ("ALTER PUBLICATION savanna_orders SET TABLE orders WHERE (id > 100)", "ALTER PUBLICATION savanna_orders SET TABLE orders"),
            "made-anew": (f"DROP TABLE orders; {ORDERS}; ALTER PUBLICATION savanna_orders ADD TABLE orders", "SELECT"),
        }[what]
        connection.execute(there)
        connection.execute("UPDATE orders SET amount = 3")
        connection.execute(back)
        connection.execute("INSERT INTO orders VALUES (103, 'a')")
        error = refusal(node, "follow") if when == "stopped" else failure(node, "follow")
        expected = "got another one of its name" if what == "made-anew" else "it was altered or made anew since"
        assert expected in error and "drop the query, replication slot savanna" in error, error
        # What was written before stays, and nothing of what came later is there.
        assert [row[:3] for row in rows(database, "copy")] == [(1, "a", None), (2, "a", None)]


def test_a_slot_that_was_removed_or_has_lost_its_log_is_told(tmp_path, database, node):
    with database.connect(autocommit=True) as connection:
        begin(node, "follow", source(database), into_postgres(database), FOLLOW)
        connection.execute("INSERT INTO orders VALUES (1, 'a')")
        until(is_copied(database))
        with connect(node) as streams:
            streams.execute("STOP QUERY 'follow'")
        until(lambda: connection.execute("SELECT count(*) FROM pg_replication_slots WHERE active").fetchone() == (0,))
        connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        connection.execute("SELECT pg_reload_conf()")

        def is_lost():
            connection.execute("SELECT pg_logical_emit_message(false, '', repeat('x', 1000000)) FROM generate_series(1, 20)")
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
            return connection.execute("SELECT wal_status FROM pg_replication_slots").fetchone() == ("lost",)

        until(is_lost)
        with connect(node) as streams:
            streams.execute("RESUME QUERY 'follow'")
        assert "max_slot_wal_keep_size" in failure(node, "follow")
        connection.execute("SELECT pg_drop_replication_slot('savanna')")
        with connect(node) as streams:
            streams.execute("RESUME QUERY 'follow'")
        until(lambda: "is not there any more" in (queries(node)["follow"]["error"] or ""))


def test_a_long_value_that_was_not_changed_is_the_former_one_with_a_full_identity(tmp_path, database, node):
    with database.connect(autocommit=True) as connection:
        connection.execute("ALTER TABLE orders ALTER body SET STORAGE EXTERNAL")
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        connection.execute("INSERT INTO orders VALUES (1, 'a', 1, repeat('long', 2000))")
        begin(node, "follow", source(database), into_postgres(database), FOLLOW)
        until(is_copied(database))
        connection.execute("UPDATE orders SET amount = 2")
        until(is_copied(database))


def test_what_cannot_be_read_is_refused_before_anything_is_made(database, node):
    with database.connect(autocommit=True) as connection, connect(node) as streams:
        connection.execute("CREATE TABLE bare (id bigint)")
        for options, expected in [({"table": "bare"}, "expected a primary key"), ({"table": "nowhere"}, "does not exist"), ({"password": "wrong"}, "does not let user")]:
            streams.execute("DROP TABLE IF EXISTS orders")
            streams.execute(source(database, "id BIGINT, op VARCHAR, lsn BIGINT", **options))
            with pytest.raises(psycopg.Error, match=expected):
                streams.execute("SELECT id FROM orders")
        assert connection.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)


def test_without_a_slot_a_query_reads_and_leaves_nothing_behind(database, node):
    with database.connect(autocommit=True) as connection, connect(node) as streams:
        connection.execute("INSERT INTO orders VALUES (1, 'a', 1)")
        streams.execute(source(database, slot__name=None))
        streams.execute("BEGIN")
        streams.execute("DECLARE c CURSOR FOR SELECT op, id FROM orders")
        assert streams.execute("FETCH 1 FROM c").fetchall() == [("read", 1)]
        connection.execute("INSERT INTO orders VALUES (2, 'a', 1)")
        assert streams.execute("FETCH 1 FROM c").fetchall() == [("insert", 2)]
        streams.execute("CLOSE c")
        streams.execute("COMMIT")
        until(lambda: connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,))
        assert connection.execute("SELECT to_regclass('savanna_copy_')").fetchone() == (None,)
        streams.execute("SET 'query.name' = 'q'")
        streams.execute(into_postgres(database))
        with pytest.raises(psycopg.Error, match="slot.name"):
            streams.execute(FOLLOW)
