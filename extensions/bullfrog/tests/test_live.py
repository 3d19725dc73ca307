"""Old tables that stay in use beside the new ones: these have their rows as they were at the switch."""

import os
import pathlib
import shutil
import signal

import psycopg
import pytest

from conftest import LIBRARY, SETTINGS, answered, differing, migrate, moved, reconnect, wait_for_crash
from server import Server, config, needs

LIVE = ", live => ARRAY['line']"
TOTALS = "SELECT shop, number, sum(amount) AS amount, count(*) AS lines, max(kind) AS kind FROM line GROUP BY shop, number"
PRICED = "SELECT l.shop, l.number, l.position, l.amount, p.price FROM line l LEFT JOIN price p ON p.kind = l.kind"
ORDERS = 400


@pytest.fixture
def lines(database):
    """The lines of 400 orders, those of each order on pages far apart."""
    connection = database.connect()
    connection.execute("""
        CREATE TABLE line (shop int NOT NULL, gone int, number int, position int, amount numeric NOT NULL, kind int, pad text);
        ALTER TABLE line DROP COLUMN gone;
        CREATE TABLE price (kind int PRIMARY KEY, price int NOT NULL, pad text);
        INSERT INTO price SELECT n, n * 100, repeat('.', 500) FROM generate_series(0, 40) n;
    """)
    connection.execute(
        "INSERT INTO line SELECT n % 4, n, p, n * 10 + p, n % 50, repeat('.', 300)"
        f" FROM generate_series(1, {ORDERS}) n, generate_series(1, 8) p WHERE p <= 1 + n % 8 ORDER BY p, n"
    )
    connection.execute("ALTER TABLE line ADD PRIMARY KEY (shop, number, position); ANALYZE line, price")
    return connection


def expect(connection, query):
    """What the new table has to be, for ever."""
    connection.execute(f"CREATE TABLE expected AS {query}")


@pytest.fixture
def totals(lines):
    expect(lines, TOTALS)
    migrate(lines, f"CREATE TABLE total AS {TOTALS}; ALTER TABLE total ADD PRIMARY KEY (shop, number)", options=LIVE)
    return lines


WRITES = {
    "insert": "INSERT INTO line SELECT shop, number, 100, 7, 7 FROM line WHERE position = 1",
    "insert a group": "INSERT INTO line VALUES (9, 9, 9, 9, 9)",
    "update": "UPDATE line SET amount = amount + 1, kind = 3 WHERE number < 50",
    "update a key": "UPDATE line SET number = number + 1, position = position + 1000 WHERE number BETWEEN 100 AND 200",
    "delete": "DELETE FROM line WHERE position < 3",
    "delete all": "DELETE FROM line",
    "upsert": "INSERT INTO line SELECT shop, number, 1, 5, 5 FROM line WHERE position = 1"
    " ON CONFLICT (shop, number, position) DO UPDATE SET amount = 0",
    "merge": "MERGE INTO line USING (SELECT 3 AS shop, 7 AS number, generate_series(1, 20) AS position) s USING_ON"
    " WHEN MATCHED AND line.position > 4 THEN DELETE WHEN MATCHED THEN UPDATE SET amount = 0"
    " WHEN NOT MATCHED THEN INSERT VALUES (s.shop, s.number, s.position, 1, 1)",
}
WRITES["merge"] = WRITES["merge"].replace("USING_ON", "ON line.shop = s.shop AND line.number = s.number AND line.position = s.position")


@pytest.mark.parametrize("write", WRITES)
def test_writes_of_a_live_table_do_not_change_what_was_not_moved(totals, write):
    totals.execute("UPDATE total SET amount = amount WHERE number % 10 = 3")
    before = moved(totals)
    totals.execute(WRITES[write])
    assert differing(totals, "total", "expected") == 0
    totals.execute("SELECT FROM total WHERE number % 10 = 4 FOR UPDATE")
    assert moved(totals) == 2 * before
    assert differing(totals, "total", "expected") == 0
    totals.execute("SELECT bullfrog.finish('m')")
    assert differing(totals, "total", "expected") == 0


