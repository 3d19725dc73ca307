"""Rows whose columns are the old ones as they are, which move without a statement."""

import psycopg
import pytest

from conftest import answered, differing, migrate, wait_until

AS_IT_IS_BEST = ", granularity => 'auto', moves => 'auto'"
QUERIES = {"a": "SELECT id, b, c, d, e, late FROM t", "b": "SELECT later, id, f, g, made FROM t", "some": "SELECT id, c FROM t WHERE b IS NOT NULL"}
ALL = [f"CREATE TABLE n_{name} AS {query}; ALTER TABLE n_{name} ADD PRIMARY KEY (id);" for name, query in QUERIES.items()]
# All of it is copied as it is, so marks are written without a statement, too.
PLAIN, ALL = "".join(ALL[:2]), "".join(ALL)


@pytest.fixture
def kinds(database):
    """Rows of values of all sizes and none, in a table whose columns came and went, beside copies."""
    connection = database.connect()
    connection.execute("""
        CREATE DOMAIN word AS text CHECK (value <> 'forbidden');
        CREATE TABLE t (gone int, id int PRIMARY KEY, b text, c numeric(20, 4), d word, e int[], f jsonb, g varchar(500), made int GENERATED ALWAYS AS (id + 1) STORED);
        ALTER TABLE t DROP COLUMN gone;
        INSERT INTO t SELECT i, CASE WHEN i % 3 > 0 THEN repeat(md5(i::text), i % 100 * 3) END, i / 7.0, 'w' || i, ARRAY[i, NULL], jsonb_build_object('i', i),
            CASE WHEN i % 5 > 0 THEN repeat('x', i % 400) END FROM generate_series(1, 300) i;
        INSERT INTO t SELECT i, (SELECT string_agg(md5(i::text || j), '') FROM generate_series(1, 3000) j) FROM generate_series(301, 304) i;
        ALTER TABLE t ADD late text DEFAULT 'late', ADD later int DEFAULT 5;
        UPDATE t SET late = NULL WHERE id % 7 = 0""")
    for name, query in QUERIES.items():
        connection.execute(f"CREATE TABLE expected_{name} AS {query}")
    return connection


def check(connection, names=QUERIES):
    for name in names:
        assert differing(connection, f"n_{name}", f"expected_{name}") == 0


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("names", ["a b", "a b some"])
def test_rows_are_as_they_were(kinds, level, names):
    names = names.split()
    migrate(kinds, PLAIN if len(names) == 2 else ALL, options=AS_IT_IS_BEST)
    kinds.execute(f"BEGIN ISOLATION LEVEL {level}")
    for key in range(1, 305, 3):
        kinds.execute("UPDATE n_a SET b = b WHERE id = %s", (key,))
        # Within the statement, and after it, they are there once.
        assert kinds.execute("SELECT count(*) FROM n_b WHERE id = %s", (key,)).fetchone() == (1,)
    check(kinds, names)
    kinds.execute("COMMIT; SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source")
    assert kinds.execute("SELECT count(*) FROM bullfrog.unmoved_1").fetchone() == (0,)
    check(kinds, names)
    kinds.execute("SELECT bullfrog.finish('m')")
    check(kinds, names)


def test_indexes_of_all_kinds_have_the_rows(kinds):
    migrate(kinds, ALL + "CREATE INDEX ON n_a (late); CREATE INDEX ON n_a USING gin (e); CREATE INDEX ON n_b USING hash (g); CREATE UNIQUE INDEX ON n_a (d) INCLUDE (c)",
        options=AS_IT_IS_BEST)
    kinds.execute("UPDATE n_a SET b = b WHERE id BETWEEN 10 AND 30; SET enable_seqscan = off")
    assert kinds.execute("SELECT count(*) FROM ONLY n_a WHERE e @> ARRAY[15]").fetchone() == (1,)
    for table, condition in (("n_a", "d = 'w15'"), ("n_a", "late = 'late' AND id = 15"), ("n_b", "g = repeat('x', 16)")):
        assert kinds.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone() == (1,)
    check(kinds)


