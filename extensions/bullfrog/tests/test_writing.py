"""Writes find the rows they are about, whether these were moved or not, and move no others."""

import threading

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, migrate, moved, setting


def everything(connection):
    return connection.execute("SELECT id, name, ssn FROM customer_private ORDER BY id").fetchall()


def test_an_update_moves_the_page_of_its_row_and_no_other(split):
    assert split.execute("UPDATE customer_private SET name = 'x' WHERE id = 500 RETURNING id, ssn").fetchall() == [(500, "s500")]
    assert moved(split) == 1


def test_a_row_that_was_deleted_stays_deleted(split):
    split.execute("DELETE FROM customer_private WHERE id = 500")
    split.execute("SELECT bullfrog.finish('split')")
    assert split.execute("SELECT count(*) FROM customer_private").fetchone() == (CUSTOMERS - 1,)
    assert split.execute("SELECT count(*) FROM customer_private WHERE id = 500").fetchone() == (0,)
    assert split.execute("SELECT count(*) FROM customer_public").fetchone() == (CUSTOMERS,)


def test_a_prepared_update_finds_cold_rows_by_its_kept_plan(split):
    split.prepare_threshold = 0
    split.execute("SET plan_cache_mode = force_generic_plan")
    for id in (1, 500, 1000, 1):
        assert split.execute("UPDATE customer_private SET name = name || '!' WHERE id = %s RETURNING name", (id,)).rowcount == 1
    assert split.execute("SELECT name FROM customer_private WHERE id = 1").fetchone() == ("name 1!!",)
    assert moved(split) == 3


def test_select_for_update_locks_cold_rows(database, split):
    split.execute("BEGIN")
    assert split.execute("SELECT name FROM customer_private WHERE id = 9 FOR UPDATE").fetchone() == ("name 9",)
    other = database.connect()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        other.execute("SELECT name FROM customer_private WHERE id = 9 FOR UPDATE NOWAIT")
    assert other.execute("SELECT name FROM customer_private WHERE id = 10 FOR UPDATE NOWAIT").fetchone() == ("name 10",)
    split.execute("ROLLBACK")


def test_a_condition_over_other_tables_misses_no_row(split):
    split.execute("CREATE TABLE chosen (id int)")
    split.execute("INSERT INTO chosen VALUES (3), (777)")
    assert split.execute("UPDATE customer_private p SET name = 'x' FROM chosen c WHERE c.id = p.id").rowcount == 2
    assert split.execute("DELETE FROM customer_public WHERE id IN (SELECT id FROM chosen)").rowcount == 2


def test_a_volatile_condition_is_evaluated_by_the_statement_only(split):
    split.execute("CREATE SEQUENCE calls")
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 5 AND nextval('calls') > 0")
    assert split.execute("SELECT last_value FROM calls").fetchone() == (1,)


def test_a_rollback_keeps_the_move_and_undoes_the_write(split):
    split.execute("BEGIN")
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 5")
    split.execute("ROLLBACK")
    assert moved(split) == 1
    assert split.execute("SELECT name FROM customer_private WHERE id = 5").fetchone() == ("name 5",)


def test_savepoints_and_loops_in_functions(split):
    split.execute("""
        DO $$ BEGIN
            FOR i IN 1..10 LOOP
                BEGIN
                    UPDATE customer_private SET name = 'kept' WHERE id = i * 100;
                    IF i % 2 = 0 THEN RAISE EXCEPTION 'undo'; END IF;
                EXCEPTION WHEN raise_exception THEN NULL;
                END;
            END LOOP;
        END $$""")
    assert split.execute("SELECT array_agg(id ORDER BY id) FROM customer_private WHERE name = 'kept'").fetchone() == ([100, 300, 500, 700,
        900],)


