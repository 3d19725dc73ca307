"""Tuples as granules, and moves inside of the transaction that needs them."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, answered, differing, migrate, moved, setting, wait_until

WRITE = "UPDATE customer_private SET name = name || '!' WHERE id = %s"
INSIDE = ", granularity => 'tuple', moves => 'transaction'"


@pytest.fixture
def tuples(customers):
    migrate(customers, SPLIT, "split", ", granularity => 'tuple'")
    return customers


@pytest.fixture
def inside(customers):
    customers.execute("CREATE TABLE expected AS SELECT id, name, ssn FROM customer")
    migrate(customers, SPLIT, "split", INSIDE)
    return customers


def check_all(connection):
    assert connection.execute("SELECT count(*), count(DISTINCT id) FROM customer_private").fetchone() == (CUSTOMERS, CUSTOMERS)
    assert connection.execute("SELECT count(*), count(DISTINCT id) FROM customer_public").fetchone() == (CUSTOMERS, CUSTOMERS)


def test_a_write_moves_its_tuple_and_no_neighbour(tuples):
    tuples.execute(WRITE, (500,))
    assert moved(tuples) == 1
    assert tuples.execute("SELECT count(*) FROM bullfrog.unmoved_1").fetchone() == (CUSTOMERS - 1,)
    check_all(tuples)


def test_a_range_of_tuples_moves_and_the_background_does_the_rest(tuples):
    assert tuples.execute("UPDATE customer_public SET town = 'x' WHERE id BETWEEN 100 AND 499").rowcount == 400
    assert moved(tuples) == 400
    tuples.execute("DELETE FROM customer_private WHERE id = 100")
    tuples.execute("SELECT bullfrog.finish('split')")
    assert tuples.execute("SELECT count(*), count(DISTINCT id) FROM customer_private").fetchone() == (CUSTOMERS - 1, CUSTOMERS - 1)
    assert tuples.execute("SELECT count(*), count(*) FILTER (WHERE town = 'x') FROM customer_public").fetchone() == (CUSTOMERS, 400)


def test_progress_counts_tuples_and_the_pages_that_the_background_has_done(tuples):
    tuples.execute(WRITE, (500,))
    progress = "SELECT granule, granules_moved, pages_moved FROM bullfrog.progress"
    assert tuples.execute(progress).fetchall() == [("tuple", 1, 0)]
    tuples.execute("SELECT bullfrog.sweep(id, '{0, 1}') FROM bullfrog.source")
    assert tuples.execute("SELECT granules_moved > 2, pages_moved FROM bullfrog.progress").fetchall() == [(True, 2)]


def test_a_place_of_no_row_is_refused_and_moves_nothing(tuples):
    tuples.execute("SELECT bullfrog.move(1, ARRAY(SELECT bullfrog.place(bullfrog_tid) FROM bullfrog.unmoved_1 LIMIT 5))")
    for place in (-1, 60000, 2 ** 40, 2 ** 63 - 1):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"at place {place} is no row"):
            tuples.execute("SELECT bullfrog.move(1, %s || ARRAY(SELECT granule FROM bullfrog.moved))", (place,))
    assert moved(tuples) == 5
    check_all(tuples)


def test_with_warn_a_tuple_that_violates_a_constraint_is_left_out_alone(customers):
    migrate(customers, "CREATE TABLE t AS SELECT id, nullif(id, 7) AS number FROM customer; ALTER TABLE t ALTER COLUMN number SET NOT NULL",
        options=", checks => 'warn', granularity => 'tuple'")
    customers.execute("SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source")
    assert customers.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS - 1,)
    assert customers.execute("SELECT content ->> 'id' FROM bullfrog.quarantined").fetchall() == [("7",)]


@pytest.mark.parametrize("options", [", granularity => 'row'", ", moves => 'session'", ", granularity => NULL",
    ", checks => 'warn', moves => 'transaction'"])
def test_what_nobody_knows_is_refused(customers, options):
    with pytest.raises((psycopg.errors.InvalidParameterValue, psycopg.errors.FeatureNotSupported, psycopg.errors.NullValueNotAllowed)):
        migrate(customers, SPLIT, "split", options)


def test_a_transaction_moves_by_itself_and_its_rollback_takes_the_move_back(inside):
    inside.execute("BEGIN")
    assert inside.execute(f"{WRITE} RETURNING name", (5,)).fetchall() == [("name 5!",)]
    assert moved(inside) == 1
    assert inside.execute("SELECT moved_by = pg_current_xact_id() FROM bullfrog.moved").fetchall() == [(True,)]
    inside.execute("ROLLBACK")
    assert moved(inside) == 0
    assert differing(inside, "customer_private", "expected") == 0


def test_a_savepoint_takes_back_what_was_moved_after_it(database, inside):
    inside.execute("BEGIN")
    inside.execute(WRITE, (1,))
    inside.execute("SAVEPOINT s")
    inside.execute(WRITE, (2,))
    inside.execute("ROLLBACK TO s")
    # Nobody has to wait for the tuple that was given back.
    assert database.connect().execute(f"{WRITE} RETURNING name", (2,)).fetchone() == ("name 2!",)
    inside.execute("COMMIT")
    assert moved(inside) == 2
    check_all(inside)


def test_who_needs_the_same_tuple_waits_for_the_end_of_the_transaction(database, inside):
    waiting = database.connect()
    for end, name in (("ROLLBACK", "name 5!"), ("COMMIT", "name 5!!!")):
        inside.execute("BEGIN")
        inside.execute(WRITE, (5,))
        waiting.pgconn.send_query((WRITE % 5).encode())
        watcher = database.connect()
        wait_until(lambda: watcher.execute("SELECT FROM pg_locks WHERE NOT granted AND pid = %s",
            (waiting.info.backend_pid,)).rowcount == 1, "the other session waits")
        # Its neighbours are free.
        assert watcher.execute("SELECT name FROM customer_private WHERE id = 6 FOR UPDATE").rowcount == 1
        inside.execute(end)
        answered(waiting)
        assert inside.execute("SELECT name FROM customer_private WHERE id = 5").fetchone() == (name,)
    check_all(inside)


def test_transactions_that_need_each_others_tuples_are_told_of_the_deadlock(database, inside):
    other = database.connect()
    inside.execute("BEGIN")
    other.execute("BEGIN")
    inside.execute(WRITE, (3,))
    other.execute(WRITE, (6,))
    other.pgconn.send_query((WRITE % 3).encode())
    try:
        inside.execute(WRITE, (6,))
        failed = other.pgconn.get_result().error_message.decode()
    except psycopg.errors.DeadlockDetected as error:
        failed = str(error)
    assert "deadlock" in failed


def test_repeatable_read_needs_no_other_try_for_what_it_moves_itself(database, inside):
    inside.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    inside.execute("SELECT count(*) FROM customer_public")
    database.connect().execute(WRITE, (7,))
    assert inside.execute(WRITE, (8,)).rowcount == 1
    with pytest.raises(psycopg.errors.SerializationFailure):
        inside.execute(WRITE, (7,))
    inside.execute("ROLLBACK")
    check_all(inside)


def test_keys_of_tuples_that_were_not_moved_are_taken_and_upserts_find_them(inside):
    with pytest.raises(psycopg.errors.UniqueViolation):
        inside.execute("INSERT INTO customer_private VALUES (321, 'twice')")
    upsert = """
        INSERT INTO customer_private VALUES (%s, 'new')
        ON CONFLICT (id) DO UPDATE SET name = customer_private.name || '+' RETURNING name"""
    assert inside.execute(upsert, (44,)).fetchone() == ("name 44+",)
    inside.execute("BEGIN")
    inside.execute(WRITE, (45,))
    assert inside.execute(upsert, (45,)).fetchone() == ("name 45!+",)
    inside.execute("COMMIT")
    check_all(inside)


def test_triggers_and_plans_of_the_session_are_left_alone(inside):
    inside.execute("PREPARE q AS SELECT count(*) FROM customer_public WHERE id = $1")
    inside.execute("SET plan_cache_mode = force_generic_plan; EXECUTE q (1)")
    inside.execute(WRITE, (9,))
    inside.execute("EXECUTE q (1)")
    assert inside.execute("SELECT generic_plans FROM pg_prepared_statements WHERE name = 'q'").fetchone() == (2,)
    assert inside.execute("SHOW session_replication_role").fetchone() == ("origin",)


def test_an_owners_function_has_the_owners_rights_in_another_users_transaction(customers):
    customers.execute("CREATE ROLE keeper; CREATE ROLE clerk; ALTER TABLE customer OWNER TO keeper; GRANT ALL ON SCHEMA public TO keeper;"
        "CREATE FUNCTION who(int) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT current_user::text'")
    migrate(customers, "CREATE TABLE t AS SELECT id, who(id) AS who, nick FROM customer; ALTER TABLE t ADD PRIMARY KEY (id);"
        " GRANT ALL ON t TO clerk", options=INSIDE)
    customers.execute("SET ROLE clerk")
    assert customers.execute("UPDATE t SET nick = 'x' WHERE id = 3 RETURNING who, current_user").fetchall() == [("keeper", "clerk")]
    customers.execute("RESET ROLE; SELECT bullfrog.abort('m', discard_writes => true); ALTER TABLE customer OWNER TO postgres;"
        "REVOKE ALL ON SCHEMA public FROM keeper; DROP ROLE keeper; DROP ROLE clerk")


def test_a_serializable_transaction_moves_its_rows_itself_and_needs_no_other_try(inside):
    inside.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert inside.execute("SELECT count(*) FROM customer_private").fetchone() == (CUSTOMERS,)
    assert inside.execute(WRITE, (1,)).rowcount == 1
    assert inside.execute("DELETE FROM customer_public WHERE id = 2").rowcount == 1
    assert moved(inside) == 2
    inside.execute("ROLLBACK")
    assert moved(inside) == 0
    check_all(inside)


def test_a_prepared_transaction_keeps_what_it_moved(database, inside):
    inside.execute("BEGIN")
    inside.execute(WRITE, (5,))
    inside.execute("PREPARE TRANSACTION 'p'")
    waiting = database.connect()
    waiting.pgconn.send_query((WRITE % 5).encode())
    wait_until(lambda: inside.execute("SELECT FROM pg_locks WHERE NOT granted AND pid = %s", (waiting.info.backend_pid,)).rowcount == 1,
        "the other session waits")
    inside.execute("COMMIT PREPARED 'p'")
    answered(waiting)
    assert inside.execute("SELECT name FROM customer_private WHERE id = 5").fetchone() == ("name 5!!",)
    inside.execute("SELECT bullfrog.finish('split')")
    check_all(inside)


def test_a_key_is_looked_for_again_after_a_savepoint_was_rolled_back(customers):
    """What moved inside of it is not moved any more, though the last row with that key found it moved."""
    migrate(customers, SPLIT, "split", INSIDE)
    customers.execute("CREATE FUNCTION undone(key int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN"
        " UPDATE customer_private SET name = 'x' WHERE id = key;"
        " INSERT INTO customer_private (id, name) VALUES (key, 'taken') ON CONFLICT DO NOTHING;"
        " RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN"
        " INSERT INTO customer_private (id, name) VALUES (key, 'taken') ON CONFLICT DO NOTHING;"
        " RETURN (SELECT count(*) FROM customer_private WHERE id = key); END $$")
    assert customers.execute("SELECT undone(500)").fetchone() == (1,)
    assert customers.execute("SELECT name FROM customer_private WHERE id = 500").fetchall() == [("name 500",)]
    customers.execute("BEGIN")
    for _ in range(2):
        customers.execute("SAVEPOINT s")
        customers.execute("SELECT FROM customer_private WHERE id = 7 FOR UPDATE")
        assert customers.execute("INSERT INTO customer_private VALUES (7, 'taken') ON CONFLICT DO NOTHING").rowcount == 0
        customers.execute("ROLLBACK TO s")
        assert customers.execute("SELECT name FROM customer_private WHERE id = 7").fetchall() == [("name 7",)]
    customers.execute("COMMIT")


def test_each_of_several_keys_is_looked_for(tuples):
    tuples.execute("UPDATE customer_private SET name = 'x' WHERE id = 500")
    for statement in ("UPDATE customer_private SET id = 501 WHERE id = 500", "INSERT INTO customer_private VALUES (2000, 'a'), (2000, 'b')",
            "INSERT INTO customer_private VALUES (2000, 'a'), (502, 'b')"):
        with pytest.raises(psycopg.errors.UniqueViolation):
            tuples.execute(statement)
    # An update that names the key and leaves it as it is finds nothing to move.
    before = moved(tuples)
    assert tuples.execute("UPDATE customer_private SET id = 500, name = 'y' WHERE id = 500").rowcount == 1
    assert moved(tuples) == before


ALONE = "CREATE TABLE person AS SELECT id, nick FROM customer"
JOINED = "CREATE TABLE pair AS SELECT c.id, o.price FROM customer c JOIN offer o ON o.id = c.id"
GROUPED = "CREATE TABLE town AS SELECT city, count(*) AS n FROM customer GROUP BY city"


@pytest.mark.parametrize("definition, options, expected", [
    (ALONE, "", {("tuple", True)}),
    (GROUPED, "", {("group", False)}),
    (f"{ALONE}; {GROUPED}", "", {("tuple", True), ("group", False)}),
    (JOINED, "", {("page", False)}),
    (f"{ALONE}; {JOINED}", "driving => '{customer}'", {("page", False)}),
    (f"{ALONE}; {JOINED}", "driving => '{offer}'", {("tuple", True), ("page", False)}),
    (ALONE, "checks => 'warn'", {("page", False)}),
    (ALONE, "granularity => 'page'", {("page", False)}),
    (ALONE, "granularity => 'tuple'", {("tuple", True)}),
    (ALONE, "moves => 'worker'", {("page", False)}),
    (ALONE, "moves => 'transaction'", {("tuple", True)}),
    (JOINED, "moves => 'transaction'", {("page", True)}),
    (JOINED, "granularity => 'tuple'", {("tuple", False)}),
])
def test_how_rows_move_is_chosen_for_each_old_table(customers, definition, options, expected):
    customers.execute("CREATE TABLE offer (id int PRIMARY KEY, price int)")
    customers.execute(f"SELECT bullfrog.migrate('m', %s{options and ', ' + options})", (definition,), prepare=False)
    assert set(customers.execute("SELECT granule, inside FROM bullfrog.source").fetchall()) == expected


def test_a_statement_about_many_rows_has_others_move_them(inside):
    inside.execute("BEGIN")
    inside.execute("UPDATE customer_private SET name = 'x'")
    inside.execute("ROLLBACK")
    assert moved(inside) == 0
    inside.execute("SELECT bullfrog.abort('split', discard_writes => true)")
    inside.execute("INSERT INTO customer SELECT i, 'name ' || i, 's' || i, 'nick ' || i, 'city' FROM generate_series(1001, 1500) i")
    migrate(inside, SPLIT, "again", INSIDE)
    inside.execute("BEGIN")
    assert inside.execute("UPDATE customer_private SET name = 'x'").rowcount == 1500
    inside.execute("ROLLBACK")
    assert moved(inside) == 1500
    assert inside.execute("SELECT count(*) FROM customer_private WHERE name = 'x'").fetchone() == (0,)


def test_the_background_does_not_wait_for_a_client_that_has_moved_a_row(server, database, inside):
    client = database.connect()
    client.execute("BEGIN")
    client.execute(WRITE, (1,))
    with setting(server, "bullfrog.start_delay", "0"):
        inside.execute("SELECT bullfrog.start_mover()")
        wait_until(lambda: moved(inside) == CUSTOMERS - 1, "all other rows are moved")
        client.execute("COMMIT")
        wait_until(lambda: inside.execute("SELECT sum(pages_left) FROM bullfrog.progress").fetchone() == (0,), "the background has come back")
    assert moved(inside) == CUSTOMERS
    check_all(inside)