def test_an_index_that_evaluates_something_is_filled_by_a_statement(database, kinds):
    """It came later than the session knew how rows move: what it calls has the rights of the tables' owner."""
    kinds.execute("CREATE ROLE plain_owner; CREATE ROLE plain_user; GRANT ALL ON SCHEMA public TO plain_owner; ALTER TABLE t OWNER TO plain_owner; CREATE TABLE seen (who text)")
    try:
        migrate(kinds, ALL, options=AS_IT_IS_BEST)
        client = database.connect()
        kinds.execute("GRANT SELECT, UPDATE ON n_a TO plain_user; GRANT INSERT ON seen TO PUBLIC")
        client.execute("SET ROLE plain_user; UPDATE n_a SET b = b WHERE id = 1; UPDATE n_a SET b = b WHERE id = 2")
        kinds.execute("""CREATE FUNCTION note() RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.seen VALUES (current_user); END';
            CREATE FUNCTION seen(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM public.note(); RETURN $1; END';
            CREATE INDEX ON n_b (seen(g))""")
        kinds.execute("TRUNCATE seen")
        client.execute("UPDATE n_a SET b = b WHERE id = 3; UPDATE n_a SET b = b WHERE id = 4")
        assert kinds.execute("SELECT who, count(*) FROM seen GROUP BY who").fetchall() == [("plain_owner", 2)]
        kinds.execute("TRUNCATE seen")
        kinds.execute("SELECT bullfrog.sweep(id, '{0, 1}') FROM bullfrog.source")
        assert kinds.execute("SELECT DISTINCT who FROM seen").fetchall() == [("plain_owner",)]
        check(kinds)
    finally:
        client.close()
        kinds.execute("ROLLBACK; SELECT bullfrog.finish('m'); DROP OWNED BY plain_owner, plain_user; DROP ROLE plain_owner, plain_user")


def test_an_index_of_the_same_transaction_is_filled_by_a_statement(kinds):
    """As long as it is there: also if a part of the transaction is undone that has made it, or dropped it."""
    kinds.execute("CREATE ROLE plain_owner; GRANT ALL ON SCHEMA public TO plain_owner; ALTER TABLE t OWNER TO plain_owner; CREATE TABLE seen (who text); GRANT ALL ON seen TO PUBLIC")
    kinds.execute("""CREATE FUNCTION note() RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.seen VALUES (current_user); END';
        CREATE FUNCTION seen(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM public.note(); RETURN $1; END'""")
    keys = iter(range(1, 100))

    def touch(expected):
        """Twice: what the first one has looked at is known to the second."""
        for _ in range(2):
            kinds.execute("DELETE FROM seen; UPDATE n_a SET b = b WHERE id = %d" % next(keys))
            assert kinds.execute("SELECT who FROM seen").fetchall() == [("plain_owner",)] * expected

    try:
        migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
        touch(0)
        kinds.execute("BEGIN")
        touch(0)
        kinds.execute("SAVEPOINT s; CREATE INDEX of_seen ON n_b (seen(g))")
        touch(1)
        kinds.execute("ROLLBACK TO s")
        touch(0)
        kinds.execute("CREATE INDEX of_seen ON n_b (seen(g)); SAVEPOINT s; DROP INDEX of_seen")
        touch(0)
        kinds.execute("ROLLBACK TO s")
        touch(1)
        kinds.execute("COMMIT")
        touch(1)
        check(kinds, "ab")
    finally:
        kinds.execute("ROLLBACK; SELECT bullfrog.finish('m'); DROP OWNED BY plain_owner CASCADE; DROP ROLE plain_owner")


def test_that_news_of_the_same_transaction_is_not_heard_is_noticed(kinds):
    kinds.execute("SET bullfrog.flaw = 'news_unheard'")
    with pytest.raises(AssertionError, match="plain_owner"):
        test_an_index_of_the_same_transaction_is_filled_by_a_statement(kinds)


