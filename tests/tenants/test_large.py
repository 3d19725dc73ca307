"""Transactions that write more than a record of the log is to have: whole or not at all whoever is killed when, and without a trace of those that did not commit."""

import os
import random
import subprocess
import threading
import time

import psycopg
import pytest

from conftest import Server
from test_gone_clients import within

# Bytes of writes from which on they are not put to the log.
FROM = 64 << 10
ROWS = 20000
FILL = f"INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, {ROWS}) g"
# Where a process ends (`reached` in engines/tenants), and what was committed then: all, nothing, or what nobody was told.
MOMENTS = {
    "a part is durable": {0},
    "all parts are durable": {0},
    "a large commit is in the log": {0, ROWS},
    "a segment is written and not named": {ROWS},
    "a large commit is flushed": {ROWS},
    "a part is done again": {ROWS},
}


class Large(Server):
    """A server of whose databases parts are looked at, and which ends at a moment that a file names."""

    def __init__(self, directory, parts_from=FROM, **settings):
        super().__init__(directory, settings)
        self.moment = directory / "moment"
        self.parts_from = parts_from

    def start(self):
        before = dict(os.environ)
        os.environ.update(TENANTS_END_AT=str(self.moment))
        if self.parts_from is not None:
            os.environ["TENANTS_PARTS_FROM"] = str(self.parts_from)
        try:
            super().start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        self.listen()

    def parts(self):
        return sorted(path.name for path in (self.data / "store" / "tenants").glob("*/parts/*"))

    def flush(self):
        """A backup has everything in the segments."""
        self.ask("GET", "/api/v1/tenants/postgres/backup")

    def has_no_parts(self):
        within(60, lambda: self.parts() == [])

    def ends(self):
        self.process.wait(60)
        assert not self.moment.exists()


@pytest.fixture
def server(tmp_path):
    server = Large(tmp_path)
    server.start()
    yield server
    server.kill()


def table(server):
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, s text)")


def rows(server):
    with server.connect() as connection:
        count, total = connection.execute("SELECT count(*), sum(id) FROM t").fetchone()
        assert total == (count * (count + 1) // 2 or None), "a part of a transaction is there"
        return count


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_large_transaction_is_whole_or_not_at_all_wherever_the_process_ends(server, moment):
    table(server)
    if moment != "a part is done again":
        server.moment.write_text(moment)
    try:
        with server.connect(autocommit=True) as connection:
            connection.execute(FILL)
        told = {ROWS}
        if server.moment.exists():
            with pytest.raises(OSError):
                server.flush()
    except psycopg.OperationalError:
        told = {0, ROWS}
    if moment == "a part is done again":
        server.kill()
        server.moment.write_text(moment)
        server.start()
        with pytest.raises(psycopg.OperationalError):
            rows(server)
    server.ends()
    assert told & MOMENTS[moment]
    # Twice: recovery has to leave it as it was.
    for _ in range(2):
        server.start()
        found = rows(server)
        assert found in told & MOMENTS[moment]
        server.kill()
    server.start()
    assert rows(server) == found
    server.flush()
    server.has_no_parts()
    with server.connect(autocommit=True) as connection:
        connection.execute("DELETE FROM t")
        connection.execute(FILL)
    server.kill()
    server.start()
    assert rows(server) == ROWS


def test_what_does_not_commit_leaves_no_part(server):
    table(server)
    with server.connect() as connection:
        connection.execute(FILL)
        connection.rollback()
        connection.execute(FILL)
        connection.commit()
    server.flush()
    server.has_no_parts()
    # Of two that read what the other writes, one fails.
    with server.connect() as one, server.connect() as two:
        for client in (one, two):
            client.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            assert client.execute("SELECT count(*) FROM t WHERE id > 0").fetchone() == (ROWS,)
        one.execute(f"INSERT INTO t SELECT g + {ROWS}, '' FROM generate_series(1, {ROWS}) g")
        two.execute(f"INSERT INTO t SELECT g + {2 * ROWS}, '' FROM generate_series(1, {ROWS}) g")
        one.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            two.commit()
    assert rows(server) == 2 * ROWS
    server.flush()
    server.has_no_parts()


def test_a_commit_that_is_cancelled_or_whose_client_goes_leaves_nothing(server):
    table(server)
    for kill in (False, True):
        for delay in (0, 0.005, 0.02, 0.05):
            connection = server.connect()
            connection.execute(FILL)
            pid = connection.info.backend_pid
            failed = []

            def commit(connection=connection, failed=failed):
                try:
                    connection.commit()
                except psycopg.Error as error:
                    failed.append(error)

            thread = threading.Thread(target=commit)
            thread.start()
            time.sleep(delay)
            with server.connect(autocommit=True) as other:
                other.execute(f"SELECT {'pg_terminate_backend' if kill else 'pg_cancel_backend'}({pid})")
            thread.join(60)
            connection.close()
            assert rows(server) in ({0, ROWS} if failed else {ROWS})
            with server.connect(autocommit=True) as other:
                other.execute("DELETE FROM t")
            assert rows(server) == 0
    server.flush()
    server.has_no_parts()


def test_others_are_answered_while_much_is_written_and_committed(server):
    table(server)
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE u (id int PRIMARY KEY)")
        connection.execute("INSERT INTO u VALUES (1)")
    with server.connect() as connection, server.connect(autocommit=True) as other:
        connection.execute(FILL.replace(str(ROWS), str(5 * ROWS)))
        committing = threading.Thread(target=connection.commit)
        committing.start()
        longest = 0
        while committing.is_alive():
            began = time.monotonic()
            assert other.execute("SELECT id FROM u").fetchone() == (1,)
            longest = max(longest, time.monotonic() - began)
        committing.join()
        print(f"the longest of the others' statements took {longest * 1000:.0f} ms")
        assert longest < 10
    assert rows(server) == 5 * ROWS


def test_a_transaction_writes_no_more_than_it_may(tmp_path):
    server = Large(tmp_path, **{"tenants.transaction_limit": "1MiB"})
    server.start()
    try:
        table(server)
        with server.connect(autocommit=True) as connection:
            with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="at most 1 MiB") as refused:
                connection.execute(FILL.replace(str(ROWS), str(5 * ROWS)))
            assert "tenants.transaction_limit" in refused.value.diag.message_hint
        assert rows(server) == 0
        server.has_no_parts()
    finally:
        server.kill()


