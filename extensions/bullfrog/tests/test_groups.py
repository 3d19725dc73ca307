"""New tables that are aggregates of old ones: a group moves as a whole, or not at all."""

import psycopg
import pytest

from conftest import answered, begin_unguarded, differing, migrate, moved, setting, wait_until

QUERY = "SELECT shop, number, sum(amount) AS amount, count(*) AS lines, max(position) AS last FROM line GROUP BY shop, number"
TOTALS = f"CREATE TABLE total AS {QUERY}; ALTER TABLE total ADD PRIMARY KEY (shop, number)"
GROUPS = 400


@pytest.fixture
def lines(database):
    """The lines of 400 orders, those of each order on pages far apart."""
    connection = database.connect()
    connection.execute("CREATE TABLE line (shop int NOT NULL, number int, position int, amount numeric NOT NULL, kind text, pad text)")
    connection.execute(
        "INSERT INTO line SELECT n % 4, n, p, n * 10 + p, CASE WHEN n % 3 > 0 THEN 'kind ' || n % 3 END, repeat('.', 300)"
        f" FROM generate_series(1, {GROUPS}) n, generate_series(1, 8) p WHERE p <= 1 + n % 8 ORDER BY p, n"
    )
    connection.execute("ALTER TABLE line ADD PRIMARY KEY (shop, number, position)")
    connection.execute("ANALYZE line")
    connection.execute(f"CREATE TABLE expected AS {QUERY}")
    return connection


@pytest.fixture
def totals(lines):
    migrate(lines, TOTALS)
    return lines


def test_all_groups_are_there_at_once_and_none_was_moved(totals):
    assert differing(totals, "total", "expected") == 0
    assert moved(totals) == 0


def test_an_update_moves_its_whole_group_and_no_other(totals):
    assert totals.execute("UPDATE total SET amount = amount + 1 WHERE shop = 3 AND number = 7 RETURNING lines").fetchall() == [(8,)]
    assert moved(totals) == 1
    totals.execute("UPDATE expected SET amount = amount + 1 WHERE shop = 3 AND number = 7")
    assert differing(totals, "total", "expected") == 0
    assert totals.execute("SELECT count(*) FROM ONLY bullfrog.unmoved_1").fetchone() == (GROUPS - 1,)


def test_a_condition_on_an_aggregate_moves_the_groups_that_satisfy_it(totals):
    assert totals.execute("UPDATE total SET amount = 0 WHERE lines = 3").rowcount == GROUPS / 8
    assert moved(totals) == GROUPS / 8
    totals.execute("UPDATE expected SET amount = 0 WHERE lines = 3")
    assert differing(totals, "total", "expected") == 0


def test_a_lookup_of_a_group_reads_its_rows_by_an_index(totals):
    totals.execute("SET enable_seqscan = off")
    plan = totals.execute("EXPLAIN SELECT * FROM total WHERE shop = 3 AND number = 7").fetchall()
    assert "Index Cond: ((shop = 3) AND (number = 7))" in str(plan) and "line_pkey" in str(plan)


def test_a_deleted_group_stays_deleted_when_the_background_passes(totals):
    totals.execute("DELETE FROM total WHERE number BETWEEN 100 AND 200")
    totals.execute("SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source")
    assert totals.execute("SELECT pages_left FROM bullfrog.progress").fetchone() == (0,)
    totals.execute("DELETE FROM expected WHERE number BETWEEN 100 AND 200")
    assert differing(totals, "total", "expected") == 0
    totals.execute("SELECT bullfrog.finish('m')")
    assert differing(totals, "total", "expected") == 0


