"""What the server's log, errors and pg_stat_activity tell of a migration."""

import psycopg
import pytest

from conftest import LIBRARY, SETTINGS, SPLIT, migrate, setting
from server import Server, wait_until

ONE = "CREATE TABLE t AS SELECT id, name, ssn FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)"


@pytest.fixture
def told(server):
    """Gives what the log has of bullfrog since the test began."""
    start = len(server.log.read_text())

    def read():
        lines = server.log.read_text()[start:].splitlines()
        return [line.partition("LOG:  ")[2] for line in lines if "LOG:  bullfrog: " in line]

    return read


SWITCHED = "switched from public.customer to public.customer_private, public.customer_public"


def test_what_is_done_to_a_migration_is_in_the_log_with_its_name(customers, told):
    migrate(customers, SPLIT, name="my split")
    customers.execute("SELECT bullfrog.pause('my split')")
    customers.execute("SELECT bullfrog.resume('my split')")
    customers.execute("SELECT bullfrog.finish('my split', keep_old => true)")
    ends = ["paused", "resumed", "finished, old tables were kept"]
    assert told() == [f'bullfrog: migration "my split": {what}' for what in [SWITCHED, *ends]]


def test_what_was_not_committed_is_not_in_the_log(customers, told):
    customers.execute("BEGIN")
    migrate(customers, SPLIT)
    customers.execute("ROLLBACK; BEGIN; SAVEPOINT a")
    migrate(customers, SPLIT)
    customers.execute("ROLLBACK TO a; SAVEPOINT b; SAVEPOINT c")
    migrate(customers, SPLIT)
    customers.execute("RELEASE c; ROLLBACK TO b; SAVEPOINT d")
    migrate(customers, SPLIT)
    assert told() == []
    customers.execute("RELEASE d; SAVEPOINT e; ROLLBACK TO e; COMMIT")
    assert told() == [f"bullfrog: migration m: {SWITCHED}"]
    customers.execute("SELECT bullfrog.abort('m', discard_writes => true)")
    assert told()[1:] == ["bullfrog: migration m: aborted, what was written since the switch was given up"]


def test_what_a_mover_cannot_do_is_in_the_log_with_the_table(server, customers, told):
    customers.execute("UPDATE customer SET ssn = 'none' WHERE id = 1000")
    migrate(customers, f"{ONE}; ALTER TABLE t ADD CHECK (substr(ssn, 2)::int > 0)", options=", checks => 'warn'")
    with setting(server, "bullfrog.start_delay", "0"):
        customers.execute("SELECT bullfrog.start_mover()")
        wait_until(lambda: any("cannot be moved" in line for line in told()), "a page cannot be moved")
    line = next(line for line in told() if "cannot be moved" in line)
    page = line.split("page ")[1].split(" ")[0]
    assert line == f'bullfrog: migration m: page {page} of public.customer cannot be moved: invalid input syntax for type integer: "one"'
    customers.execute("SELECT bullfrog.abort('m')")


def test_a_row_that_moves_into_quarantine_is_in_the_log(customers, told):
    migrate(customers, f"{ONE}; ALTER TABLE t ADD CHECK (id <> 1)", options=", checks => 'warn'")
    customers.execute("SELECT bullfrog.finish('m')")
    assert 'bullfrog: migration m: the row at (0,1) of public.customer is in quarantine: new row for relation "t" violates check constraint ' \
        '"t_id_check"' in told()


@pytest.mark.parametrize("call", ["finish('no such')", "abort('no such')", "pause('no such')"])
def test_errors_have_the_migration_as_their_context(server, customers, call):
    with pytest.raises(psycopg.errors.UndefinedObject) as error:
        customers.execute(f"SELECT bullfrog.{call}")
    assert error.value.diag.context.endswith("migration no such")


def test_the_context_of_an_error_of_the_library_is_told_once(database, split):
    """It passes the library on its way to the function that was called."""
    writer = database.connect()
    writer.execute("BEGIN; LOCK TABLE customer_private")
    split.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable) as error:
        split.execute("SELECT bullfrog.finish('split')")
    writer.execute("ROLLBACK")
    context = error.value.diag.context.splitlines()
    assert (len(context), context[-1]) == (len(set(context)), "migration split")


