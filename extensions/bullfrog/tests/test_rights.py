"""Expressions of a definition run with the rights of the old table's owner, and nothing that they do outlives them."""

import psycopg
import pytest

from conftest import escalated, migrate, setting
from server import wait_until

LOUD = "CREATE TABLE hers.loud AS SELECT id, hers.shout(label) AS label FROM hers.item; ALTER TABLE hers.loud ADD PRIMARY KEY (id)"


def test_an_owners_function_gets_nobody_elses_rights(hostile):
    settings = "SELECT current_user, session_user, current_setting('search_path'), current_setting('application_name')"
    before = hostile.execute(settings).fetchone()
    migrate(hostile, LOUD)
    checked = hostile.execute("SELECT count(*) FROM hers.seen").fetchone()[0]
    assert checked == 50
    hostile.execute("SELECT FROM hers.loud WHERE id = 1 FOR UPDATE")
    assert hostile.execute("SELECT count(*) FROM hers.seen").fetchone()[0] > checked
    hostile.execute("SELECT bullfrog.finish('m', keep_old => true)")
    assert hostile.execute("SELECT DISTINCT who FROM hers.seen").fetchall() == [("mallory",)]
    assert hostile.execute("SELECT attack FROM hers.done").fetchall() == []
    assert hostile.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'").fetchone() == (False,)
    assert hostile.execute(settings).fetchone() == before
    assert hostile.execute("SELECT count(*) FROM hers.loud WHERE label LIKE 'LABEL%'").fetchone() == (50,)


def test_abort_compares_with_the_owners_rights(hostile):
    migrate(hostile, LOUD)
    hostile.execute("SELECT bullfrog.abort('m')")
    assert hostile.execute("SELECT DISTINCT who FROM hers.seen").fetchall() == [("mallory",)]
    assert hostile.execute("SELECT attack FROM hers.done").fetchall() == []


@pytest.mark.parametrize("statement", [
    "CREATE OR REPLACE FUNCTION hers.shout(label text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT lower(label)'",
    "ALTER FUNCTION hers.shout VOLATILE",
])
def test_a_function_of_a_definition_stays_as_it_is(hostile, statement):
    migrate(hostile, LOUD)
    with pytest.raises(psycopg.errors.ObjectInUse):
        hostile.execute(statement)
    hostile.execute("SELECT bullfrog.finish('m')")
    hostile.execute(statement)


def test_an_owner_who_may_not_use_the_schema_of_the_new_table_stops_the_switch(hostile):
    hostile.execute("CREATE SCHEMA elsewhere")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not use the schema"):
        migrate(hostile, "CREATE TABLE elsewhere.t AS SELECT id FROM hers.item")


def test_only_a_superuser_may_take_an_owners_rights(hostile):
    hostile.execute("GRANT EXECUTE ON FUNCTION bullfrog.evaluate TO mallory")
    hostile.execute("SET ROLE mallory")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        hostile.execute("SELECT bullfrog.evaluate('pg_class'::regclass, 'SELECT to_jsonb(1)')")
    hostile.execute("RESET ROLE")


def test_what_is_constant_in_a_definition_is_evaluated_with_the_owners_rights(hostile):
    """The planner evaluates it, also for EXPLAIN."""
    migrate(hostile, "CREATE TABLE hers.loud AS SELECT id, hers.shout('loud') AS label FROM hers.item")
    hostile.execute("UPDATE hers.loud SET label = '' WHERE id = 1")
    hostile.execute("SELECT bullfrog.finish('m')")
    assert escalated(hostile) == [("mallory",)]


@pytest.mark.parametrize("trap", [
    "ALTER TABLE hers.item ADD CHECK (hers.shout(label) <> '') NOT VALID",
    "ALTER TABLE hers.item ALTER extra SET DEFAULT hers.shout('default')",
    "CREATE INDEX ON hers.item (hers.shout(label))",
])
def test_what_is_carried_back_is_written_with_the_owners_rights(hostile, trap):
    hostile.execute("ALTER TABLE hers.item ADD extra text")
    hostile.execute(trap)
    hostile.execute("TRUNCATE hers.seen, hers.done")
    migrate(hostile, "CREATE TABLE hers.named AS SELECT id, label FROM hers.item; ALTER TABLE hers.named ADD PRIMARY KEY (id)")
    hostile.execute("UPDATE hers.named SET label = 'other' WHERE id = 1; INSERT INTO hers.named VALUES (100, 'new')")
    hostile.execute("SELECT bullfrog.abort('m')")
    assert escalated(hostile) == [("mallory",)]
    assert hostile.execute("SELECT label FROM hers.item WHERE id IN (1, 100) ORDER BY id").fetchall() == [("other",), ("new",)]


