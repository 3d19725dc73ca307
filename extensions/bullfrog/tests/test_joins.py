"""New tables that are joins of old ones: each row of the join comes once, with the page of the driving table it belongs to."""

import psycopg
import pytest

from conftest import differing, migrate, moved

STOCKINFO = """
    CREATE TABLE stockinfo AS SELECT s.sku AS code, s.day, s.used, i.cap - s.used AS free, NULL AS audited_at FROM item i
        JOIN stocktake s USING (sku);
    ALTER TABLE stockinfo ADD PRIMARY KEY (code, day)
"""
JOINS = {
    "foreign_key": "SELECT s.sku, s.day, s.used, i.cap FROM item i, stocktake s WHERE i.sku = s.sku",
    "many_to_many": "SELECT s.sku, s.day, i.sku AS other, i.cap FROM stocktake s JOIN item i ON i.depot = s.day",
    "left": "SELECT i.sku, s.day, s.used FROM item i LEFT JOIN stocktake s ON s.sku = i.sku AND s.used > 50",
    "right": "SELECT i.sku, s.day, s.used FROM stocktake s RIGHT JOIN item i ON s.sku = i.sku AND s.used > 50",
    "self": "SELECT a.sku, b.sku AS other FROM item a JOIN item b ON b.sku = a.sku + 1",
    "three": "SELECT s.sku, s.day, d.name, i.cap FROM stocktake s JOIN item i USING (sku) LEFT JOIN depot d ON d.number = i.depot"
    " WHERE s.used > 10",
    "cross": "SELECT d.name, i.sku FROM depot d CROSS JOIN item i",
}


@pytest.fixture
def stock(database):
    connection = database.connect()
    connection.execute("""
        CREATE TABLE depot (number int PRIMARY KEY, name text NOT NULL);
        CREATE TABLE item (sku int PRIMARY KEY, depot int, cap int NOT NULL, pad text);
        CREATE TABLE stocktake (sku int NOT NULL, day int NOT NULL, used int CHECK (used > 0), pad text, PRIMARY KEY (sku, day));
        INSERT INTO depot SELECT n, 'depot ' || n FROM generate_series(1, 5) n;
        INSERT INTO item SELECT n, n % 7, 100 + n, repeat('.', 500) FROM generate_series(1, 200) n;
        INSERT INTO stocktake SELECT s, d, 1 + (s * d) % 97, repeat('.', 200) FROM generate_series(1, 250) s, generate_series(1, 4) d
            WHERE s % 3 > 0;
        ANALYZE""")
    return connection


@pytest.fixture
def stockinfo(stock):
    stock.execute("CREATE TABLE expected AS SELECT s.sku AS code, s.day, s.used, i.cap - s.used AS free, NULL AS audited_at FROM item i"
        " JOIN stocktake s USING (sku)")
    migrate(stock, STOCKINFO)
    return stock


def driver(connection, name):
    query = "SELECT old_tables[1]::regclass::text FROM bullfrog.target WHERE new_table = %s::regclass"
    return connection.execute(query, (name,)).fetchone()[0]


@pytest.mark.parametrize(("driving", "options"), [("item", ", driving => '{item}'"), ("stocktake", ", driving => '{stocktake}'"),
    ("stocktake", "")])
def test_a_foreign_key_join_moves_by_the_table_that_the_user_chooses(stock, driving, options):
    """By the table referred to, all rows of a key move together; by the referring one, those of its page only."""
    stock.execute(f"CREATE TABLE expected AS {JOINS['foreign_key']}")
    migrate(stock, f"CREATE TABLE t AS {JOINS['foreign_key']}", options=f"{options}, granularity => 'tuple'")
    assert driver(stock, "t") == driving
    stock.execute("SELECT FROM t WHERE sku = 10 AND day = 1 FOR UPDATE")
    assert (moved(stock), stock.execute("SELECT count(*) FROM bullfrog.moved").fetchone()) == (1, (1,))
    copied = stock.execute("SELECT rows_moved FROM bullfrog.progress").fetchone()
    assert copied == (4,) if driving == "item" else (1,)
    assert differing(stock, "t", "expected") == 0
    stock.execute("SELECT bullfrog.finish('m')")
    assert differing(stock, "t", "expected") == 0