def test_the_index_of_marks_may_be_another_one(database, kinds):
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    client = database.connect()
    client.execute("UPDATE n_a SET b = b WHERE id = 1; UPDATE n_a SET b = b WHERE id = 2")
    kinds.execute("REINDEX INDEX CONCURRENTLY bullfrog.moved_pkey")
    client.execute("UPDATE n_a SET b = b WHERE id = 2")
    client.execute("UPDATE n_a SET b = b WHERE id = 3")
    assert client.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (3,)
    check(client, "ab")


def test_the_index_of_marks_may_become_another_one_beside_a_transaction(database, kinds):
    """That comes in the middle of it: the old one stays as long as somebody may use it."""
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    client, admin = database.connect(), database.connect()
    client.execute("BEGIN; UPDATE n_a SET b = b WHERE id = 1")
    admin.pgconn.send_query(b"REINDEX INDEX CONCURRENTLY bullfrog.moved_pkey")
    assert blocking(kinds, admin) == client.info.backend_pid
    client.execute("UPDATE n_a SET b = b WHERE id IN (1, 2); SAVEPOINT s; UPDATE n_a SET b = b WHERE id = 3; ROLLBACK TO s; UPDATE n_a SET b = b WHERE id = 3")
    client.execute("COMMIT")
    answered(admin)
    client.execute("UPDATE n_a SET b = b WHERE id = 3; UPDATE n_a SET b = b WHERE id = 4")
    for connection in (client, kinds):
        assert connection.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (4,)
        check(connection, "ab")


def test_that_news_of_an_index_beside_a_transaction_is_not_heard_is_noticed(database, kinds):
    connect = database.connect
    database.connect = lambda: connect(options="-c bullfrog.flaw=news_unheard")
    with pytest.raises(psycopg.Error, match="could not open relation"):
        test_the_index_of_marks_may_become_another_one_beside_a_transaction(database, kinds)


def test_that_news_of_tables_is_not_heard_is_noticed(database, kinds):
    connect = database.connect
    database.connect = lambda: connect(options="-c bullfrog.flaw=news_unheard")
    with pytest.raises(psycopg.Error, match="could not open relation"):
        test_the_index_of_marks_may_be_another_one(database, kinds)
    kinds.execute("SELECT bullfrog.abort('m')")
    with pytest.raises(AssertionError, match=r"\('(postgres|plain_user)', 2\)\] == \[\('plain_owner', 2\)\]"):
        test_an_index_that_evaluates_something_is_filled_by_a_statement(database, kinds)


@pytest.mark.parametrize("kind, value", [("r", "r(i, i + 1)"), ("m", "m(r(i, i + 1))"), ("w", "r(i, i + 1)")])
def test_an_index_that_calls_what_somebody_made_for_a_type_is_filled_by_a_statement(database, kind, value):
    """As one that evaluates something; also where the index keeps values of another type than the column has, and for a domain."""
    admin = database.connect()
    admin.execute("""CREATE ROLE plain_owner; GRANT ALL ON SCHEMA public TO plain_owner; CREATE TABLE seen (who text); GRANT ALL ON seen TO PUBLIC; SET ROLE plain_owner;
        CREATE FUNCTION note() RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.seen VALUES (current_user); END';
        CREATE FUNCTION apart(float8, float8) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM public.note(); RETURN $1 - $2; END';
        CREATE TYPE r AS RANGE (subtype = float8, subtype_diff = apart, multirange_type_name = m); CREATE DOMAIN w AS r""")
    try:
        admin.execute(f"CREATE TABLE t (id int PRIMARY KEY, span {kind}); INSERT INTO t SELECT i, {value} FROM generate_series(1, 1500) i; RESET ROLE")
        migrate(admin, "CREATE TABLE n AS SELECT id, span FROM t; ALTER TABLE n ADD PRIMARY KEY (id)", options=AS_IT_IS_BEST)
        admin.execute("CREATE INDEX ON n USING gist (span)")
        for move in ("UPDATE n SET id = id WHERE id <= 700", "SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source"):
            # The first touch of a session, which has to learn how rows move.
            admin.execute("TRUNCATE seen")
            database.connect().execute(f"SET ROLE {'plain_owner' if 'UPDATE' in move else 'postgres'}; {move}")
            assert admin.execute("SELECT DISTINCT who FROM seen").fetchall() == [("plain_owner",)]
        assert admin.execute("SELECT count(*) FROM n").fetchone() == (1500,)
    finally:
        database.close()
        admin = database.connect()
        admin.execute("SELECT bullfrog.finish('m'); DROP OWNED BY plain_owner CASCADE; DROP ROLE plain_owner")