def test_functions_take_nothing_from_the_schemas_of_their_caller(hostile):
    assert hostile.execute("""SELECT p.proname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = 'bullfrog'::regnamespace AND l.lanname <> 'c'
            AND NOT COALESCE('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)""").fetchall() == []


def plant(connection):
    """Operators that would be taken where the server has none for just these types. They raise an error."""
    types = ["oid", "regclass", "oid[]", "regclass[]", "smallint", "smallint[]", "int", "int[]", "bigint", "text", "text[]", "name",
        '"char"']
    connection.execute("SET ROLE mallory")
    for left in types:
        for right in types:
            connection.execute(f"""CREATE FUNCTION hers.planted({left}, {right}) RETURNS boolean LANGUAGE plpgsql AS
                'BEGIN RAISE EXCEPTION ''taken from the schema of the caller''; END'""")
            for operator in ("=", "<>", "<", ">", "<=", ">=", "||", "<@", "+", "-"):
                connection.execute(f"CREATE OPERATOR hers.{operator} (FUNCTION = hers.planted, LEFTARG = {left}, RIGHTARG = {right})")
    connection.execute("RESET ROLE; SET search_path = public, hers")
    connection.execute(f"ALTER DATABASE {connection.info.dbname} SET search_path = public, hers")


ENDS = ["SELECT bullfrog.finish('m')", "SELECT bullfrog.abort('m')"]


@pytest.mark.parametrize("end", ENDS)
def test_planted_operators_are_not_taken(hostile, end):
    hostile.execute("CREATE TABLE hers.label (label text PRIMARY KEY, meaning text)")
    hostile.execute("INSERT INTO hers.label SELECT label, upper(label) FROM hers.item; ALTER TABLE hers.label OWNER TO mallory")
    plant(hostile)
    with pytest.raises(psycopg.errors.RaiseException, match="schema of the caller"):
        hostile.execute("SELECT 'hers.item'::regclass = 1::oid")
    definition = """
        CREATE TABLE named AS SELECT id, label FROM item; ALTER TABLE named ADD PRIMARY KEY (id);
        CREATE TABLE meant AS SELECT i.id, l.meaning FROM item i JOIN label l USING (label); ALTER TABLE meant ADD UNIQUE (id);
        CREATE TABLE counted AS SELECT label, count(*) AS n FROM item GROUP BY label; ALTER TABLE counted ADD PRIMARY KEY (label)"""
    arguments = "live => '{label}', driving => '{item}'"
    hostile.execute(f"SELECT * FROM bullfrog.plan('m', %s, {arguments})", (definition,), prepare=False)
    migrate(hostile, definition, options=f", checks => 'quarantine', {arguments}")
    hostile.execute("SELECT bullfrog.pause('m'); SELECT bullfrog.resume('m')")
    hostile.execute("UPDATE named SET label = 'x' WHERE id = 1" if "finish" in end else "SELECT FROM named")
    hostile.execute(end)


@pytest.mark.parametrize("call", ["move(1, '{0}')", "sweep(1, '{0}')"])
def test_nobody_drives_a_migration_who_did_not_start_it(hostile, call):
    migrate(hostile, LOUD)
    hostile.execute("SET ROLE mallory")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        hostile.execute(f"SELECT bullfrog.{call}")
    hostile.execute("UPDATE hers.loud SET label = '' WHERE id = 1")
    hostile.execute("RESET ROLE")
    hostile.execute("SELECT bullfrog.finish('m')")


def test_why_rows_cannot_be_moved_tells_not_everybody_what_is_in_them(server, database):
    """A condition that fails, which nobody checked before."""
    admin = database.connect()
    admin.execute("CREATE TABLE item (id int PRIMARY KEY, label text); INSERT INTO item VALUES (1, '1'), (2, 'secret')")
    admin.execute("CREATE ROLE reader")
    try:
        migrate(admin, "CREATE TABLE t AS SELECT id, label FROM item; ALTER TABLE t ADD PRIMARY KEY (id); "
            "ALTER TABLE t ADD CHECK (label::int > 0); GRANT SELECT (id), UPDATE (id) ON t TO reader", options=", checks => 'warn'")
        reader = database.connect()
        reader.execute("SET ROLE reader")
        told = "SELECT last_failure FROM bullfrog.progress"
        with setting(server, "bullfrog.start_delay", "0"):
            admin.execute("SELECT bullfrog.start_mover()")
            wait_until(lambda: admin.execute(told).fetchone()[0], "the background has failed")
        for session, is_told in ((admin, True), (reader, False)):
            with pytest.raises(psycopg.errors.InvalidTextRepresentation) as error:
                session.execute("UPDATE t SET id = 3 WHERE id = 1")
            assert ("secret" in str(error.value)) == is_told
            failure = session.execute(told).fetchone()[0]
            assert ("secret" in failure, "22P02" in failure) == (is_told, not is_told)
    finally:
        admin.execute("SELECT bullfrog.abort('m'); DROP OWNED BY reader; DROP ROLE reader")