def test_a_live_table_is_read_and_written_as_ever(totals):
    assert totals.execute("SELECT count(*) FROM line WHERE number = 7").fetchone() == (8,)
    assert totals.execute("DELETE FROM line WHERE number = 7 AND position > 3 RETURNING position").rowcount == 5
    assert totals.execute("INSERT INTO line VALUES (3, 7, 50, 1, 1)").rowcount == 1
    totals.execute("BEGIN; DECLARE c CURSOR FOR SELECT * FROM line WHERE number = 7 FOR UPDATE; FETCH c")
    assert totals.execute("UPDATE line SET amount = 0 WHERE CURRENT OF c").rowcount == 1
    totals.execute("COMMIT")
    with totals.cursor().copy("COPY line FROM STDIN") as copy:
        copy.write("3\t7\t51\t1\t1\t\\N\n")
    assert totals.execute("SELECT count(*), count(*) FILTER (WHERE amount = 0) FROM line WHERE number = 7").fetchone() == (5, 1)
    assert moved(totals) == 0
    assert differing(totals, "total", "expected") == 0


def test_a_group_keeps_its_name_when_its_rows_change(totals):
    """Its first row is where the group is known by: another one would let it move again."""
    totals.execute("UPDATE total SET amount = 0 WHERE number = 15")
    totals.execute("DELETE FROM line WHERE number = 15 AND position < 4")
    totals.execute("UPDATE expected SET amount = 0 WHERE number = 15")
    assert differing(totals, "total", "expected") == 0
    totals.execute("DELETE FROM total WHERE number = 15; DELETE FROM expected WHERE number = 15; DELETE FROM line WHERE number = 15")
    totals.execute("SELECT bullfrog.finish('m')")
    assert differing(totals, "total", "expected") == 0


def test_groups_that_the_definition_left_out_at_the_switch_stay_left_out(lines):
    query = f"{TOTALS} HAVING count(*) < 3"
    expect(lines, query)
    migrate(lines, f"CREATE TABLE total AS {query}", options=LIVE)
    lines.execute("DELETE FROM line WHERE position > 2")
    assert differing(lines, "total", "expected") == 0
    lines.execute("SELECT bullfrog.finish('m')")
    assert differing(lines, "total", "expected") == 0


@pytest.mark.parametrize("live", ["line", "price", "line, price"])
@pytest.mark.parametrize("granularity", ["page", "tuple"])
def test_a_join_has_both_tables_as_of_the_switch(lines, live, granularity):
    expect(lines, PRICED)
    migrate(lines, f"CREATE TABLE priced AS {PRICED}; ALTER TABLE priced ADD PRIMARY KEY (shop, number, position)",
        options=f", live => '{{{live}}}', granularity => '{granularity}'")
    for table, write in (("price", "UPDATE price SET price = 7 WHERE kind % 2 = 0"), ("price", "DELETE FROM price WHERE kind % 3 = 0"),
            ("price", "INSERT INTO price SELECT n, 1 FROM generate_series(0, 60) n ON CONFLICT (kind) DO UPDATE SET price = 0"),
            ("line", "UPDATE line SET kind = kind + 1"), ("line", "DELETE FROM line WHERE number % 2 = 0"),
            ("line", "UPDATE line SET amount = 0")):  # fmt: skip
        if table in live:
            lines.execute(write)
        else:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="closed"):
                lines.execute(write)
        lines.execute("SELECT FROM priced WHERE number = %s FOR UPDATE", (len(write),))
        assert differing(lines, "priced", "expected") == 0
    lines.execute("SELECT bullfrog.finish('m')")
    assert differing(lines, "priced", "expected") == 0
    tables = "SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class WHERE relname IN ('line', 'price') AND relkind = 'r'"
    assert lines.execute(tables).fetchone() == (live,)


def test_a_transaction_sees_each_row_once_whatever_it_writes_itself(database, totals):
    """Its snapshot is older than moves by others: what it changes itself must not be missing in it."""
    a = database.connect()
    a.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert differing(a, "total", "expected") == 0
    totals.execute("SELECT FROM total WHERE number < 200 FOR UPDATE")
    assert a.execute("UPDATE line SET amount = 0 WHERE number BETWEEN 150 AND 250").rowcount > 0
    a.execute("DELETE FROM line WHERE number = 160")
    a.execute("SAVEPOINT s; DELETE FROM line; ROLLBACK TO s")
    assert differing(a, "total", "expected") == 0
    a.execute("COMMIT")
    assert differing(totals, "total", "expected") == 0