def test_a_table_without_indexes_has_each_row_once(kinds):
    migrate(kinds, "CREATE TABLE n AS SELECT late, id FROM t", options=AS_IT_IS_BEST)
    kinds.execute("DELETE FROM n WHERE id = 3; UPDATE n SET late = late WHERE id < 50")
    kinds.execute("SELECT bullfrog.finish('m')")
    assert kinds.execute("SELECT count(*), count(DISTINCT id) FROM n").fetchone() == (303, 303)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_row_that_others_have_moved_since_the_snapshot_is_an_error(database, kinds, level):
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    old = database.connect()
    old.execute(f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM n_a")
    kinds.execute("UPDATE n_b SET g = 'x' WHERE id = 9")
    with pytest.raises(psycopg.errors.SerializationFailure):
        old.execute("UPDATE n_a SET b = 'x' WHERE id = 9")


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_row_that_the_transaction_has_moved_itself_is_there_for_it(kinds, level):
    """Also for a statement whose snapshot is older: its function has moved it."""
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    kinds.execute("""CREATE FUNCTION touch(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN UPDATE n_b SET g = ''touched'' WHERE id = $1; RETURN $1; END'""")
    kinds.execute(f"BEGIN ISOLATION LEVEL {level}; SELECT touch(i) FROM generate_series(20, 30) i; SAVEPOINT s")
    assert kinds.execute("UPDATE n_a SET b = 'here' WHERE id BETWEEN 15 AND 30").rowcount == 16
    kinds.execute("ROLLBACK TO s")
    assert kinds.execute("UPDATE n_a SET b = 'here' WHERE id BETWEEN 15 AND 30").rowcount == 16
    kinds.execute("COMMIT")
    assert kinds.execute("SELECT count(*) FROM n_a WHERE b = 'here'").fetchone() == (16,)
    assert kinds.execute("SELECT count(*) FROM n_b WHERE g = 'touched'").fetchone() == (11,)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "ROLLBACK TO s; COMMIT"])
def test_who_needs_a_row_that_another_one_moves_waits_for_it(database, kinds, end):
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    other, waiting = database.connect(), database.connect()
    other.execute("BEGIN; SAVEPOINT s; UPDATE n_a SET b = 'other' WHERE id = 5")
    waiting.pgconn.send_query(b"UPDATE n_b SET g = 'waited' WHERE id IN (5, 6)")
    waits = f"SELECT cardinality(pg_blocking_pids({waiting.info.backend_pid})) > 0"
    wait_until(lambda: kinds.execute(waits).fetchone()[0], "it waits")
    other.execute(end)
    answered(waiting)
    assert kinds.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (2,)
    assert kinds.execute("SELECT (SELECT count(*) FROM n_a), (SELECT count(*) FROM n_b)").fetchone() == (304, 304)
    assert kinds.execute("SELECT count(*) FROM n_b WHERE g = 'waited'").fetchone() == (2,)
    assert kinds.execute("SELECT count(*) FROM n_a WHERE b = 'other'").fetchone() == (int(end == "COMMIT"),)


def blocking(admin, client):
    """Who keeps a client from going on, as soon as it waits; 0 is a prepared transaction."""
    found = []

    def waits():
        client.pgconn.consume_input()
        assert client.pgconn.is_busy(), "it has not waited"
        found[:] = admin.execute("SELECT pg_blocking_pids(%s)", (client.info.backend_pid,)).fetchone()[0]
        return found

    wait_until(waits, "it waits")
    return found[0]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "ROLLBACK TO s; COMMIT"])