@pytest.mark.parametrize(("driving", "query"), [("depot", JOINS["foreign_key"]), ("stocktake", JOINS["left"]),
    ("item", "SELECT s.sku, count(*) AS n FROM stocktake s JOIN item i USING (sku) GROUP BY s.sku")])
def test_a_table_that_cannot_drive_is_refused(stock, driving, query):
    for statement in ("SELECT bullfrog.migrate", "SELECT * FROM bullfrog.plan"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=driving):
            stock.execute(f"{statement}('m', %s, driving => ARRAY[%s])", (f"CREATE TABLE t AS {query}", driving))


def test_a_table_that_is_moved_by_itself_drives_no_join_if_another_can(stock):
    """Else who touches its rows alone would move those of the join, too."""
    join = "CREATE TABLE t AS SELECT a.sku, b.sku AS other FROM item a JOIN stocktake b ON b.day = a.depot"
    stock.execute("CREATE INDEX ON item (depot); CREATE INDEX ON stocktake (day)")
    plan = "SELECT new_table, old_tables[1]::regclass::text FROM bullfrog.plan('m', %s)"
    large = stock.execute("SELECT relname FROM pg_class WHERE relname IN ('item', 'stocktake') ORDER BY relpages DESC").fetchone()[0]
    assert stock.execute(plan, (join,)).fetchall() == [("public.t", large)]
    both = f"{join}; CREATE TABLE same AS SELECT * FROM {large}"
    small = "item" if large == "stocktake" else "stocktake"
    assert stock.execute(plan, (both,)).fetchall() == [("public.t", small), ("public.same", large)]


@pytest.mark.parametrize("query", JOINS.values(), ids=JOINS)
def test_each_row_of_a_join_is_there_once_before_while_and_after_it_moves(stock, query):
    stock.execute(f"CREATE TABLE expected AS {query}")
    migrate(stock, f"CREATE TABLE t AS {query}")
    assert differing(stock, "t", "expected") == 0
    stock.execute("SELECT FROM t WHERE sku = 10 FOR UPDATE" if "s.sku, " in query else "SELECT bullfrog.sweep(id, '{0}')"
        " FROM bullfrog.source")
    assert 0 < moved(stock) <= 2
    assert differing(stock, "t", "expected") == 0
    stock.execute("SELECT bullfrog.finish('m')")
    assert differing(stock, "t", "expected") == 0


def test_an_update_moves_the_page_of_its_row_whatever_table_its_condition_is_about(stockinfo):
    assert stockinfo.execute("UPDATE stockinfo SET audited_at = 'now' WHERE code = 50 AND day = 2").rowcount == 1
    assert moved(stockinfo) == 1
    free = stockinfo.execute("SELECT free FROM expected WHERE code = 199 AND day = 4").fetchone()
    changed = stockinfo.execute("UPDATE stockinfo SET audited_at = 'now' WHERE free = %s", free).rowcount
    stockinfo.execute("UPDATE expected SET audited_at = 'now' WHERE (code = 50 AND day = 2) OR free = %s", free)
    assert changed >= 1
    assert differing(stockinfo, "stockinfo", "expected") == 0
    stockinfo.execute("SELECT bullfrog.finish('m')")
    assert differing(stockinfo, "stockinfo", "expected") == 0


def test_keys_of_rows_that_were_not_moved_are_taken(stockinfo):
    with pytest.raises(psycopg.errors.UniqueViolation):
        stockinfo.execute("INSERT INTO stockinfo VALUES (50, 2)")
    stockinfo.execute("INSERT INTO stockinfo VALUES (50, 5)")
    stockinfo.execute("INSERT INTO expected VALUES (50, 5)")
    assert differing(stockinfo, "stockinfo", "expected") == 0


@pytest.mark.parametrize("table", ["item", "stocktake"])
def test_both_old_tables_are_closed_and_keep_their_form(stockinfo, table):
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=f"{table} is closed"):
        stockinfo.execute(f"SELECT * FROM {table}")
    with pytest.raises(psycopg.errors.ObjectInUse):
        stockinfo.execute(f"ALTER TABLE {table} ADD COLUMN more int")
    stockinfo.execute("SELECT bullfrog.finish('m')")
    assert stockinfo.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,)