def test_a_writer_that_began_before_the_switch_and_ends_after_it(database, lines):
    """Its rows bear numbers of transactions, or of parts of one, that had begun at the switch."""
    expect(lines, TOTALS)
    writer = database.connect()
    writer.execute("BEGIN; CREATE TABLE mine (); SAVEPOINT a; CREATE TABLE mine_too (); SAVEPOINT b")
    migrate(lines, f"CREATE TABLE total AS {TOTALS}", options=LIVE)
    writer.execute("INSERT INTO line SELECT 1, n, 1000, 5, 5 FROM generate_series(1, 100) n")
    assert differing(writer, "total", "expected") == 0
    writer.execute("RELEASE a; INSERT INTO line SELECT 1, n, 1001, 5, 5 FROM generate_series(1, 100) n")
    assert differing(writer, "total", "expected") == 0
    writer.execute("COMMIT")
    assert differing(lines, "total", "expected") == 0
    lines.execute("SELECT bullfrog.finish('m')")
    assert differing(lines, "total", "expected") == 0


def test_the_transaction_that_migrates_may_write_live_tables_after_it(database, lines):
    expect(lines, TOTALS)
    lines.execute("BEGIN; SAVEPOINT a")
    migrate(lines, f"CREATE TABLE total AS {TOTALS}", options=LIVE)
    lines.execute("INSERT INTO line VALUES (1, 1, 1000, 5, 5); UPDATE line SET amount = 0 WHERE number = 9; SAVEPOINT b")
    lines.execute("INSERT INTO line VALUES (1, 1, 1001, 5, 5); RELEASE a; INSERT INTO line VALUES (1, 1, 1002, 5, 5)")
    assert differing(lines, "total", "expected") == 0
    lines.execute("COMMIT")
    assert differing(lines, "total", "expected") == 0


def test_a_transaction_that_has_written_cannot_begin_with_live_tables(lines):
    lines.execute("BEGIN; INSERT INTO line VALUES (1, 1, 1000, 5, 5)")
    with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="first"):
        migrate(lines, f"CREATE TABLE total AS {TOTALS}", options=LIVE)


def test_a_switch_beside_live_tables_lets_readers_go_on(database, lines):
    reader = database.connect()
    reader.execute("BEGIN; SELECT FROM line")
    migrate(lines, f"CREATE TABLE total AS {TOTALS}", options=LIVE)
    reader.execute("COMMIT")


def test_a_switch_waits_for_writers_of_live_tables(database, lines):
    expect(lines, TOTALS)
    writer = database.connect()
    writer.execute("BEGIN; UPDATE line SET amount = 0 WHERE number = 9")
    lines.pgconn.send_query(f"SELECT bullfrog.migrate('m', 'CREATE TABLE total AS {TOTALS}'{LIVE})".encode())
    writer.execute("ROLLBACK")
    answered(lines)
    assert differing(lines, "total", "expected") == 0


def test_rows_may_be_moved_inside_of_transactions(lines):
    expect(lines, TOTALS)
    migrate(lines, f"CREATE TABLE total AS {TOTALS}", options=f"{LIVE}, moves => 'transaction'")
    lines.execute("BEGIN; UPDATE line SET amount = 0 WHERE number = 9; UPDATE total SET lines = 0 WHERE number = 9")
    lines.execute("UPDATE expected SET lines = 0 WHERE number = 9")
    assert differing(lines, "total", "expected") == 0
    lines.execute("ROLLBACK")
    assert differing(lines, "total", "expected") == 0


def test_foreign_keys_and_what_else_uses_a_live_table_stay(lines):
    lines.execute("""
        ALTER TABLE line ADD FOREIGN KEY (kind) REFERENCES price (kind) ON DELETE CASCADE NOT VALID;
        CREATE VIEW cheap AS SELECT * FROM line WHERE amount < 100;
        CREATE TABLE remark (shop int, number int, position int, FOREIGN KEY (shop, number, position) REFERENCES line);
        INSERT INTO remark VALUES (3, 7, 1);
        CREATE TABLE log (n int);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (1); RETURN NULL; END';
        CREATE TRIGGER note AFTER UPDATE ON line FOR EACH ROW EXECUTE FUNCTION note();
    """)
    expect(lines, TOTALS)
    definition = f"CREATE TABLE total AS {TOTALS}"
    assert lines.execute("SELECT note FROM bullfrog.plan('m', %s)", (definition,)).fetchone()[0].startswith("refused: ")
    assert lines.execute("SELECT note FROM bullfrog.plan('m', %s, '{line}')", (definition,)).fetchone() == (
        "moves by groups of public.line; public.line stays in use; while rows move, ORDER BY .. LIMIT, min and max read all that was not moved",
    )
    migrate(lines, definition, options=LIVE)
    lines.execute("DELETE FROM price WHERE kind = 5; UPDATE line SET amount = amount + 1 WHERE number = 8")
    assert lines.execute("SELECT count(*) FROM line WHERE kind = 5").fetchone() == (0,)
    assert lines.execute("SELECT count(*) > 0 FROM log").fetchone() == (True,)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        lines.execute("DELETE FROM line WHERE number = 7")
    assert differing(lines, "total", "expected") == 0
    lines.execute("SELECT bullfrog.finish('m'); SELECT * FROM cheap")
    assert differing(lines, "total", "expected") == 0
    assert lines.execute("SELECT tgname FROM pg_trigger WHERE tgrelid = 'line'::regclass AND NOT tgisinternal").fetchall() == [("note",)]


