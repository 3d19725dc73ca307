"""Several movers of one database, and two that want the same rows."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, answered, begin_unguarded, database_from, differing, migrate, moved, setting, wait_until

WRITE = "UPDATE customer_private SET name = name || '!' WHERE id = %s"


def movers(connection):
    return connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND datname = current_database() ORDER BY backend_start"
    ).fetchall()


def block(database, split):
    """A session that keeps moves of page 0 from going on: it has taken a key that a row there needs."""
    blocker = database.connect()
    # The migration would move the row first.
    begin_unguarded(blocker)
    blocker.execute("INSERT INTO customer_private VALUES (1, 'in the way')")
    return blocker


def wait_for_mover(connection, count=1):
    waiting = "SELECT FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND wait_event_type = 'Lock'" \
        " AND datname = current_database()"
    wait_until(lambda: connection.execute(waiting).rowcount == count, f"{count} movers wait for a lock")


@pytest.mark.parametrize("conflicts", ["tracker", "on_conflict"])
def test_a_slow_move_does_not_hold_up_others(server, database, split, conflicts):
    with setting(server, "bullfrog.conflicts", conflicts):
        blocker, waiting = block(database, split), database.connect()
        waiting.pgconn.send_query((WRITE % 2).encode())
        wait_for_mover(split)
        # Other pages move meanwhile, by another mover.
        assert split.execute(WRITE, (1000,)).rowcount == 1
        # A third may have been started: one that looks for rows by itself is not free for a moment.
        assert len(movers(split)) in (2, 3)
        blocker.execute("ROLLBACK")
        answered(waiting)
        assert split.execute("SELECT id FROM customer_private WHERE name LIKE '%!' ORDER BY id").fetchall() == [(2,), (1000,)]


def test_there_are_no_more_movers_than_the_setting_allows(server, database, split):
    blocker = block(database, split)
    waiting = [database.connect() for _ in range(4)]
    with setting(server, "bullfrog.conflicts", "on_conflict"):
        for session in waiting:
            session.pgconn.send_query((WRITE % 2).encode())
        wait_for_mover(split, 3)
        assert len(movers(split)) == 3
        blocker.execute("ROLLBACK")
        for session in waiting:
            answered(session)
    assert split.execute("SELECT name FROM customer_private WHERE id = 2").fetchone() == ("name 2!!!!",)


def test_sessions_that_want_the_same_page_wait_for_the_one_move_of_it(database, split):
    """With claims no second mover begins the same work: the sessions wait for the transaction of the first."""
    blocker = block(database, split)
    waiting = [database.connect() for _ in range(3)]
    for session in waiting:
        session.pgconn.send_query((WRITE % 2).encode())
    wait_for_mover(split)
    sessions = "SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
    wait_until(lambda: split.execute(sessions).rowcount >= 3, "two sessions and a mover wait for a transaction")
    assert split.execute("SELECT FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND wait_event_type = 'Lock'").rowcount == 1
    blocker.execute("ROLLBACK")
    for session in waiting:
        answered(session)
    assert split.execute("SELECT name FROM customer_private WHERE id = 2").fetchone() == ("name 2!!!",)
    assert moved(split) == 1


def test_a_session_that_all_movers_wait_for_is_told_of_the_deadlock(database, split):
    """It waits for a mover to be free; all of them wait for it."""
    split.execute("BEGIN")
    split.execute("LOCK TABLE customer_public IN SHARE MODE")
    waiting = [database.connect() for _ in range(3)]
    watcher = database.connect()
    # A mover that is late would take two of them on.
    for count, (session, id) in enumerate(zip(waiting, (300, 600, 1000)), 1):
        session.pgconn.send_query((WRITE % id).encode())
        wait_for_mover(watcher, count)
    with pytest.raises(psycopg.errors.DeadlockDetected):
        split.execute(WRITE, (1,))
    split.execute("ROLLBACK")
    for session in waiting:
        answered(session)


def test_a_session_behind_many_for_which_all_movers_wait_is_told_of_the_deadlock(server, template, database, split):
    """One of another database waits for something else."""
    with database_from(server, template, "stranger behind many") as stranger:
        admin = stranger.connect()
        migrate(admin, SPLIT, "split")
        admin.execute("BEGIN; LOCK TABLE customer_public IN SHARE MODE; PREPARE TRANSACTION 'stranger'")
        asking = stranger.connect()
        asking.pgconn.send_query((WRITE % 1).encode())
        wait_for_mover(admin)
        ask_behind_many(database, split)
        admin.execute("ROLLBACK PREPARED 'stranger'")
        answered(asking)


def ask_behind_many(database, split):
    split.execute("BEGIN")
    split.execute("LOCK TABLE customer_public IN SHARE MODE")
    waiting = [database.connect() for _ in range(70)]
    for id, session in enumerate(waiting, 1):
        session.pgconn.send_query((WRITE % (id * 14)).encode())
    watcher = database.connect()
    wait_for_mover(watcher, 3)
    asking = "SELECT FROM pg_stat_activity WHERE query LIKE 'UPDATE%' AND wait_event_type IS NOT NULL AND datname = current_database()"
    wait_until(lambda: watcher.execute(asking).rowcount == 70, "all sessions wait")
    with pytest.raises(psycopg.errors.DeadlockDetected):
        split.execute("SELECT bullfrog.move(1, '{0}')")
    split.execute("ROLLBACK")
    for session in waiting:
        answered(session)


def test_crossing_sets_of_pages_do_not_wait_in_a_circle(database, split):
    pages = split.execute("SELECT pages FROM bullfrog.source").fetchone()[0]
    sessions = [database.connect() for _ in range(6)]
    for number, session in enumerate(sessions):
        order = list(range(pages)) if number % 2 else list(reversed(range(pages)))
        session.pgconn.send_query(f"SELECT bullfrog.move(1, '{{{','.join(map(str, order))}}}')".encode())
    for session in sessions:
        answered(session)
    assert moved(split) == pages
    assert split.execute("SELECT count(*), count(DISTINCT id) FROM customer_private").fetchone() == (CUSTOMERS, CUSTOMERS)


def test_names_of_no_granules_move_nothing(split):
    split.execute("SELECT bullfrog.move(1, '{-1, 1000000, 9223372036854775807}')")
    split.execute("SELECT bullfrog.sweep(1, '{-5, 1000000}')")
    assert moved(split) == 0
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        split.execute("SELECT bullfrog.move(77, '{1}')")


def test_a_place_at_which_no_group_begins_moves_nothing(customers):
    query = "SELECT id % 10 AS digit, count(*) AS customers FROM customer GROUP BY 1"
    customers.execute(f"CREATE TABLE expected AS {query}")
    migrate(customers, f"CREATE TABLE t AS {query}")
    last = customers.execute("SELECT max(bullfrog.place(bullfrog_tid)) FROM bullfrog.members_1").fetchone()[0]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no group"):
        customers.execute("SELECT bullfrog.move(1, %s::bigint[])", ([last],))
    assert moved(customers) == 0
    assert differing(customers, "t", "expected") == 0


def test_a_write_of_many_groups_moves_each_once(database):
    connection = database.connect()
    connection.execute("CREATE TABLE line (number int, amount int, PRIMARY KEY (number, amount))")
    connection.execute("INSERT INTO line SELECT n % 5000, n FROM generate_series(1, 15000) n")
    migrate(connection, "CREATE TABLE total AS SELECT number, sum(amount) AS amount FROM line GROUP BY number")
    assert connection.execute("UPDATE total SET amount = 0").rowcount == 5000
    assert moved(connection) == 5000
    assert connection.execute("SELECT count(*), sum(amount) FROM total").fetchone() == (5000, 0)
