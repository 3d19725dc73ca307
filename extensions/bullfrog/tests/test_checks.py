"""Rows that violate what a new table asks for: they stop the switch, or are left out and kept apart."""

import psycopg
import pytest

from conftest import CUSTOMERS, migrate

DEFINITION = """
    CREATE TABLE t AS SELECT id, nullif(id, 7) AS number, left(nick, 6) AS short, city FROM customer;
    ALTER TABLE t ALTER COLUMN number SET NOT NULL;
    ALTER TABLE t ADD CONSTRAINT small CHECK (id < 990);
    ALTER TABLE t ADD UNIQUE (short);
"""


def quarantine(connection, definition):
    connection.execute("SELECT bullfrog.migrate('m', %s, checks => 'quarantine')", (definition,), prepare=False)


def test_rows_that_violate_a_constraint_are_left_out_and_kept_apart(customers):
    customers.execute("CREATE TABLE left_over AS SELECT DISTINCT ON (left(nick, 6)) id FROM customer WHERE id <> 7 AND id < 990"
        " ORDER BY left(nick, 6), id")
    quarantine(customers, DEFINITION)
    different = "SELECT count(*) FROM t FULL JOIN left_over l USING (id) WHERE t.id IS NULL OR l.id IS NULL"
    assert customers.execute(different).fetchone() == (0,)
    kept = customers.execute("SELECT count(*) FROM t").fetchone()[0]
    why = dict(customers.execute("SELECT violates, count(*) FROM bullfrog.quarantined GROUP BY 1").fetchall())
    assert why == {"NOT NULL of number": 1, "the check small": 11, "the unique index public.t_short_key": CUSTOMERS - 12 - kept}
    assert customers.execute("SELECT content ->> 'id', content ->> 'short', new_table FROM bullfrog.quarantined"
        " WHERE violates LIKE 'NOT NULL%'").fetchall() == [("7", "nick 7", "public.t")]
    with pytest.raises(psycopg.errors.UniqueViolation):
        customers.execute("UPDATE t SET short = 'nick 1' WHERE id = 2")
    customers.execute("UPDATE t SET city = 'x'")
    assert customers.execute("SELECT count(*) FROM t").fetchone() == (kept,)
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT count(*) FROM t").fetchone() == (kept,)
    assert customers.execute("SELECT count(*) FROM bullfrog.quarantined").fetchone() == (CUSTOMERS - kept,)


def test_abort_brings_back_rows_in_quarantine(customers):
    quarantine(customers, DEFINITION)
    customers.execute("SELECT FROM t WHERE id = 1 FOR UPDATE")
    customers.execute("SELECT bullfrog.abort('m')")
    assert customers.execute("SELECT count(*), (SELECT count(*) FROM bullfrog.quarantined) FROM customer").fetchone() == (CUSTOMERS, 0)


def test_rows_that_refer_to_rows_in_quarantine_go_there_too(customers):
    quarantine(customers, """
        CREATE TABLE parent AS SELECT id, name FROM customer; ALTER TABLE parent ADD PRIMARY KEY (id);
        ALTER TABLE parent ADD CHECK (id <> 5);
        CREATE TABLE child AS SELECT id, id / 2 AS of FROM customer WHERE id > 1; ALTER TABLE child ADD PRIMARY KEY (id);
        ALTER TABLE child ADD FOREIGN KEY (of) REFERENCES parent;
        CREATE TABLE grandchild AS SELECT id, id + 1 AS of FROM customer WHERE id < 20 AND id > 2;
        ALTER TABLE grandchild ADD FOREIGN KEY (of) REFERENCES child""")
    left_out = customers.execute("SELECT new_table, array_agg((content ->> 'id')::int ORDER BY place) FROM bullfrog.quarantined"
        " GROUP BY 1 ORDER BY 1").fetchall()
    assert left_out == [("public.child", [10, 11]), ("public.grandchild", [9, 10]), ("public.parent", [5])]
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT count(*) FROM child WHERE id IN (10, 11)").fetchone() == (0,)