def test_a_trigger_that_may_undo_a_change_of_a_live_table_is_refused(lines):
    lines.execute("""
        CREATE FUNCTION ignore() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER ignore BEFORE DELETE ON line FOR EACH ROW EXECUTE FUNCTION ignore()""")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="trigger ignore"):
        migrate(lines, f"CREATE TABLE total AS {TOTALS}", options=LIVE)


def test_a_live_table_may_be_renamed_by_the_switch_so_that_old_code_does_not_find_it(lines):
    expect(lines, TOTALS)
    with lines.transaction():
        migrate(lines, f"CREATE TABLE total AS {TOTALS}", options=LIVE)
        lines.execute("ALTER TABLE line RENAME TO line_2; CREATE SCHEMA later; ALTER TABLE line_2 SET SCHEMA later")
    lines.execute("UPDATE later.line_2 SET amount = 0")
    assert differing(lines, "total", "expected") == 0
    lines.execute("SELECT bullfrog.finish('m'); DELETE FROM later.line_2")
    assert differing(lines, "total", "expected") == 0


@pytest.mark.parametrize("statement", ["TRUNCATE line", "ALTER TABLE line ADD COLUMN more int", "DROP TABLE line", "VACUUM FULL line",
    "ALTER TABLE line DISABLE TRIGGER bullfrog_keep", "DROP TRIGGER bullfrog_keep ON line"])  # fmt: skip
def test_a_live_table_keeps_its_form(totals, statement):
    with pytest.raises(psycopg.Error) as refused:
        totals.execute(statement)
    assert refused.value.sqlstate in ("55006", "2BP01")


def test_a_truncate_does_not_reach_tables_on_the_move_by_foreign_keys(lines):
    lines.execute("CREATE TABLE shop (shop int PRIMARY KEY); INSERT INTO shop SELECT generate_series(0, 3)")
    lines.execute("ALTER TABLE line ADD FOREIGN KEY (kind) REFERENCES price (kind) NOT VALID")
    expect(lines, TOTALS)
    migrate(lines, f"CREATE TABLE total AS {TOTALS}; ALTER TABLE total ADD FOREIGN KEY (shop) REFERENCES shop (shop)", options=LIVE)
    for table in ("shop", "price"):
        with pytest.raises(psycopg.errors.ObjectInUse):
            lines.execute(f"TRUNCATE {table} CASCADE")
    lines.execute("CREATE TABLE other (); TRUNCATE other")
    assert differing(lines, "total", "expected") == 0


def test_a_table_that_the_migration_does_not_use_cannot_be_live(lines):
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="price"):
        migrate(lines, f"CREATE TABLE total AS {TOTALS}", options=", live => '{line, price}'")


def test_vacuum_freeze_does_not_change_what_was_there(totals):
    totals.execute("UPDATE line SET amount = 0 WHERE number < 100; INSERT INTO line VALUES (1, 1, 1000, 5, 5)")
    totals.execute("VACUUM FREEZE line")
    assert differing(totals, "total", "expected") == 0
    totals.execute("SELECT bullfrog.finish('m')")
    assert differing(totals, "total", "expected") == 0


def test_rows_are_told_apart_by_their_transactions(lines):
    horizon, others = lines.execute("SELECT * FROM bullfrog.unfinished()").fetchone()
    query = "SELECT bullfrog.was_there(%s::text::xid, %s, %s::bigint[])"
    for row, others, expected in ((2, [], True), (horizon - 1, [], True), (horizon - 1, [horizon - 1], False), (horizon, [], False)):
        assert lines.execute(query, (row, horizon, others)).fetchone() == (expected,)


def test_abort_leaves_a_live_table_as_it_is(totals):
    totals.execute("UPDATE line SET amount = 0 WHERE number < 100; SELECT FROM total WHERE number = 7 FOR UPDATE")
    totals.execute("SELECT bullfrog.abort('m')")
    assert totals.execute("SELECT count(*) FROM line WHERE amount = 0").fetchone()[0] > 0
    assert totals.execute("SELECT to_regclass('total')").fetchone() == (None,)
    assert totals.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'line'::regclass").fetchone() == (0,)
    assert totals.execute("SELECT count(*) FROM pg_class WHERE relname ~ '^(kept|frozen)_'").fetchone() == (0,)


