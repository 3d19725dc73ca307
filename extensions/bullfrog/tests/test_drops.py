"""What a migration stands on is not dropped under it: the extension, the tables, the database; and nothing stays behind."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, database_from, migrate, moved, wait_until

WRITE = "UPDATE customer_private SET name = name || '!' WHERE id = %s"


def check(connection):
    """Rows are as they were, and move as ever."""
    assert connection.execute("SELECT count(*) FROM customer_private JOIN customer_public USING (id)").fetchone() == (CUSTOMERS,)
    assert connection.execute(f"{WRITE} RETURNING name", (500,)).fetchone() == ("name 500!",)
    assert moved(connection) > 0
    connection.execute("SELECT bullfrog.finish('split')")
    assert connection.execute("SELECT count(*) FROM customer_private JOIN customer_public USING (id)").fetchone() == (CUSTOMERS,)


@pytest.mark.parametrize("statement", [
    "DROP EXTENSION bullfrog", "DROP EXTENSION bullfrog CASCADE", "DROP EXTENSION plpgsql CASCADE", "DROP OWNED BY boss CASCADE",
    "DROP SCHEMA bullfrog CASCADE", "ALTER SCHEMA bullfrog RENAME TO frog", "ALTER EXTENSION bullfrog DROP TABLE bullfrog.target",
    "DO 'BEGIN EXECUTE ''DROP EXTENSION bullfrog CASCADE''; END'",
])
def test_the_extension_is_not_dropped_midway_by_whatever_door(customers, statement):
    customers.execute("DROP EXTENSION bullfrog; CREATE ROLE boss SUPERUSER; SET ROLE boss; CREATE EXTENSION bullfrog; RESET ROLE")
    try:
        migrate(customers, SPLIT, "split")
        with pytest.raises(psycopg.errors.ObjectInUse) as refused:
            customers.execute(statement)
        assert "bullfrog.progress" in refused.value.diag.message_hint
        check(customers)
    finally:
        customers.execute("DROP OWNED BY boss CASCADE; DROP ROLE boss")


@pytest.mark.parametrize("cascade", ["", "CASCADE"])
def test_who_drops_the_extension_waits_for_a_switch_under_way_and_is_refused(database, customers, cascade):
    other = database.connect()
    customers.execute("BEGIN")
    migrate(customers, SPLIT, "split")
    other.pgconn.send_query(f"DROP EXTENSION bullfrog {cascade}".encode())
    watcher = database.connect()
    wait_until(lambda: watcher.execute("SELECT FROM pg_locks WHERE NOT granted AND pid = %s", (other.info.backend_pid,)).rowcount == 1,
        "the other session waits")
    customers.execute("COMMIT")
    heard = other.pgconn.get_result().error_field(psycopg.pq.DiagnosticField.SQLSTATE)
    if heard == b"40P01":
        # It had its locks in another order than a mover that has just begun, and is who ends; asked again, it hears why.
        assert other.pgconn.get_result() is None
        heard = other.pgconn.exec_(f"DROP EXTENSION bullfrog {cascade}".encode()).error_field(psycopg.pq.DiagnosticField.SQLSTATE)
    assert heard in (b"55006", b"2BP01")
    check(customers)


def test_the_extension_is_dropped_when_all_has_ended_and_nothing_stays_behind(split):
    said = []
    split.add_notice_handler(lambda notice: said.append(notice.message_primary))
    split.execute(WRITE, (1,))
    split.execute("SELECT bullfrog.finish('split')")
    assert said == []
    split.execute("DROP EXTENSION bullfrog")
    left = """
        SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgname ~ 'bullfrog'
        UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relnamespace = 'bullfrog'::regnamespace
        UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE probin ~ 'bullfrog'"""
    assert split.execute(left).fetchall() == []
    split.execute("CREATE EXTENSION bullfrog")
    migrate(split, "CREATE TABLE next AS SELECT id FROM customer_private")
    # A source that has the number of an earlier one begins with nothing.
    assert split.execute("SELECT rows_moved, touches FROM bullfrog.progress").fetchall() == [(0, 0)]


@pytest.mark.parametrize("statement", ["DROP TABLE {} CASCADE", "DROP SCHEMA public CASCADE", "DROP OWNED BY keeper CASCADE",
    "ALTER TABLE {} DROP COLUMN id CASCADE"])
@pytest.mark.parametrize("table", ["customer", "customer_private"])
def test_tables_are_not_dropped_midway(customers, statement, table):
    customers.execute("CREATE ROLE keeper; ALTER TABLE customer OWNER TO keeper; GRANT ALL ON SCHEMA public TO keeper")
    try:
        migrate(customers, SPLIT, "split")
        with pytest.raises(psycopg.errors.ObjectInUse) as refused:
            customers.execute(statement.format(table))
        assert "finish" in refused.value.diag.message_hint
        check(customers)
    finally:
        customers.execute("DROP OWNED BY keeper CASCADE; DROP ROLE keeper")


@pytest.fixture
def doomed(server, template):
    """A database to be dropped, with a split under way and a mover in the middle of a page: a client is in its way."""
    with database_from(server, template, "doomed") as database:
        connection, blocker, waiting = (database.connect() for _ in range(3))
        migrate(connection, SPLIT, "split")
        blocker.execute("BEGIN; LOCK TABLE customer_public IN SHARE MODE")
        waiting.pgconn.send_query((WRITE % 1).encode())
        locks = "SELECT FROM pg_locks WHERE relation = 'customer_public'::regclass AND NOT granted"
        wait_until(lambda: connection.execute(locks).rowcount == 1, "the mover waits in the middle of a page")
        yield database


def test_a_database_is_not_dropped_while_its_rows_move(doomed, customers):
    doomed.close()
    with pytest.raises(psycopg.errors.ObjectInUse, match="bullfrog") as refused:
        customers.execute(f"DROP DATABASE {doomed.name}")
    assert "FORCE" in refused.value.diag.message_hint
    check(doomed.connect())


def test_a_database_that_is_dropped_by_force_leaves_nothing_behind(doomed, split):
    """Neither a process nor a claim nor a request: the next database of that name begins anew, and others go on."""
    split.execute(f"DROP DATABASE {doomed.name} WITH (FORCE)")
    split.execute(f"CREATE DATABASE {doomed.name} TEMPLATE template")
    movers = "SELECT FROM pg_stat_activity WHERE datname = %s AND backend_type = 'bullfrog mover'"
    assert split.execute(movers, (doomed.name,)).rowcount == 0
    again = doomed.connect()
    migrate(again, SPLIT, "split")
    check(again)
    check(split)