def test_the_key_of_a_group_that_was_not_moved_is_taken(totals):
    with pytest.raises(psycopg.errors.UniqueViolation):
        totals.execute("INSERT INTO total VALUES (3, 7, 1, 1, 1)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        totals.execute("UPDATE total SET shop = 3, number = 11 WHERE shop = 0 AND number = 4")
    upsert = """
        INSERT INTO total VALUES (%s, %s, 5, 1, 1)
        ON CONFLICT (shop, number) DO UPDATE SET amount = total.amount + excluded.amount RETURNING lines"""
    assert totals.execute(upsert, (3, 15)).fetchone() == (8,)
    assert totals.execute(upsert, (3, 16)).fetchone() == (1,)
    totals.execute("UPDATE expected SET amount = amount + 5 WHERE number = 15; INSERT INTO expected VALUES (3, 16, 5, 1, 1)")
    assert differing(totals, "total", "expected") == 0


@pytest.mark.parametrize("query", [
    "SELECT kind, count(*) AS n, sum(amount) AS amount FROM line GROUP BY kind",
    "SELECT number % 7 AS rest, kind, min(amount) AS least FROM line WHERE position < 5 GROUP BY 1, 2",
    "SELECT count(*) AS n FROM line GROUP BY kind, shop HAVING count(*) > 100",
    "SELECT kind, array_agg(DISTINCT shop) FILTER (WHERE amount > 50) AS shops, string_agg(pad, '' ORDER BY number, position) AS pads"
    " FROM line GROUP BY kind",
    "SELECT a.number, sum(b.amount) AS amount FROM line a JOIN line b ON a.number = b.position AND a.shop <> b.shop GROUP BY a.number",
    "SELECT a.shop, a.number, count(b.number) AS n FROM line a LEFT JOIN line b ON b.number = a.position WHERE a.position = 2"
    " GROUP BY a.shop, a.number",
], ids=["null", "expression", "having", "filter", "join", "left_join"])
def test_kinds_of_grouping(lines, query):
    lines.execute(f"DROP TABLE expected; CREATE TABLE expected AS {query}")
    migrate(lines, f"CREATE TABLE total AS {query}")
    assert differing(lines, "total", "expected") == 0
    key = lines.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'total'::regclass AND attnum = 1").fetchone()[0]
    lines.execute(f"SELECT FROM total WHERE {key} IS NULL OR {key}::text > '1' FOR UPDATE")
    assert moved(lines) > 0
    assert differing(lines, "total", "expected") == 0
    lines.execute("SELECT bullfrog.finish('m')")
    assert differing(lines, "total", "expected") == 0


def test_rows_and_several_groupings_of_one_table_move_independently(lines):
    migrate(lines, f"""
        {TOTALS};
        CREATE TABLE slim AS SELECT shop, number, position, amount FROM line;
        CREATE TABLE shop_total AS SELECT shop, sum(amount) AS amount FROM line GROUP BY shop;
        ALTER TABLE slim ADD PRIMARY KEY (shop, number, position)""")
    lines.execute("UPDATE slim SET amount = 0 WHERE number = 7")
    lines.execute("UPDATE shop_total SET amount = 0 WHERE shop = 3")
    progress = "SELECT granule, granules_moved > 0 FROM bullfrog.progress WHERE granules_moved > 0 ORDER BY 1"
    assert lines.execute(progress).fetchall() == [("group", True), ("page", True)]
    assert differing(lines, "total", "expected") == 0
    lines.execute("SELECT bullfrog.finish('m')")
    assert differing(lines, "total", "expected") == 0
    assert lines.execute("SELECT count(*) FILTER (WHERE amount = 0), count(*) FROM shop_total").fetchone() == (1, 4)
    assert lines.execute("SELECT count(*) FILTER (WHERE amount = 0) FROM slim").fetchone() == (8,)


def test_a_group_is_moved_once_by_sessions_that_ask_at_the_same_time(database, totals):
    places = totals.execute("SELECT array_agg(bullfrog.place(bullfrog_tid)) FROM bullfrog.unmoved_1 WHERE number < 50").fetchone()[0]
    sessions = [database.connect() for _ in range(3)]
    for session in sessions:
        session.pgconn.send_query(f"SELECT bullfrog.move(1, '{{{','.join(map(str, places))}}}')".encode())
    for session in sessions:
        while session.pgconn.get_result():
            pass
    assert moved(totals) == 49
    assert differing(totals, "total", "expected") == 0


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_reader_sees_each_group_once_while_they_move(database, totals, level):
    reader = database.connect()
    reader.execute(f"BEGIN ISOLATION LEVEL {level} READ ONLY")
    assert differing(reader, "total", "expected") == 0
    totals.execute("UPDATE total SET amount = 0")
    assert moved(totals) == GROUPS
    assert differing(reader, "total", "expected") == 0


def test_repeatable_read_asks_for_another_try_and_the_try_succeeds(database, totals):
    for attempt in range(2):
        totals.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        totals.execute("SELECT 1")
        try:
            totals.execute("UPDATE total SET amount = 0 WHERE number = 7")
            totals.execute("COMMIT")
            break
        except psycopg.errors.SerializationFailure:
            totals.execute("ROLLBACK")
    assert attempt == 1
    assert totals.execute("SELECT amount FROM total WHERE number = 7").fetchone() == (0,)


def skew(database):
    """As for rows: A reads x while it is cold; C has it moved; B reads y, writes x and commits; A writes y. Gives how many of
    the two are zero in the end, each of which was written because the other was not."""
    a, b, c = (database.connect() for _ in range(3))
    x, y = 3, 4
    read = "SELECT amount <> 0 FROM total WHERE shop = %s %% 4 AND number = %s"
    write = "UPDATE total SET amount = 0 WHERE shop = %s %% 4 AND number = %s"
    c.execute("SELECT FROM total WHERE shop = 0 AND number = 4 FOR UPDATE")
    for session in (a, b):
        session.execute("SET enable_seqscan = off")
    a.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert a.execute(read, (x, x)).fetchone() == (True,)
    c.execute("SELECT FROM total WHERE shop = 3 AND number = 3 FOR UPDATE")
    b.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert b.execute(read, (y, y)).fetchone() == (True,)
    for session, number in ((b, x), (a, y)):
        try:
            session.execute(write, (number, number))
            session.execute("COMMIT")
        except psycopg.errors.SerializationFailure:
            session.execute("ROLLBACK")
    return c.execute("SELECT count(*) FROM total WHERE amount = 0").fetchone()[0]


def test_a_third_session_that_has_a_group_moved_hides_no_conflict(database, totals):
    assert skew(database) == 1


def test_a_mover_of_groups_that_is_not_serializable_is_noticed(server, database, lines):
    with setting(server, "bullfrog.flaw", "movers_read_committed"):
        migrate(lines, TOTALS)
        assert skew(database) == 2


ADD = "UPDATE total SET amount = amount + 1 WHERE shop = 3 AND number = 7"
WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE total%'"
# An answer before the group is there: the statement found no row.
RUSHED = "SELECT FROM pg_stat_activity WHERE state = 'idle' AND query LIKE 'UPDATE total%'"


def race(database, totals, condition, count):
    """Three sessions add to one group, of which the first has it moved. That takes until so many sessions satisfy a condition.
    Gives what the statements answered."""
    blocker, *sessions = (database.connect() for _ in range(4))
    # It takes the key that the move needs.
    begin_unguarded(blocker)
    blocker.execute("INSERT INTO total VALUES (3, 7, 0, 0, 0)")
    for session in sessions:
        session.pgconn.send_query(ADD.encode())
    wait_until(lambda: totals.execute(condition).rowcount >= count, f"{count} sessions: {condition}")
    blocker.execute("ROLLBACK")
    answers = []
    for session in sessions:
        result = session.pgconn.get_result()
        assert result.error_message == b"", result.error_message
        answers.append(result.command_status.decode())
    return sorted(answers)


@pytest.mark.parametrize("conflicts", ["tracker", "on_conflict"])
def test_who_loses_the_race_for_a_group_runs_when_it_is_there(server, database, totals, conflicts):
    with setting(server, "bullfrog.conflicts", conflicts):
        assert race(database, totals, WAITING, 3) == ["UPDATE 1"] * 3
    totals.execute("UPDATE expected SET amount = amount + 3 WHERE number = 7")
    assert differing(totals, "total", "expected") == 0
    assert moved(totals) == 1


def test_who_does_not_wait_for_a_claimed_group_is_noticed(server, database, totals):
    with setting(server, "bullfrog.flaw", "nobody_waits"):
        assert "UPDATE 0" in race(database, totals, RUSHED, 1)


def test_who_does_not_wait_for_a_marked_group_is_noticed(server, database, totals):
    """With a mark that passes over what another has in progress."""
    totals.execute("""
        CREATE FUNCTION pass_over() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN IF pg_try_advisory_xact_lock(new.granule) THEN RETURN new; END IF; RETURN NULL; END';
        CREATE TRIGGER pass_over BEFORE INSERT ON bullfrog.moved FOR EACH ROW EXECUTE FUNCTION pass_over();
        ALTER TABLE bullfrog.moved ENABLE ALWAYS TRIGGER pass_over""")
    with setting(server, "bullfrog.conflicts", "on_conflict"):
        assert "UPDATE 0" in race(database, totals, RUSHED, 1)


def test_abort_compares_groups(totals):
    totals.execute("UPDATE total SET amount = amount + 1 WHERE number = 7")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="written to public.total"):
        totals.execute("SELECT bullfrog.abort('m')")
    totals.execute("UPDATE total SET amount = amount - 1 WHERE number = 7")
    totals.execute("SELECT bullfrog.abort('m')")
    assert totals.execute("SELECT count(DISTINCT number) FROM line").fetchone() == (GROUPS,)