def test_marks_alone_keep_two_apart(database, kinds, end):
    """As of a session that has no claim, and the index knows no more than that somebody writes the same."""
    connect = database.connect
    database.connect = lambda: connect(options="-c bullfrog.flaw=claims_unseen")
    test_who_needs_a_row_that_another_one_moves_waits_for_it(database, kinds, end)


def test_who_may_take_a_mark_back_is_waited_for_until_it_is_known(database, kinds):
    """Not until its transaction ends, which may go on without the row."""
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    marking, waiting = database.connect(), database.connect(options="-c bullfrog.flaw=claims_unseen")
    marking.execute("SET bullfrog.stop_at = 'move: marking'")
    marking.pgconn.send_query(b"UPDATE n_a SET b = 'marking' WHERE id = 5")
    stopped = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND application_name = 'stopped at move: marking'"
    wait_until(lambda: kinds.execute(stopped, (marking.info.backend_pid,)).fetchone() == (1,), "it has written a mark")
    waiting.pgconn.send_query(b"UPDATE n_b SET g = 'waited' WHERE id IN (4, 5, 6)")
    assert blocking(kinds, waiting) == marking.info.backend_pid
    assert kinds.execute("SELECT wait_event FROM pg_stat_activity WHERE pid = %s", (waiting.info.backend_pid,)).fetchone() == ("spectoken",)
    kinds.execute("SELECT pg_terminate_backend(%s)", (marking.info.backend_pid,))
    answered(waiting)
    assert kinds.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (3,)
    assert kinds.execute("SELECT (SELECT count(*) FROM n_a), (SELECT count(*) FROM n_b), (SELECT count(*) FROM n_b WHERE g = 'waited')").fetchone() == (304, 304, 3)


def test_who_waits_for_some_rows_of_many_marks_each_once(database, kinds):
    """Whoever has them, and however many those are."""
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    holders = {}
    for key in (7, 20, 33):
        holder = database.connect()
        holder.execute("BEGIN; UPDATE n_a SET b = 'held' WHERE id = %s" % key)
        holders[holder.info.backend_pid] = holder
    waiting = database.connect()
    waiting.execute("BEGIN")
    waiting.pgconn.send_query(b"UPDATE n_b SET g = 'waited' WHERE id < 50")
    while holders:
        # It may be seen to wait for one that has just ended.
        holder = holders.pop(blocking(kinds, waiting), None)
        if holder:
            holder.execute("COMMIT")
    answered(waiting)
    # Of a mark that is there already another one is written, which the index refuses.
    assert waiting.execute("SELECT pg_stat_get_xact_tuples_inserted('bullfrog.moved'::regclass)").fetchone() == (49,)
    waiting.execute("COMMIT")
    assert kinds.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (49,)
    assert kinds.execute("SELECT (SELECT count(*) FROM n_a WHERE b = 'held'), (SELECT count(*) FROM n_b WHERE g = 'waited')").fetchone() == (3, 49)


def test_that_rows_are_marked_again_after_each_wait_is_noticed(database, kinds):
    connect = database.connect
    database.connect = lambda: connect(options="-c bullfrog.flaw=marks_again")
    with pytest.raises(AssertionError, match="== \\(49"):
        test_who_waits_for_some_rows_of_many_marks_each_once(database, kinds)


def test_that_the_index_of_marks_does_not_decide_is_noticed(database, kinds):
    connect = database.connect
    database.connect = lambda: connect(options="-c bullfrog.flaw=marks_at_once")
    with pytest.raises(AssertionError, match="moved_pkey"):
        test_who_needs_a_row_that_another_one_moves_waits_for_it(database, kinds, "COMMIT")