def test_a_key_of_a_row_that_was_not_moved_is_taken(split):
    with pytest.raises(psycopg.errors.UniqueViolation):
        split.execute("INSERT INTO customer_private VALUES (321, 'twice')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        split.execute("UPDATE customer_private SET id = 322 WHERE id = 1")
    with pytest.raises(psycopg.errors.UniqueViolation):
        with split.cursor().copy("COPY customer_private FROM STDIN") as copy:
            copy.write_row((323, "twice", None))
    assert split.execute("SELECT count(*) FROM customer_private").fetchone() == (CUSTOMERS,)


def test_a_key_of_a_row_that_was_not_moved_is_taken_also_for_a_replica(split):
    split.execute("SET session_replication_role = replica")
    with pytest.raises(psycopg.errors.UniqueViolation):
        split.execute("INSERT INTO customer_private VALUES (500, 'twice')")
    split.execute("INSERT INTO customer_private VALUES (-1, 'new')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        split.execute("UPDATE customer_private SET id = 700 WHERE id = -1")
    split.execute("SELECT bullfrog.finish('split')")
    assert split.execute("SELECT count(*), count(DISTINCT id) FROM customer_private").fetchone() == (CUSTOMERS + 1, CUSTOMERS + 1)


def test_insert_on_conflict_finds_rows_that_were_not_moved(split):
    upsert = """
        INSERT INTO customer_private VALUES (%s, 'new')
        ON CONFLICT (id) DO UPDATE SET name = customer_private.name || '+' RETURNING name"""
    assert split.execute(upsert, (44,)).fetchone() == ("name 44+",)
    assert split.execute(upsert, (4444,)).fetchone() == ("new",)
    assert split.execute("INSERT INTO customer_private VALUES (45, 'new') ON CONFLICT DO NOTHING").rowcount == 0


def test_write_skew_over_a_move_does_not_commit(database, split):
    """Two serializable transactions read two rows and write one each; the rows are cold when they are read. The move in
    between must not hide the conflict."""
    first, second = database.connect(), database.connect()
    read = "SELECT count(*) FROM customer_private WHERE id IN (10, 1000) AND name <> 'gone'"
    for session in (first, second):
        session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        assert session.execute(read).fetchone() == (2,)
    failures = 0
    for session, id in ((first, 10), (second, 1000)):
        try:
            session.execute("UPDATE customer_private SET name = 'gone' WHERE id = %s", (id,))
            session.execute("COMMIT")
        except psycopg.errors.SerializationFailure:
            failures += 1
            session.execute("ROLLBACK")
    assert failures >= 1
    assert split.execute(read).fetchone()[0] >= 1


# A table, the column that is written, and the one by which rows are found. An update that is not HOT also writes the indexes: it
# would meet a reader by itself who looked into the same page of one.
UPDATES = pytest.mark.parametrize("table, column, key", [("customer_private", "name", "id"), ("customer_public", "nick", "nick")],
    ids=["hot", "not_hot"])


def skew(database, table, column, key):
    """A reads x while it is cold; C has it moved; B reads y, writes x and commits; A writes y. Each writes because it saw that
    the other row was not gone, so one of them must be left. Gives how many are gone."""
    a, b, c = (database.connect() for _ in range(3))
    x, y = 990, 10
    read = f"SELECT {column} <> 'gone' FROM {table} WHERE {key} = %s"
    write = f"UPDATE {table} SET {column} = 'gone' WHERE id = %s"
    c.execute(f"SELECT FROM {table} WHERE id < 900 FOR UPDATE")
    before = moved(c)
    for session in (a, b):
        # A scan of whole tables would find the conflict by itself.
        session.execute("SET enable_seqscan = off")
    a.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert a.execute(read, (x if key == "id" else f"nick {x}",)).fetchone() == (True,)
    c.execute(f"SELECT FROM {table} WHERE id = %s FOR UPDATE", (x,))
    assert moved(c) == before + 1
    b.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert b.execute(read, (y if key == "id" else f"nick {y}",)).fetchone() == (True,)
    for session, id in ((b, x), (a, y)):
        try:
            session.execute(write, (id,))
            session.execute("COMMIT")
        except psycopg.errors.SerializationFailure:
            session.execute("ROLLBACK")
    return c.execute(f"SELECT count(*) FROM {table} WHERE {column} = 'gone'").fetchone()[0]


@UPDATES
@pytest.mark.parametrize("options", ["", ", moves => 'transaction'", ", moves => 'transaction', granularity => 'tuple'"])
def test_a_third_session_that_has_a_row_moved_hides_no_conflict(database, customers, options, table, column, key):
    migrate(customers, SPLIT, "split", options)
    assert skew(database, table, column, key) == 1


@UPDATES
def test_a_move_inside_of_a_transaction_that_hides_conflicts_is_noticed(server, database, customers, table, column, key):
    with setting(server, "bullfrog.flaw", "reads_not_noted"):
        migrate(customers, SPLIT, "split", ", moves => 'transaction', granularity => 'tuple'")
        assert skew(database, table, column, key) == 2


@UPDATES
def test_a_mover_that_is_not_serializable_is_noticed(server, database, customers, table, column, key):
    with setting(server, "bullfrog.flaw", "movers_read_committed"):
        migrate(customers, SPLIT, "split")
        assert skew(database, table, column, key) == 2


def test_sessions_that_move_each_others_rows_do_not_block_each_other(database, split):
    first, second = database.connect(), database.connect()
    first.execute("BEGIN")
    second.execute("BEGIN")
    first.execute("UPDATE customer_private SET name = 'a' WHERE id = 1")
    second.execute("UPDATE customer_private SET name = 'b' WHERE id = 1000")
    # Neighbours of the other's row: on pages that the other moved, in rows that it did not lock.
    first.execute("UPDATE customer_private SET name = 'a' WHERE id = 999")
    second.execute("UPDATE customer_private SET name = 'b' WHERE id = 2")
    first.execute("COMMIT")
    second.execute("COMMIT")
    assert split.execute("SELECT name, count(*) FROM customer_private WHERE name IN ('a', 'b') GROUP BY 1 ORDER BY 1").fetchall() == [("a",
        2), ("b", 2)]


def test_a_session_that_blocks_the_mover_and_waits_for_it_is_told_of_the_deadlock(split):
    split.execute("BEGIN")
    split.execute("LOCK TABLE customer_private IN SHARE MODE")
    with pytest.raises(psycopg.errors.DeadlockDetected):
        split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    split.execute("ROLLBACK")
    assert split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1").rowcount == 1


def test_the_transaction_that_switches_cannot_write_cold_rows_yet(database, customers):
    customers.execute("BEGIN")
    customers.execute("SELECT bullfrog.migrate('split', %s, granularity => 'page', moves => 'worker')", (SPLIT,), prepare=False)
    assert customers.execute("SELECT count(*) FROM customer_private").fetchone() == (CUSTOMERS,)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="not committed yet"):
        customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    customers.execute("ROLLBACK")
    assert customers.execute("SELECT count(*) FROM customer").fetchone() == (CUSTOMERS,)


def test_identities_go_on_behind_the_rows_that_were_not_moved(customers):
    migrate(customers, """
        CREATE TABLE person AS SELECT id, name FROM customer;
        CREATE TABLE place AS SELECT id, city FROM customer WHERE id <= 10;
        ALTER TABLE person ADD PRIMARY KEY (id); ALTER TABLE place ADD PRIMARY KEY (id);
        ALTER TABLE person ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY;
        ALTER TABLE place ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY""")
    assert customers.execute("INSERT INTO person (name) VALUES ('new') RETURNING id").fetchone() == (CUSTOMERS + 1,)
    assert customers.execute("INSERT INTO place (city) VALUES ('new') RETURNING id").fetchone() == (11,)
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT count(*), max(id) FROM person").fetchone() == (CUSTOMERS + 1, CUSTOMERS + 1)
    assert customers.execute("INSERT INTO person (name) VALUES ('newer') RETURNING id").fetchone() == (CUSTOMERS + 2,)


def test_a_sequence_of_an_old_table_that_a_new_one_goes_on_with_is_kept(customers):
    customers.execute("CREATE TABLE thing (id serial PRIMARY KEY, name text); INSERT INTO thing (name) SELECT 'thing'"
        " FROM generate_series(1, 5)")
    migrate(customers, """
        CREATE TABLE stuff AS SELECT id, name FROM thing; ALTER TABLE stuff ADD PRIMARY KEY (id);
        ALTER TABLE stuff ALTER COLUMN id SET DEFAULT nextval('thing_id_seq')""")
    assert customers.execute("INSERT INTO stuff (name) VALUES ('new') RETURNING id").fetchone() == (6,)
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("INSERT INTO stuff (name) VALUES ('newer') RETURNING id").fetchone() == (7,)


def test_a_read_only_transaction_moves_nothing(split):
    split.execute("BEGIN READ ONLY")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        split.execute("UPDATE customer_private SET name = 'x' WHERE id = 5")
    split.execute("ROLLBACK")
    assert moved(split) == 0


COUNTS = "SELECT count(*), count(DISTINCT id) FROM customer_private"
UPSERT = "INSERT INTO customer_private VALUES (500, 'x', 'y') ON CONFLICT (id) DO UPDATE SET name = 'upsert'"


def test_statements_of_one_rule_see_what_moved_before_them(split):
    """They have one snapshot in common, which is older than the move."""
    split.execute("CREATE TABLE door (id int); CREATE TABLE seen (rows int, ids int)")
    split.execute(f"CREATE RULE enter AS ON INSERT TO door DO INSTEAD ({UPSERT}; INSERT INTO seen {COUNTS})")
    split.execute("INSERT INTO door VALUES (1)")
    assert split.execute("SELECT * FROM seen").fetchall() == [(CUSTOMERS, CUSTOMERS)]


def test_statements_of_one_function_see_what_moved_before_them(split):
    split.execute(f"CREATE FUNCTION enter() RETURNS TABLE (rows bigint, ids bigint) LANGUAGE sql AS $$ {UPSERT}; {COUNTS} $$")
    assert split.execute("SELECT * FROM enter()").fetchall() == [(CUSTOMERS, CUSTOMERS)]
    split.execute("CREATE FUNCTION stable_counts() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM customer_private'")
    split.execute("INSERT INTO customer_private SELECT 100 * n, 'x', stable_counts()::text FROM generate_series(6, 9) n"
        " ON CONFLICT (id) DO UPDATE SET ssn = excluded.ssn || ' ' || stable_counts()")  # fmt: skip
    assert split.execute("SELECT DISTINCT ssn FROM customer_private WHERE id IN (600, 700, 800, 900)").fetchall() == [
        (f"{CUSTOMERS} {CUSTOMERS}",)
    ]


def test_merge_is_refused(split):
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="MERGE"):
        split.execute("MERGE INTO customer_private p USING (VALUES (1)) v (id) ON p.id = v.id WHEN MATCHED THEN DELETE")


