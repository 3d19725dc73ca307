"""What was moved is read with the snapshot of the statement that asks, at every isolation level."""

import pytest

from conftest import CUSTOMERS, SPLIT, migrate, setting

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
OPTIONS = {"pages": "", "tuples": ", granularity => 'tuple'"}
SUMS = "CREATE TABLE town AS SELECT city, count(*) AS people FROM customer GROUP BY city; ALTER TABLE town ADD PRIMARY KEY (city)"


def moves_midway(database, level, query, write):
    """What a cursor gives that was opened before rows moved, and fetched from before and after."""
    reader, writer = database.connect(), database.connect()
    reader.execute(f"BEGIN ISOLATION LEVEL {level}")
    reader.execute(f"DECLARE c CURSOR FOR {query}")
    rows = reader.execute("FETCH 1 FROM c").fetchall()
    writer.execute(write)
    rows += reader.execute("FETCH ALL FROM c").fetchall()
    reader.execute("COMMIT")
    return sorted(rows)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_cursor_gives_each_row_once_that_moves_under_it(database, customers, options, level):
    migrate(customers, SPLIT, "split", OPTIONS[options])
    rows = moves_midway(database, level, "SELECT id, name FROM customer_private", "UPDATE customer_private SET name = 'later'")
    assert rows == [(i, f"name {i}") for i in range(1, CUSTOMERS + 1)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_cursor_gives_each_group_once_that_moves_under_it(database, customers, level):
    migrate(customers, SUMS, "sums")
    rows = moves_midway(database, level, "SELECT people FROM town", "UPDATE town SET people = 0")
    assert rows == [(CUSTOMERS / 10,)] * 10


@pytest.mark.parametrize("options", OPTIONS)
def test_a_cursor_with_hold_gives_each_row_once(database, customers, options):
    migrate(customers, SPLIT, "split", OPTIONS[options])
    reader = database.connect()
    with reader.transaction():
        reader.execute("DECLARE c CURSOR WITH HOLD FOR SELECT id FROM customer_private")
        first = reader.execute("FETCH 1 FROM c").fetchall()
        customers.execute("UPDATE customer_private SET name = 'later'")
    assert len({*first, *reader.execute("FETCH ALL FROM c").fetchall()}) == CUSTOMERS


@pytest.mark.parametrize("options", OPTIONS)
def test_processes_of_a_parallel_plan_read_the_same_truth(database, customers, options):
    migrate(customers, SPLIT, "split", OPTIONS[options])
    customers.execute("UPDATE customer_private SET name = 'moved' WHERE id % 3 = 0 AND id < 500")
    customers.execute("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0")
    query = "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE name = 'moved') FROM customer_private"
    assert "Parallel" in str(customers.execute(f"EXPLAIN {query}").fetchall())
    assert customers.execute(query).fetchone() == (CUSTOMERS, CUSTOMERS, 166)


def test_nothing_is_remembered_from_an_older_snapshot(database, split):
    """An expression of a function is kept from one statement to the next."""
    split.execute("""
        CREATE FUNCTION look() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN bullfrog.is_page_moved(1, ''(0,1)''); END';
        CREATE FUNCTION place() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN bullfrog.is_place_moved(1, ''(0,1)''); END'""")
    other = database.connect()
    with split.transaction():
        assert split.execute("SELECT look(), place()").fetchone() == (False, False)
        other.execute("SELECT bullfrog.move(1, '{0}'); INSERT INTO bullfrog.moved (source, granule) VALUES (1, 1)")
        assert split.execute("SELECT look(), place()").fetchone() == (True, True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_truth_that_is_newer_than_the_snapshot_is_noticed(server, database, customers, options, level):
    migrate(customers, SPLIT, "split", OPTIONS[options])
    with setting(server, "bullfrog.flaw", "newest_truth"):
        rows = moves_midway(database, level, "SELECT id FROM customer_private WHERE id <= 100",
            "UPDATE customer_private SET name = 'later' WHERE id <= 100")
    assert len(rows) < 100