def test_groups_in_quarantine(customers):
    quarantine(customers, "CREATE TABLE t AS SELECT id / 100 AS hundred, count(*) AS n FROM customer GROUP BY 1;"
        " ALTER TABLE t ADD PRIMARY KEY (hundred); ALTER TABLE t ADD CHECK (n = 100)")
    assert customers.execute("SELECT array_agg(hundred ORDER BY hundred) FROM t").fetchone() == (list(range(1, 10)),)
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT array_agg(hundred ORDER BY hundred) FROM t").fetchone() == (list(range(1, 10)),)


def test_a_client_reads_a_table_with_rows_in_quarantine(customers):
    quarantine(customers, DEFINITION)
    customers.execute("CREATE ROLE reader; GRANT SELECT ON t TO reader; SET ROLE reader")
    try:
        assert customers.execute("SELECT count(*) FROM t WHERE id = 7").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            customers.execute("SELECT content FROM bullfrog.quarantined")
    finally:
        customers.execute("RESET ROLE; DROP OWNED BY reader; DROP ROLE reader")


def test_with_warn_rows_that_violate_a_constraint_are_left_out_when_they_move(customers):
    # The end waits for moves, row by row.
    customers.execute("SET lock_timeout = '1min'")
    notices = []
    customers.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    definition = DEFINITION + "CREATE TABLE whole AS SELECT id, name FROM customer"
    customers.execute("SELECT bullfrog.migrate('m', %s, checks => 'warn')", (definition,), prepare=False)
    unchecked = ("NOT NULL of number", "the check small", "the unique index public.t_short_key")
    assert notices == [f"whether rows violate {what} was not checked" for what in unchecked]
    assert customers.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS,)
    assert customers.execute("UPDATE t SET city = 'x' WHERE id = 7").rowcount == 0
    assert customers.execute("UPDATE t SET city = 'x' WHERE id = 6").rowcount == 1
    why = dict(customers.execute("SELECT violates, count(*) FROM bullfrog.quarantined GROUP BY 1 ORDER BY 1").fetchall())
    assert why.pop('null value in column "number" of relation "t" violates not-null constraint') == 1
    assert set(why) <= {'duplicate key value violates unique constraint "t_short_key"'}
    customers.execute("SELECT bullfrog.finish('m')")
    kept, aside = customers.execute("SELECT count(*), (SELECT count(*) FROM bullfrog.quarantined) FROM t").fetchone()
    assert (kept, aside) == (9, CUSTOMERS - 9)
    assert customers.execute("SELECT count(*) FROM whole").fetchone() == (CUSTOMERS,)
    assert customers.execute("SELECT count(*) FROM t WHERE number IS NULL OR id >= 990").fetchone() == (0,)


@pytest.mark.parametrize("call", ["checks => 'later'", "checks => 'quarantine'", "checks => 'warn'"])
def test_what_cannot_be_checked_so_is_refused(shared_customers, call):
    with pytest.raises((psycopg.errors.InvalidParameterValue, psycopg.errors.FeatureNotSupported)):
        shared_customers.execute(f"SELECT bullfrog.migrate('m', 'CREATE TABLE t AS SELECT a.id FROM customer a JOIN customer b"
            f" ON a.city = b.city', {call})")


def test_compatible_keeps_old_tables_readable_as_of_the_switch(customers):
    customers.execute("SELECT bullfrog.migrate('m', 'CREATE TABLE person AS SELECT id, name FROM customer', compatible => true)")
    customers.execute("UPDATE person SET name = 'new' WHERE id = 1; DELETE FROM person WHERE id = 2")
    assert customers.execute("SELECT name FROM customer WHERE id < 3 ORDER BY id").fetchall() == [("name 1",), ("name 2",)]
    different = "SELECT count(*) FROM customer c LEFT JOIN person p USING (id) WHERE p.name IS DISTINCT FROM c.name"
    assert customers.execute(different).fetchone() == (2,)
    with customers.cursor().copy("COPY customer TO STDOUT") as copy:
        assert len(list(copy.rows())) == CUSTOMERS
    for statement in ("INSERT INTO customer VALUES (0, '')", "UPDATE customer SET name = ''", "DELETE FROM customer",
        "SELECT * FROM customer FOR UPDATE",
                      "COPY customer FROM STDIN", "MERGE INTO customer c USING person p ON c.id = p.id WHEN MATCHED THEN DELETE"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="closed to writes"):
            customers.execute(statement)
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT to_regclass('customer')").fetchone() == (None,)