def test_a_group_with_rows_on_several_pages_is_moved_once(totals):
    totals.execute("SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1, 2))) FROM bullfrog.source")
    assert differing(totals, "total", "expected") == 0
    totals.execute("SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(1, pages - 1, 2))) FROM bullfrog.source")
    assert moved(totals) == GROUPS
    assert differing(totals, "total", "expected") == 0


def test_a_mover_goes_on_where_the_last_one_was(totals):
    totals.execute("SELECT bullfrog.sweep(id, ARRAY[0, 1, 2, 5]) FROM bullfrog.source")
    assert totals.execute("SELECT swept FROM bullfrog.source").fetchone() == (3,)
    mover = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND datname = current_database()"
    first = totals.execute(mover).fetchone()
    totals.execute("SELECT pg_terminate_backend(%s)", first)
    wait_until(lambda: totals.execute(mover).fetchone() != first, "the mover ended")
    totals.execute("SELECT bullfrog.finish('m')")
    assert differing(totals, "total", "expected") == 0


def test_a_sweep_that_lost_against_another_is_tried_again(database, totals):
    """Both note how far they came."""
    # A transaction sees the sessions of its first look only, so another one looks.
    other, looking = database.connect(), database.connect()
    other.execute("BEGIN")
    other.execute("UPDATE bullfrog.source SET swept = 1")
    totals.pgconn.send_query(b"SELECT bullfrog.sweep(id, ARRAY[0, 1, 2]) FROM bullfrog.source")
    waits = f"SELECT FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND {other.info.backend_pid} = ANY (pg_blocking_pids(pid))"
    wait_until(lambda: looking.execute(waits).rowcount == 1, "a mover waits to note how far it came")
    other.execute("COMMIT")
    answered(totals)
    assert totals.execute("SELECT swept FROM bullfrog.source").fetchone() == (3,)


def test_the_plan_tells_what_is_slow(lines):
    plan = lines.execute("SELECT kind, note FROM bullfrog.plan('m', 'CREATE TABLE t AS SELECT kind, avg(length(pad)) AS size FROM line"
        " GROUP BY kind')").fetchone()
    assert plan[0] == "n:1"
    assert "moves by groups of public.line" in plan[1]
    assert "no index of public.line begins with kind" in plan[1]
    assert "to evaluate size" in plan[1]
    assert "no index" not in lines.execute("SELECT note FROM bullfrog.plan('m', %s)", (TOTALS,)).fetchone()[0]