def test_abort_opens_both_old_tables(stockinfo):
    stockinfo.execute("SELECT FROM stockinfo WHERE code = 50 FOR UPDATE")
    stockinfo.execute("SELECT bullfrog.abort('m')")
    assert stockinfo.execute("SELECT to_regclass('stockinfo'), count(*) FROM item JOIN stocktake USING (sku)").fetchone()[0] is None


def test_a_table_may_be_joined_and_move_by_itself_in_one_migration(stock):
    stock.execute("CREATE TABLE expected AS SELECT s.sku AS code, s.day, s.used, i.cap - s.used AS free, NULL AS audited_at FROM item i"
        " JOIN stocktake s USING (sku)")
    migrate(stock, STOCKINFO + "; CREATE TABLE article AS SELECT sku, cap FROM item; ALTER TABLE article ADD PRIMARY KEY (sku)")
    stock.execute("UPDATE article SET cap = 0 WHERE sku = 50")
    stock.execute("UPDATE stockinfo SET free = 0 WHERE code = 50 AND day = 1")
    stock.execute("UPDATE expected SET free = 0 WHERE code = 50 AND day = 1")
    assert differing(stock, "stockinfo", "expected") == 0
    stock.execute("SELECT bullfrog.finish('m')")
    assert differing(stock, "stockinfo", "expected") == 0
    assert stock.execute("SELECT count(*), count(*) FILTER (WHERE cap = 0) FROM article").fetchone() == (200, 1)


@pytest.mark.parametrize("join, kind, driving", [
    ("foreign_key", "foreign-key join", "stocktake"), ("many_to_many", "n:n", "stocktake"), ("left", "n:n", "item"),
    ("self", "foreign-key join", "item"),
    ("three", "foreign-key join", "stocktake"), ("cross", "n:n", "item"),
])
def test_the_plan_tells_the_kind_of_a_join_and_what_drives_it(stock, join, kind, driving):
    plan = stock.execute("SELECT kind, (old_tables)[1]::text, note FROM bullfrog.plan('m', %s)",
        (f"CREATE TABLE t AS {JOINS[join]}",)).fetchone()
    assert plan[:2] == (kind, driving)
    assert ("no index of public.item begins with depot" in plan[2]) == (join == "many_to_many")


def test_a_join_is_driven_by_the_table_from_which_an_index_leads_to_the_other(stock):
    """The other one has no index on the column, so that each move would read it as a whole."""
    stock.execute("CREATE TABLE pair (a int, b int, c int, PRIMARY KEY (a, b)); CREATE TABLE many (a int, pad text)")
    stock.execute("INSERT INTO pair SELECT n % 50, n, n FROM generate_series(1, 200) n")
    stock.execute("INSERT INTO many SELECT n % 50, repeat('.', 300) FROM generate_series(1, 400) n")
    definition = "CREATE TABLE t AS SELECT p.a, p.b, m.pad FROM pair p JOIN many m USING (a)"
    plan = "SELECT (old_tables)[1]::text, note FROM bullfrog.plan('m', %s)"
    assert stock.execute(plan, (definition,)).fetchone() == (
        "many",
        "moves by pages of public.many; while rows move, ORDER BY .. LIMIT, min and max read all that was not moved",
    )
    stock.execute("CREATE INDEX ON many (a); DROP TABLE pair; CREATE TABLE pair (a int, b int, c int, pad text DEFAULT repeat('.', 500))")
    stock.execute("INSERT INTO pair SELECT n % 50, n, n FROM generate_series(1, 200) n")
    assert stock.execute(plan, (definition,)).fetchone()[0] == "pair"


def test_a_key_that_a_join_repeats_stops_the_switch(stock):
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="unique index"):
        migrate(stock, f"CREATE TABLE t AS {JOINS['many_to_many']}; ALTER TABLE t ADD UNIQUE (sku, day)")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="NOT NULL of day"):
        migrate(stock, f"CREATE TABLE t AS {JOINS['left']}; ALTER TABLE t ALTER COLUMN day SET NOT NULL")


def test_tables_of_several_owners_are_refused(stock):
    stock.execute("BEGIN; CREATE ROLE somebody; ALTER TABLE item OWNER TO somebody")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="several owners"):
        migrate(stock, STOCKINFO)
    stock.execute("ROLLBACK")


