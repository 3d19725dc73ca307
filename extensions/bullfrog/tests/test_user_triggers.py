"""Triggers of users: they fire once for each row that a client writes, on the table that it writes; never for rows that move or are carried
back."""

import psycopg
import pytest

from conftest import CUSTOMERS, migrate

LOG = """
    CREATE TABLE log (tab text, op text, id int);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE written record;
        BEGIN
            IF TG_OP = 'DELETE' THEN written := OLD; ELSE written := NEW; END IF;
            INSERT INTO log VALUES (TG_TABLE_NAME, TG_OP, written.id);
            RETURN written;
        END $$;"""
ON_OLD = """CREATE TRIGGER before BEFORE INSERT OR UPDATE OR DELETE ON customer FOR EACH ROW EXECUTE FUNCTION note();
    CREATE TRIGGER after AFTER INSERT OR UPDATE OR DELETE ON customer FOR EACH ROW EXECUTE FUNCTION note();"""
COPY = """CREATE TABLE t AS SELECT id, name, nick FROM customer; ALTER TABLE t ADD PRIMARY KEY (id);
    CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note()"""
WAYS = ["", ", granularity => 'tuple'", ", granularity => 'tuple', moves => 'transaction'"]


@pytest.fixture
def logged(customers):
    customers.execute(LOG + ON_OLD)
    return customers


def log(connection):
    return connection.execute("SELECT * FROM log ORDER BY id, op").fetchall()


@pytest.mark.parametrize("options", WAYS)
def test_a_trigger_fires_once_for_each_row_that_is_written_and_never_for_moves(logged, options):
    migrate(logged, COPY, options=options)
    logged.execute("UPDATE t SET name = 'x' WHERE id = 7; DELETE FROM t WHERE id = 8; INSERT INTO t VALUES (0, 'new')")
    expected = [("t", "INSERT", 0), ("t", "UPDATE", 7), ("t", "DELETE", 8)]
    assert log(logged) == expected
    logged.execute("SELECT bullfrog.finish('m')")
    assert log(logged) == expected
    logged.execute("UPDATE t SET name = 'y' WHERE id = 9")
    assert log(logged) == [*expected, ("t", "UPDATE", 9)]


def test_what_abort_carries_back_was_written_once(logged):
    migrate(logged, COPY)
    logged.execute("UPDATE t SET name = 'x' WHERE id = 7; DELETE FROM t WHERE id = 8; INSERT INTO t VALUES (0, 'new')")
    logged.execute("SELECT bullfrog.abort('m')")
    assert log(logged) == [("t", "INSERT", 0), ("t", "UPDATE", 7), ("t", "DELETE", 8)]
    assert logged.execute("SELECT count(*), min(name) FILTER (WHERE id = 7) FROM customer").fetchone() == (CUSTOMERS, "x")
    # The old table's own are there again.
    logged.execute("UPDATE customer SET name = 'z' WHERE id = 9")
    assert log(logged)[3:] == [("customer", "UPDATE", 9)] * 2
    assert logged.execute("SHOW session_replication_role").fetchone() == ("origin",)


def test_a_deferrable_key_beside_triggers_is_not_carried_back_unchecked(logged):
    logged.execute("ALTER TABLE customer ADD UNIQUE (nick) DEFERRABLE")
    migrate(logged, COPY)
    logged.execute("UPDATE t SET nick = 'nick 8' WHERE id = 7")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as error:
        logged.execute("SELECT bullfrog.abort('m')")
    assert "customer has triggers and a deferrable key" in error.value.diag.message_detail
    logged.execute("SELECT bullfrog.abort('m', discard_writes => true)")


def test_plan_tells_which_triggers_have_nothing_more_to_fire_for(logged):
    note = logged.execute("SELECT note FROM bullfrog.plan('m', %s)", (COPY,), prepare=False).fetchone()[0]
    assert "the trigger before of public.customer has nothing more to fire for" in note
    assert "refused" not in note


@pytest.mark.parametrize("trigger", [
    "CREATE TRIGGER u BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE TRIGGER u BEFORE UPDATE OF name ON t FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE CONSTRAINT TRIGGER u AFTER INSERT ON t DEFERRABLE FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE TRIGGER u AFTER INSERT ON log FOR EACH ROW EXECUTE FUNCTION note()",
])
def test_a_trigger_that_may_change_keys_after_they_were_looked_up_is_refused(logged, trigger):
    with pytest.raises(psycopg.errors.FeatureNotSupported) as error:
        migrate(logged, f"CREATE TABLE t AS SELECT id FROM customer; {trigger}")
    assert error.value.diag.message_hint


def test_triggers_of_statements_fire_for_statements(logged):
    logged.execute("""CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO log SELECT 'rows', TG_OP, count(*) FROM written; RETURN NULL; END $$""")
    migrate(logged, """CREATE TABLE t AS SELECT id, name FROM customer; CREATE TRIGGER s AFTER UPDATE ON t REFERENCING NEW TABLE AS written
        FOR EACH STATEMENT EXECUTE FUNCTION counted()""")
    logged.execute("UPDATE t SET name = 'x' WHERE id < 100")
    assert log(logged) == [("rows", "UPDATE", 99)]