def test_abort_of_written_rows_beside_a_live_table_is_refused(totals):
    totals.execute("UPDATE total SET amount = 0 WHERE number = 7")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="total") as refused:
        totals.execute("SELECT bullfrog.abort('m')")
    assert "public.line is in use beside public.total" in refused.value.diag.message_detail
    totals.execute("SELECT bullfrog.abort('m', true)")
    assert totals.execute("SELECT count(*) FROM line").fetchone()[0] > 0


def test_a_client_without_rights_on_what_bullfrog_keeps_writes_a_live_table(database, totals):
    totals.execute("CREATE ROLE clerk LOGIN; GRANT SELECT, UPDATE, DELETE ON line, total TO clerk")
    try:
        totals.execute("SET ROLE clerk; UPDATE line SET amount = 0 WHERE number = 7; DELETE FROM line WHERE number = 8")
        assert totals.execute("SELECT amount > 0 FROM total WHERE number = 7").fetchone() == (True,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            totals.execute("SELECT * FROM bullfrog.kept_" + str(totals.execute("SELECT 'line'::regclass::oid").fetchone()[0]))
    finally:
        totals.execute("RESET ROLE; DROP OWNED BY clerk; DROP ROLE clerk")
    assert differing(totals, "total", "expected") == 0


def test_a_look_up_reads_a_live_table_by_its_index(totals):
    plan = str(totals.execute("EXPLAIN SELECT * FROM total WHERE shop = 3 AND number = 7").fetchall())
    assert "line_pkey" in plan and "Seq Scan on line" not in plan


def test_a_crash_leaves_what_was_kept_by_transactions_that_had_committed(database, totals):
    totals.execute("DELETE FROM line WHERE number < 100; SELECT FROM total WHERE number BETWEEN 50 AND 150 FOR UPDATE")
    victim = database.connect()
    victim.execute("BEGIN; DELETE FROM line WHERE number > 120; INSERT INTO line VALUES (1, 1, 1000, 5, 5)")
    os.kill(victim.info.backend_pid, signal.SIGKILL)
    wait_for_crash(totals)
    after = reconnect(database)
    assert differing(after, "total", "expected") == 0
    after.execute("DELETE FROM line WHERE number > 120")
    assert differing(after, "total", "expected") == 0
    after.execute("SELECT bullfrog.finish('m')")
    assert differing(after, "total", "expected") == 0


@pytest.fixture
def server_of_the_second_epoch():
    """A server that has used up the numbers of transactions, and has some rows whose numbers come next."""
    server = Server(LIBRARY, SETTINGS, in_memory=True)
    try:
        with server.connect() as connection:
            connection.execute("""
                CREATE EXTENSION bullfrog;
                CREATE TABLE plain AS SELECT generate_series(1, 1000) n;
                CREATE TABLE odd AS SELECT 1 AS n""")
            number = connection.execute("SELECT pg_current_xact_id()::text::int").fetchone()[0]
            # A switch that has to try again for its locks takes some more numbers.
            for _ in range(100):
                connection.execute("SELECT pg_current_xact_id()")
            connection.execute("UPDATE odd SET n = 2")
            connection.execute("VACUUM FREEZE")
        server.stop()
        shutil.copy(pathlib.Path(config("bindir")) / "pg_resetwal", server.programs)
        server.run("pg_resetwal", "-e", "1", "-x", str(number), "-D", server.data)
        server.start()
        yield server
    finally:
        server.remove()


@needs("pg_resetwal")
def test_rows_whose_numbers_come_again(server_of_the_second_epoch):
    with server_of_the_second_epoch.connect() as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="too old"):
            migrate(connection, "CREATE TABLE t AS SELECT n FROM odd", options=", live => '{odd}'")
        migrate(connection, "CREATE TABLE t AS SELECT n % 10 AS k, sum(n) AS s FROM plain GROUP BY 1", options=", live => '{plain}'")
        connection.execute("UPDATE plain SET n = 0 WHERE n < 500; INSERT INTO plain VALUES (1)")
        assert connection.execute("SELECT sum(s), count(*) FROM t").fetchone() == (500500, 10)
        connection.execute("SELECT bullfrog.finish('m')")
        assert connection.execute("SELECT sum(s), count(*) FROM t").fetchone() == (500500, 10)