def test_where_current_of_is_refused(split):
    split.execute("BEGIN")
    split.execute("DECLARE c CURSOR FOR SELECT * FROM customer_private")
    split.execute("FETCH c")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="CURRENT OF"):
        split.execute("DELETE FROM customer_private WHERE CURRENT OF c")
    split.execute("ROLLBACK")


def test_many_clients_end_with_what_one_after_the_other_would_have(database, split):
    """Clients that each own some of the rows add to them while the whole table moves."""
    def client(number):
        connection = database.connect()
        for id in range(number, CUSTOMERS, 40):
            connection.execute("UPDATE customer_private SET name = name || '.' WHERE id = %s", (id,))
            connection.execute("UPDATE customer_public SET nick = nick || '.' WHERE id = %s", (id,))

    expected = [(id, name + "." if id % 40 in (1, 2, 3, 4) else name, ssn) for id, name, ssn in everything(split)]
    clients = [threading.Thread(target=client, args=(number,)) for number in (1, 2, 3, 4)]
    for thread in clients:
        thread.start()
    split.execute("SELECT bullfrog.sweep(s.id, ARRAY(SELECT generate_series(0, s.pages - 1))) FROM bullfrog.source s")
    for thread in clients:
        thread.join()
    assert everything(split) == expected
    split.execute("SELECT bullfrog.finish('split')")
    assert everything(split) == expected