# What a function of a definition writes while it is evaluated: a table of somebody else's.
PAYMENT = """
    CREATE ROLE alice; CREATE SCHEMA alice AUTHORIZATION alice; GRANT USAGE ON SCHEMA alice TO mallory; SET ROLE alice;
    CREATE TABLE alice.account (amount int); CREATE TABLE alice.audit (amount int); GRANT INSERT ON alice.account TO mallory;
    CREATE FUNCTION alice.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
        $$ BEGIN INSERT INTO alice.audit VALUES (NEW.amount); RETURN NULL; END $$;
    CREATE TRIGGER note AFTER INSERT ON alice.account FOR EACH ROW EXECUTE FUNCTION alice.note();
    RESET ROLE; CREATE TABLE hers.parent (id int PRIMARY KEY); INSERT INTO hers.parent VALUES (1); ALTER TABLE hers.parent OWNER TO mallory;
    CREATE TABLE alice.child (parent int REFERENCES hers.parent); INSERT INTO alice.child VALUES (1);
    CREATE FUNCTION hers.write() RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO alice.account VALUES (1000);
        DELETE FROM hers.parent;
    EXCEPTION WHEN foreign_key_violation THEN INSERT INTO alice.account VALUES (1000);
    END $$;
    CREATE FUNCTION hers.pay(label text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM hers.write(); RETURN label; END $$"""


@pytest.fixture
def payment(hostile):
    hostile.execute(PAYMENT)
    yield hostile
    hostile.execute("RESET bullfrog.flaw; DROP SCHEMA alice CASCADE; DROP OWNED BY alice; DROP ROLE alice")


def paid(admin):
    """How many writes of a function have happened, and for how many of them a trigger has fired; and whether rows refer to nothing."""
    return admin.execute("""SELECT (SELECT count(*) FROM alice.account), (SELECT count(*) FROM alice.audit),
        EXISTS (SELECT FROM alice.child WHERE parent NOT IN (SELECT id FROM hers.parent))""").fetchone()


PAYING = "CREATE TABLE hers.paid AS SELECT id, hers.pay(label) AS label FROM hers.item; ALTER TABLE hers.paid ADD PRIMARY KEY (id)"


@pytest.mark.parametrize("moves", ["worker", "transaction"])
def test_triggers_and_foreign_keys_of_others_count_for_what_expressions_call(payment, moves):
    migrate(payment, PAYING, options=f", moves => '{moves}'")
    before, _, _ = paid(payment)
    payment.execute("UPDATE hers.paid SET label = 'x' WHERE id = 1")
    written, noted, is_orphan = paid(payment)
    assert (written > before, noted, is_orphan) == (True, written, False)
    payment.execute("SELECT bullfrog.finish('m')")
    written, noted, is_orphan = paid(payment)
    assert (noted, is_orphan) == (written, False)


def test_it_is_noticed_where_they_would_not(payment):
    migrate(payment, PAYING, options=", moves => 'transaction'")
    payment.execute("SET bullfrog.flaw = all_quiet; UPDATE hers.paid SET label = 'x' WHERE id = 1")
    written, noted, is_orphan = paid(payment)
    assert (noted < written, is_orphan) == (True, True)
    payment.execute("SELECT bullfrog.abort('m', discard_writes => true)")


def test_nor_does_abort_leave_them_out(payment):
    payment.execute("""CREATE FUNCTION hers.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO hers.done VALUES (''fired''); RETURN NULL; END';
        CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON hers.item FOR EACH ROW EXECUTE FUNCTION hers.nothing();
        ALTER TABLE hers.item ENABLE ALWAYS TRIGGER t; ALTER TABLE hers.item ADD extra text DEFAULT hers.pay('')""")
    migrate(payment, "CREATE TABLE hers.named AS SELECT id, label FROM hers.item; ALTER TABLE hers.named ADD PRIMARY KEY (id)")
    payment.execute("INSERT INTO hers.named VALUES (100, 'new'); UPDATE hers.named SET label = 'x' WHERE id = 1; DELETE FROM hers.named WHERE id = 2")
    before, _, _ = paid(payment)
    payment.execute("SELECT bullfrog.abort('m')")
    written, noted, is_orphan = paid(payment)
    assert (written > before, noted, is_orphan) == (True, written, False)
    assert payment.execute("SELECT attack FROM hers.done").fetchall() == []
    assert payment.execute("SELECT count(*) FROM hers.item WHERE id IN (2, 100) OR label = 'x'").fetchone() == (2,)