def test_a_copy_of_many_rows_is_cancelled(database, kinds):
    """Where they are so small that the server itself has no place in which it looks for that."""
    kinds.execute("DELETE FROM t; INSERT INTO t (id, c) SELECT i, i FROM generate_series(1, 40000) i")
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    client = database.connect()
    client.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    client.pgconn.send_query(b"UPDATE n_a SET b = b")
    wait_until(lambda: kinds.execute("SELECT pg_relation_size('n_a') > 0").fetchone()[0], "it has begun")
    kinds.execute("SELECT pg_cancel_backend(%s)", (client.info.backend_pid,))
    assert b"canceling statement" in client.pgconn.get_result().error_message
    # What was written is in the file, undone as it is: all of the rows take more than 200 pages.
    assert kinds.execute("SELECT pg_relation_size('n_a') / 8192").fetchone()[0] < 150


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_row_that_a_transaction_older_than_the_server_has_moved_is_waited_for(server, database, kinds, end, level):
    """Nobody has claimed it any more: who comes to it finds the mark of a transaction that has not ended."""
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    kinds.execute("BEGIN; UPDATE n_a SET b = 'older' WHERE id = 5; PREPARE TRANSACTION 'older'")
    server.stop()
    server.start()
    admin, client = database.connect(), database.connect()

    def begin_to_wait():
        client.execute(f"BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM n_b")
        client.pgconn.send_query(b"UPDATE n_b SET g = 'waited' WHERE id IN (4, 5, 6)")
        assert blocking(admin, client) == 0

    begin_to_wait()
    admin.execute("SELECT pg_cancel_backend(%s)", (client.info.backend_pid,))
    with pytest.raises(AssertionError, match="canceling statement"):
        answered(client)
    assert client.pgconn.get_result() is None
    client.execute("ROLLBACK")
    begin_to_wait()
    admin.execute(f"{end} PREPARED 'older'")
    if (end, level) == ("COMMIT", "REPEATABLE READ"):
        assert client.pgconn.get_result().error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"40001"
        assert client.pgconn.get_result() is None
        client.execute(f"ROLLBACK; BEGIN ISOLATION LEVEL {level}; UPDATE n_b SET g = 'waited' WHERE id IN (4, 5, 6)")
    else:
        answered(client)
    client.execute("COMMIT")
    assert admin.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (3,)
    assert admin.execute("SELECT (SELECT count(*) FROM n_a), (SELECT count(*) FROM n_b)").fetchone() == (304, 304)
    assert admin.execute("SELECT (SELECT count(*) FROM n_a WHERE b = 'older'), (SELECT count(*) FROM n_b WHERE g = 'waited')").fetchone() == (int(end == "COMMIT"), 3)


@pytest.mark.parametrize("flaw, noticed", [("marks_unwaited", "it has not waited"), ("marks_once", r"\(2,\) == \(3,\)")])
def test_that_a_mark_in_progress_is_not_waited_for_or_not_written_then_is_noticed(server, database, kinds, flaw, noticed):
    connect = database.connect
    database.connect = lambda: connect(options=f"-c bullfrog.flaw={flaw}")
    with pytest.raises(AssertionError, match=noticed):
        test_a_row_that_a_transaction_older_than_the_server_has_moved_is_waited_for(server, database, kinds, "ROLLBACK", "READ COMMITTED")


def test_who_catches_an_error_reads_marks_in_a_locked_table(kinds):
    """What an expression remembers of it outlives the part of the transaction in which it was locked."""
    migrate(kinds, PLAIN, options=AS_IT_IS_BEST)
    kinds.execute("""CREATE FUNCTION locks() RETURNS bigint LANGUAGE plpgsql AS $$
        DECLARE
            is_moved boolean;
        BEGIN
            FOR i IN 1..2 LOOP
                BEGIN
                    is_moved := bullfrog.is_place_moved(1, '(0,1)');
                    IF i = 1 THEN
                        RAISE 'undone';
                    END IF;
                EXCEPTION WHEN raise_exception THEN
                    NULL;
                END;
            END LOOP;
            RETURN (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN ('bullfrog.moved'::regclass, 'bullfrog.moved_pkey'::regclass));
        END $$""")
    assert kinds.execute("SELECT locks()").fetchone() == (2,)


def test_that_it_is_not_locked_is_noticed(kinds):
    kinds.execute("SET bullfrog.flaw = 'lock_forgotten'")
    with pytest.raises(AssertionError, match=r"\(0,\) == \(2,\)"):
        test_who_catches_an_error_reads_marks_in_a_locked_table(kinds)
