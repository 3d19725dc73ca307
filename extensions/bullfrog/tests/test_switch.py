"""The switch waits for nobody for long, and tells whom it would have waited for."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, answered, migrate, setting
from server import wait_until


@pytest.mark.parametrize("options, mode", [("", "AccessShareLock"), (", live => '{customer}'", "RowExclusiveLock")])
def test_a_switch_that_cannot_lock_its_tables_says_who_has_them_and_how_to_end_it(database, customers, options, mode):
    using = database.connect(application_name="a report")
    using.execute("BEGIN; SELECT count(*) FROM customer" if not options else "BEGIN; DELETE FROM customer WHERE id = 1")
    pid = using.info.backend_pid
    customers.execute("SET lock_timeout = '10ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable, match="could not lock public.customer within 10ms") as refused:
        migrate(customers, SPLIT, options=options)
    told = refused.value.diag
    assert told.message_detail.startswith(f"Process {pid} (postgres, a report, idle in transaction) has ")
    assert f"{mode} on public.customer" in told.message_detail and "its last statement at 2" in told.message_detail
    assert f"SELECT pg_terminate_backend({pid})" in told.message_hint
    customers.execute(f"SELECT pg_terminate_backend({pid}, 60000)")
    migrate(customers, SPLIT, options=options)
    assert customers.execute("SELECT count(*) FROM customer_public").fetchone() == (CUSTOMERS,)


def test_readers_are_not_named_where_they_are_not_in_the_way(database, customers):
    reading, writing = database.connect(), database.connect()
    reading.execute("BEGIN; SELECT count(*) FROM customer")
    writing.execute("BEGIN; DELETE FROM customer WHERE id = 1")
    customers.execute("SET lock_timeout = '10ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable) as refused:
        migrate(customers, SPLIT, options=", live => '{customer}'")
    assert f"Process {writing.info.backend_pid} " in refused.value.diag.message_detail
    assert f"Process {reading.info.backend_pid} " not in refused.value.diag.message_detail


@pytest.mark.parametrize("definition", [SPLIT, "CREATE TABLE t AS SELECT c.id, d.name FROM customer c JOIN customer d USING (id)"])
@pytest.mark.parametrize("has_it, told", [(True, "has AccessExclusiveLock on public.customer"), (False, "has asked for AccessExclusiveLock on public.customer")])
def test_who_keeps_a_definition_from_being_read_is_named(database, customers, definition, has_it, told):
    reading, changing = database.connect(), database.connect()
    if has_it:
        changing.execute("BEGIN; ALTER TABLE customer ADD COLUMN more int")
    else:
        reading.execute("BEGIN; SELECT count(*) FROM customer")
        changing.pgconn.send_query(b"ALTER TABLE customer ADD COLUMN more int")
        asked = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
        wait_until(lambda: customers.execute(asked, (changing.info.backend_pid,)).fetchone() == (1,), "a change of the table waits for who reads it")
    customers.execute("SET lock_timeout = '10ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable, match="could not lock public.customer within 10ms") as refused:
        migrate(customers, definition)
    assert refused.value.diag.message_detail.startswith(f"Process {changing.info.backend_pid} ") and told in refused.value.diag.message_detail
    reading.execute("COMMIT")
    if has_it:
        changing.execute("COMMIT")
    else:
        answered(changing)
    customers.execute("RESET lock_timeout")
    migrate(customers, definition)


def test_a_prepared_transaction_that_has_the_tables_is_named(customers):
    customers.execute("BEGIN; DELETE FROM customer WHERE id = 1; PREPARE TRANSACTION 'it''s mine'; SET lock_timeout = '10ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable) as refused:
        migrate(customers, SPLIT)
    assert refused.value.diag.message_detail.startswith("The prepared transaction 'it''s mine' of postgres has RowExclusiveLock on public.customer")
    assert "ROLLBACK PREPARED 'it''s mine'" in refused.value.diag.message_hint


def test_a_switch_tries_again_by_itself_and_tells_once_whom_it_waits_for(database, customers):
    said = []
    customers.add_notice_handler(lambda notice: said.append((notice.message_primary, notice.message_detail)))
    using = database.connect()
    using.execute("BEGIN; SELECT count(*) FROM customer")
    customers.execute("SET lock_timeout = '1min'")
    customers.pgconn.send_query(b"SELECT bullfrog.migrate('m', 'CREATE TABLE t AS SELECT id, name FROM customer')")

    def is_told():
        customers.pgconn.consume_input()
        customers.pgconn.is_busy()
        return said

    wait_until(is_told, "it is told who is in the way")
    using.execute("COMMIT")
    answered(customers)
    assert [what for what, _ in said] == ["tables are in use, trying again for 1min"]
    assert said[0][1].startswith(f"Process {using.info.backend_pid} ")
    assert customers.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS,)


def test_a_vacuum_of_the_servers_own_gives_way(server, database, customers):
    customers.execute("ALTER TABLE customer SET (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 100,"
        " autovacuum_vacuum_cost_limit = 1); DELETE FROM customer WHERE id > 900; SELECT pg_stat_force_next_flush()")
    vacuums = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.backend_type = 'autovacuum worker'" \
        " AND l.relation = 'customer'::regclass AND l.mode = 'ShareUpdateExclusiveLock'"
    with setting(server, "autovacuum_naptime", "1s"), setting(server, "autovacuum", "on"):
        wait_until(lambda: customers.execute(vacuums).fetchone() == (1,), "the server vacuums the table")
        migrate(customers, SPLIT)
    assert customers.execute("SELECT count(*) FROM customer_public").fetchone() == (900,)
