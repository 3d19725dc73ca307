"""Several movers that go over the same tables in the background."""

import os
import signal

import pytest

from conftest import CUSTOMERS, SPLIT, differing, migrate, reconnect, setting, wait_for_crash, wait_until
from test_mover import check_all, pages_left
from test_movers import block, wait_for_mover

BATCH = 16


@pytest.fixture(params=["", ", granularity => 'tuple'"], ids=["pages", "tuples"])
def swept(server, database, customers, request):
    """The split with three sweepers, one of which cannot go on: it waits for a session that is in the way of page 0."""
    migrate(customers, SPLIT, "split", request.param)
    customers.execute("CREATE TABLE expected AS TABLE customer_private")
    blocker = block(database, customers)
    with setting(server, "bullfrog.sweepers", 3), setting(server, "bullfrog.start_delay", 0):
        customers.blocker = blocker
        yield customers


def first_sweeper(connection):
    """The mover that waits for a session, not for another mover."""
    return connection.execute("""SELECT pid FROM pg_stat_activity a WHERE backend_type = 'bullfrog mover' AND datname = current_database()
        AND EXISTS (SELECT FROM pg_stat_activity b WHERE b.pid = ANY (pg_blocking_pids(a.pid)) AND b.backend_type = 'client backend')
        """).fetchone()[0]


def test_one_sweeper_would_wait_where_several_go_on(server, database, customers):
    migrate(customers, SPLIT, "split")
    blocker, pages = block(database, customers), pages_left(customers)
    with setting(server, "bullfrog.start_delay", 0):
        wait_for_mover(customers)
        assert pages_left(customers) == pages > BATCH
        with setting(server, "bullfrog.sweepers", 3):
            blocker.execute("ROLLBACK")
            wait_until(lambda: pages_left(customers) == 0, "all pages were moved")
    check_all(customers)


def moved_pages(connection):
    """Pages of which all rows were moved, whatever was told of it."""
    return connection.execute("""SELECT count(*) FROM (SELECT FROM bullfrog.transformed_1 GROUP BY bullfrog.page(bullfrog_tid)
        HAVING bool_and(bullfrog.is_page_moved(1, bullfrog_tid) OR bullfrog.is_place_moved(1, bullfrog_tid))) p""").fetchone()[0]


def test_the_others_go_on_while_one_waits(swept):
    pages = pages_left(swept)
    wait_until(lambda: moved_pages(swept) >= pages - BATCH, "all but the first batch was moved")
    swept.blocker.execute("ROLLBACK")
    wait_until(lambda: pages_left(swept) == 0, "all pages were moved")
    check_all(swept)
    assert differing(swept, "customer_private", "expected") == 0


def test_what_a_sweeper_was_at_when_it_ended_is_done_by_others(swept):
    wait_for_mover(swept, 3)
    swept.execute("SELECT pg_terminate_backend(%s)", (first_sweeper(swept),))
    swept.blocker.execute("ROLLBACK")
    wait_until(lambda: pages_left(swept) == 0, "all pages were moved")
    check_all(swept)
    assert differing(swept, "customer_private", "expected") == 0


def test_a_sweeper_that_is_killed_moves_nothing_twice(server, database, swept):
    wait_for_mover(swept, 3)
    os.kill(first_sweeper(swept), signal.SIGKILL)
    wait_for_crash(swept)
    connection = reconnect(database)
    wait_until(lambda: pages_left(connection) == 0, "all pages were moved")
    check_all(connection)
    assert differing(connection, "customer_private", "expected") == 0


def test_groups_that_have_rows_on_pages_of_several_sweepers_move_once(server, customers):
    customers.execute("CREATE TABLE expected AS SELECT city, count(*) AS people FROM customer GROUP BY city")
    migrate(customers, "CREATE TABLE town AS SELECT city, count(*) AS people FROM customer GROUP BY city")
    with setting(server, "bullfrog.sweepers", 3), setting(server, "bullfrog.start_delay", 0):
        wait_until(lambda: pages_left(customers) == 0, "all groups were moved")
    assert customers.execute("SELECT sum(people) FROM ONLY town").fetchone() == (CUSTOMERS,)
    assert differing(customers, "town", "expected") == 0