def lines(dice, count):
    """Rows of COPY with what may be misunderstood where they are cut."""
    for id in range(1, count + 1):
        yield id, "".join(dice.choice(["a", "ü", "\n", "\r\n", '"', "\\", "\t", ",", "\\.", "€"]) for _ in range(dice.randrange(40)))


@pytest.mark.parametrize("options", ["", "WITH (FORMAT csv)", "WITH (FORMAT csv, HEADER)", "WITH (FORMAT binary)"])
def test_a_copy_of_many_rows_has_each_once_however_it_comes(server, options):
    table(server)
    dice = random.Random(options)
    given = list(lines(dice, 150000))
    with server.connect() as connection, connection.cursor() as cursor:
        with cursor.copy("COPY (SELECT 1, '') TO STDOUT") as copy:
            b"".join(copy)
        # Once as psycopg writes it, to know its bytes; then cut anywhere.
        with cursor.copy(f"COPY t FROM STDIN {options if 'binary' in options else ''}") as copy:
            if "binary" in options:
                copy.set_types(["int4", "text"])
            for row in given:
                copy.write_row(row)
        connection.commit()
        assert cursor.execute("SELECT id, s FROM t ORDER BY id").fetchall() == given
        with cursor.copy(f"COPY t TO STDOUT {options}") as copy:
            sent = b"".join(copy)
        assert len(sent) > 4 << 20
        cursor.execute("TRUNCATE t")
        connection.commit()
        with cursor.copy(f"COPY t FROM STDIN {options}") as copy:
            at = 0
            while at < len(sent):
                size = dice.choice([1, 7, 1000, 65536, 300000])
                copy.write(sent[at : at + size])
                at += size
        assert cursor.statusmessage == f"COPY {len(given)}"
        assert cursor.execute("SELECT id, s FROM t ORDER BY id").fetchall() == given
        connection.rollback()
        assert rows(server) == 0