@pytest.mark.parametrize(("definition", "at"), [
    ("CREATE TABLE t AS SELECT id FROM customer;\nALTER TABEL t ADD PRIMARY KEY (id)", "TABEL"),
    ("CREATE TABLE t AS SELECT id,\n nane FROM customer", "nane"),
    ("CREATE TABLE t AS SELECT id FROM customer; CREATE TABLE s AS SELECT id FROM custommer", "custommer"),
])
@pytest.mark.parametrize("call", ["plan", "migrate"])
def test_errors_of_a_definition_tell_where_in_it(customers, definition, at, call):
    with pytest.raises(psycopg.ProgrammingError) as error:
        customers.execute(f"SELECT bullfrog.{call}('m', %s)", (definition,), prepare=False)
    diag = error.value.diag
    assert (diag.internal_query, diag.statement_position) == (definition, None)
    assert definition[int(diag.internal_position) - 1:].startswith(at)


def test_a_statement_of_a_definition_that_fails_is_told(customers):
    with pytest.raises(psycopg.errors.UndefinedColumn) as error:
        migrate(customers, "CREATE TABLE t AS SELECT id FROM customer; ALTER TABLE t ADD CHECK (nane <> '')")
    context = error.value.diag.context
    assert (context.startswith("SQL statement \"ALTER TABLE t ADD CHECK (nane <> '')\""), context.endswith("migration m")) == (True, True)


FAILING = [
    "CREATE TABLE v (x no_such_type)",
    "CREATE VIEW v AS SELECT no_such FROM u",
    "ALTER TABLE u ADD CONSTRAINT small CHECK (x < 1)",
    "ALTER TABLE u ALTER x TYPE int USING x / 0",
    "CREATE UNIQUE INDEX ON u ((1))",
    "INSERT INTO u VALUES (1, 1)",
    "INSERT INTO u VALUES (3, 0)",
    "SELECT no_such FROM u",
    "SELECT 1 / 0",
    "SELECT quotient(1)",
    "SELECT 1 WHERE quotient(2) > (SELECT 1)",
    "COPY u FROM '/no/such/file'",
    "DO $$ BEGIN PERFORM 1 / 0; END $$",
    "DO $$ BEGIN PERFORM quotient(1); END $$",
    "DO $$ BEGIN EXECUTE 'CREATE TABLE v (x no_such_type)'; END $$",
    "DO $$ BEGIN EXECUTE 'DO $a$ BEGIN EXECUTE ''ALTER TABLE u ADD CONSTRAINT small CHECK (x < 1)''; END $a$'; END $$",
    "DO $$ BEGIN BEGIN PERFORM 1 / 0; EXCEPTION WHEN OTHERS THEN NULL; END; PERFORM 1 / 0; END $$",
    "DO $$ BEGIN BEGIN CREATE TABLE v (x no_such_type); EXCEPTION WHEN OTHERS THEN RAISE; END; END $$",
    "CALL failing()",
]
TOLD = ["sqlstate", "message_primary", "message_detail", "message_hint", "statement_position", "internal_position", "internal_query", "context",
    "schema_name", "table_name", "column_name", "datatype_name", "constraint_name"]


def failures(connection):
    connection.execute("CREATE TABLE u (id int PRIMARY KEY, x int CHECK (x > 0)); INSERT INTO u VALUES (1, 1), (2, 2)")
    connection.execute("""CREATE FUNCTION quotient(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN x / 0; END';
        CREATE PROCEDURE failing() LANGUAGE plpgsql AS $$ BEGIN ALTER TABLE u ADD CONSTRAINT small CHECK (x < 1); END $$""")
    for statement in FAILING:
        with pytest.raises(psycopg.Error) as error:
            connection.execute(statement)
        yield {"statement": statement, **{field: getattr(error.value.diag, field) for field in TOLD}}


def test_errors_of_a_server_with_the_library_are_those_without(database):
    plain = Server(LIBRARY, {name: value for name, value in SETTINGS.items() if not name.startswith("bullfrog") and name != "shared_preload_libraries"}, in_memory=True)
    try:
        with plain.connect() as connection:
            for without, with_library in zip(failures(connection), failures(database.connect()), strict=True):
                assert with_library == without
    finally:
        plain.remove()


def test_movers_wait_for_what_pg_stat_activity_names(split):
    split.execute("SELECT bullfrog.start_mover()")
    waiting = "SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND datname = current_database()"
    name = "Extension" if split.info.server_version < 170000 else "BullfrogRest"
    wait_until(lambda: split.execute(waiting).fetchall() == [("Extension", name)], f"a mover waits for {name}")