KEYED = """
    CREATE TABLE line (number int PRIMARY KEY, sku int NOT NULL, note text);
    CREATE TABLE stock (sku int, place int, many int NOT NULL, PRIMARY KEY (sku, place));
    CREATE UNIQUE INDEX ON line (note COLLATE "POSIX");
    INSERT INTO line SELECT n, n % 20, 'note ' || n FROM generate_series(1, 300) n;
    INSERT INTO stock SELECT s, p, s * p FROM generate_series(0, 19) s, generate_series(1, 3) p
"""


def rows_read(connection, pattern="%"):
    """How many rows of tables this session has read, in transactions whose numbers are not with the server's yet."""
    query = """SELECT sum(COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0))::int FROM pg_stat_xact_user_tables
        WHERE schemaname = 'public' AND relname LIKE %s"""
    return connection.execute(query, (pattern,)).fetchone()[0]


def rows_read_by_a_switch(connection, definition, options=""):
    """The transaction is undone."""
    connection.execute("BEGIN")
    before = rows_read(connection)
    migrate(connection, definition, options=options)
    read = rows_read(connection) - before
    connection.execute("ROLLBACK")
    return read


@pytest.mark.parametrize(("query", "key"), [
    ("SELECT l.number, s.place, s.many FROM line l JOIN stock s USING (sku)", "number, place"),
    ("SELECT l.number, s.place, s.many FROM line l LEFT JOIN stock s USING (sku) WHERE l.number > 7", "place, number"),
    ("SELECT l.number, s.many FROM line l JOIN stock s ON s.sku = l.sku AND s.place = 2", "number"),
    ("SELECT a.number AS one, b.number AS two FROM line a CROSS JOIN line b", "one, two"),
    ("SELECT number, sku FROM line", "number, sku"),
    ("SELECT sku, count(*) AS n FROM line GROUP BY sku", "sku"),
])
def test_a_switch_reads_no_rows_for_a_key_that_old_keys_prove(database, query, key):
    """It has all clients wait: what it does must not grow with the tables."""
    connection = database.connect()
    connection.execute(KEYED)
    for live in ("", ", live => '{line}'"):
        assert rows_read_by_a_switch(connection, f"CREATE TABLE t AS {query}; CREATE UNIQUE INDEX ON t ({key})", options=live) == 0


@pytest.mark.parametrize(("query", "key"), [
    ("SELECT l.number, s.place, s.many FROM line l JOIN stock s USING (sku)", "number, many"),
    ("SELECT l.number, s.place, s.sku FROM line l JOIN stock s ON s.sku < l.sku", "number, place"),
    ("SELECT l.number + 0 AS number FROM line l", "number"),
    # Of another collation the old index says nothing, nor what it says of one that the new index does not have.
    ("SELECT note FROM line", "note"),
    ("SELECT note COLLATE \"POSIX\" AS note FROM line", "note COLLATE \"C\""),
])
def test_a_switch_checks_a_key_that_old_keys_do_not_prove(database, query, key):
    connection = database.connect()
    connection.execute(KEYED)
    try:
        assert rows_read_by_a_switch(connection, f"CREATE TABLE t AS {query}; CREATE UNIQUE INDEX ON t ({key})") > 0
    except psycopg.errors.IntegrityConstraintViolation:
        pass


@pytest.mark.parametrize("options", ["", ", live => '{stocktake}'", ", live => '{item}'", ", granularity => 'tuple'"])
def test_who_writes_by_a_key_of_the_driving_table_reads_that_table_alone(stock, options):
    """To look whether a key is taken, and which pages must move: what else the rows are made of does not matter."""
    migrate(stock, STOCKINFO, options=options)
    # The server takes numbers between transactions only.
    stock.execute("BEGIN")
    before = rows_read(stock, "item")
    assert stock.execute("UPDATE stockinfo SET used = 3 WHERE code = 2 AND day = 3").rowcount == 1
    stock.execute("SAVEPOINT s")
    with pytest.raises(psycopg.errors.UniqueViolation):
        stock.execute("INSERT INTO stockinfo (code, day, used) VALUES (250, 2, 1), (200, 2, 1)")
    stock.execute("ROLLBACK TO s")
    assert rows_read(stock, "item") == before
    # Columns of the other table lead there.
    assert stock.execute("UPDATE stockinfo SET used = used WHERE code = 100 AND free > 0").rowcount == 4
    assert rows_read(stock, "item") > before
    stock.execute("ROLLBACK")