def test_a_copy_that_fails_late_leaves_nothing_and_says_which_row(server):
    table(server)
    text = "".join(f"{id}\t{'x' * 100}\n" for id in range(1, 120000))
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for wrong, error in (("7\tagain\n", psycopg.errors.UniqueViolation), ("1\t2\t3\n", psycopg.errors.BadCopyFileFormat)):
            with pytest.raises(error) as failed, cursor.copy("COPY t FROM STDIN") as copy:
                copy.write(text + wrong)
            if error is psycopg.errors.BadCopyFileFormat:
                assert "Row 120000 " in failed.value.diag.message_detail
            assert rows(server) == 0
        with pytest.raises(RuntimeError), cursor.copy("COPY t FROM STDIN") as copy:
            copy.write(text)
            raise RuntimeError("the client gives it up")
        assert rows(server) == 0
        cursor.execute("BEGIN")
        cursor.execute("SAVEPOINT s")
        with pytest.raises(psycopg.errors.UniqueViolation), cursor.copy("COPY t FROM STDIN") as copy:
            copy.write(text + "7\tagain\n")
        cursor.execute("ROLLBACK TO s")
        assert cursor.execute("SELECT count(*) FROM t").fetchone() == (0,)
        cursor.execute("COMMIT")


def test_rows_of_a_copy_may_refer_to_those_that_come_later(server):
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE tree (id int PRIMARY KEY, above int REFERENCES tree, s text)")
        count = 60000
        with cursor.copy("COPY tree FROM STDIN") as copy:
            copy.write("".join(f"{id}\t{count - id + 1}\t{'x' * 80}\n" for id in range(1, count + 1)))
        assert cursor.execute("SELECT count(*) FROM tree").fetchone() == (count,)


def sums(server):
    with server.connect() as connection:
        return connection.execute("SELECT count(*), sum(aid), sum(abalance) FROM accounts").fetchone()


MILLION = 1_000_000
STEPS = [
    ("CREATE TABLE accounts (aid int, abalance int, filler char(84))", None),
    (f"INSERT INTO accounts SELECT g, 0, 'x' FROM generate_series(1, {MILLION}) g", (MILLION, MILLION * (MILLION + 1) // 2, 0)),
    ("ALTER TABLE accounts ADD PRIMARY KEY (aid)", (MILLION, MILLION * (MILLION + 1) // 2, 0)),
    ("UPDATE accounts SET abalance = 2", (MILLION, MILLION * (MILLION + 1) // 2, 2 * MILLION)),
    ("CREATE INDEX ON accounts (abalance, aid)", (MILLION, MILLION * (MILLION + 1) // 2, 2 * MILLION)),
    ("COPY", (2 * MILLION, 2 * MILLION * (2 * MILLION + 1) // 2, 3 * MILLION)),
    (f"DELETE FROM accounts WHERE aid > {MILLION}", (MILLION, MILLION * (MILLION + 1) // 2, 2 * MILLION)),
    ("DELETE FROM accounts", (0, None, None)),
]


@pytest.mark.long
def test_a_million_rows_are_written_and_survive_a_kill_behind_each_statement(tmp_path):
    server = Large(tmp_path, parts_from=None)
    server.start()
    for text, expected in STEPS:
        began = time.monotonic()
        with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            if text == "COPY":
                with cursor.copy("COPY accounts FROM STDIN") as copy:
                    for from_ in range(MILLION + 1, 2 * MILLION, 10000):
                        copy.write("".join(f"{id}\t1\t{'y' * 84}\n" for id in range(from_, from_ + 10000)))
            else:
                cursor.execute(text)
        status = open(f"/proc/{server.process.pid}/status").read()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
        print(f"{time.monotonic() - began:.1f} s, {int(peak) >> 10} MiB at most: {text}")
        server.kill()
        server.start()
        if expected:
            assert sums(server) == expected, text
    server.flush()
    server.has_no_parts()
    server.kill()


@pytest.mark.long
def test_pgbench_of_scale_ten_is_initialized(tmp_path):
    server = Large(tmp_path, parts_from=None)
    server.start()
    environment = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres", "PGDATABASE": "postgres"}
    done = subprocess.run(["pgbench", "-i", "-s", "10", "-q"], env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    server.kill()
    server.start()
    with server.connect() as connection:
        assert connection.execute("SELECT count(*), sum(aid) FROM pgbench_accounts").fetchone() == (MILLION, MILLION * (MILLION + 1) // 2)
    server.kill()
