"""Joins by key with new tables whose old rows the server does not see as a table: they are looked up, where that is cheaper than to read all."""

import re

import pytest

from conftest import migrate

TABLES = {
    "sale": "CREATE TABLE {0} AS SELECT shop, number, sum(amount) AS amount, count(*) AS lines FROM line GROUP BY shop, number",
    "line_item": "CREATE TABLE {0} AS SELECT l.shop, l.number, l.position, l.amount, i.title FROM line l JOIN item i USING (sku)",
    "line_item_or_none": "CREATE TABLE {0} AS SELECT l.shop, l.number, l.position, l.amount, i.title FROM line l LEFT JOIN item i ON i.sku = l.sku",
    "priced": "CREATE TABLE {0} AS SELECT shop, number, position, amount * 2 AS amount FROM line",
}
KEYS = {"sale": "shop, number"}
OPTIONS = {"priced": ", checks => 'quarantine', like => false"}


@pytest.fixture
def shop(database):
    return fill(database.connect(), 300)


@pytest.fixture
def large_shop(database):
    return fill(database.connect(), 2000)


def fill(connection, numbers):
    connection.execute(f"""
        CREATE TABLE line (shop int, number int, position int, sku int, amount numeric NOT NULL, PRIMARY KEY (shop, number, position));
        INSERT INTO line SELECT i % 5, i, p, nullif((i * 3 + p) % 100, 7), i % 13 FROM generate_series(1, {numbers}) i, generate_series(1, 3) p WHERE i % 7 >= p;
        CREATE TABLE item (sku int PRIMARY KEY, title text); INSERT INTO item SELECT i, 'title ' || i FROM generate_series(0, 90) i;
        CREATE TABLE visit (id int PRIMARY KEY, shop int, number int, price numeric);
        INSERT INTO visit SELECT i, i % 5, nullif(i * 3, 30), i % 13 FROM generate_series(1, {numbers}) i; ANALYZE""")
    return connection


def begin(shop, name):
    """The migration, with some rows moved, changed, deleted and new; and a table that has all of it."""
    key = KEYS.get(name, "shop, number, position")
    migrate(shop, f"{TABLES[name].format(name)}; ALTER TABLE {name} ADD PRIMARY KEY ({key})", options=OPTIONS.get(name, ""))
    shop.execute(f"CREATE TABLE expected AS SELECT * FROM {name}; ALTER TABLE expected ADD PRIMARY KEY ({key})")
    for table in (name, "expected"):
        shop.execute(f"DELETE FROM {table} WHERE shop = 1 AND number = 6; UPDATE {table} SET amount = -1 WHERE shop = 2 AND number BETWEEN 10 AND 20; "
            f"UPDATE {table} SET number = 12001 WHERE number = 24; INSERT INTO {table} SELECT 9, i, 1 FROM generate_series(8000, 8010) i")
    shop.execute("ANALYZE expected")


def answer(shop, query):
    """What a query gives; what it does is undone."""
    with shop.transaction(force_rollback=True):
        return sorted(map(repr, shop.execute(query).fetchall()))


FEW = {
    "inner": "SELECT v.id, t.* FROM visit v JOIN {} t ON t.shop = v.shop AND t.number = v.number WHERE v.id < 9",
    "from": "SELECT v.id, t.* FROM {} t, visit v WHERE v.shop = t.shop AND v.number = t.number AND v.id IN (2, 8, 11)",
    "using": "SELECT * FROM {} t JOIN visit v USING (shop, number) WHERE v.id < 9",
    "left": "SELECT v.id, t.* FROM visit v LEFT JOIN {} t ON t.shop = v.shop AND t.number = v.number AND t.amount > 1 WHERE v.id < 9",
    "left of a join": "SELECT v.id, t.* FROM visit v JOIN visit w ON w.id = v.id + 1 LEFT JOIN {} t ON t.shop = v.shop AND t.number = w.number WHERE v.id < 9",
    "in a subquery": "SELECT * FROM (SELECT v.id, t.amount FROM visit v JOIN {} t USING (shop, number)) q WHERE id < 9",
    "in a CTE": "WITH q AS MATERIALIZED (SELECT v.id, t.amount FROM visit v JOIN {} t USING (shop, number) WHERE v.id < 9) SELECT * FROM q",
    "exists": "SELECT v.id FROM visit v WHERE v.id < 9 AND EXISTS (SELECT FROM {} t WHERE t.shop = v.shop AND t.number = v.number AND t.amount > 1)",
    "not exists": "SELECT v.id FROM visit v WHERE v.id < 9 AND NOT EXISTS (SELECT FROM {} t WHERE t.shop = v.shop AND t.number = v.number)",
    "in": "SELECT v.id FROM visit v WHERE v.id < 9 AND v.number IN (SELECT t.number FROM {} t WHERE t.shop = 2)",
    "both in": "SELECT v.id FROM visit v WHERE v.id < 9 AND (v.shop, v.number) IN (SELECT t.shop, t.number FROM {} t WHERE t.amount > 1)",
    "in what is joined": "SELECT v.id FROM visit v WHERE v.id < 9 AND v.shop IN (SELECT w.shop FROM visit w JOIN {} t USING (shop, number) WHERE w.id = v.id)",
    "a column": "SELECT v.id, (SELECT max(t.amount) FROM {} t WHERE t.shop = v.shop AND t.number = v.number) FROM visit v WHERE v.id < 9",
    "three": "SELECT v.id, t.*, u.amount FROM visit v JOIN {0} t USING (shop, number) JOIN {0} u ON u.shop = t.shop AND u.number = t.number WHERE v.id < 9",
}
MORE = {
    "all": "SELECT v.id, t.* FROM visit v JOIN {} t ON t.shop = v.shop AND t.number = v.number",
    "each other": "SELECT t.*, u.shop FROM {0} t JOIN {0} u ON t.number = u.number AND t.shop = u.shop",
    "a circle of three": "SELECT t.*, u.shop, w.number FROM {0} t, {0} u, {0} w WHERE t.number = u.number AND u.shop = w.shop AND w.number = t.number "
        "AND t.shop = u.shop",
    "one of each other": "SELECT t.*, u.shop FROM {0} t JOIN {0} u ON t.number = u.number AND t.shop = u.shop WHERE u.number = 77",
    "right": "SELECT v.id, t.* FROM {} t RIGHT JOIN visit v ON t.shop = v.shop AND t.number = v.number",
    "left, and first": "SELECT v.id, t.* FROM {} t LEFT JOIN visit v ON t.shop = v.shop AND t.number = v.number",
    "left, and first, with a condition on both": "SELECT v.id, t.* FROM {} t LEFT JOIN visit v ON t.shop = v.shop WHERE t.number = v.number",
    "left, with a condition on both": "SELECT v.id, t.* FROM visit v LEFT JOIN {} t ON t.shop = v.shop WHERE t.number = v.number",
    "left, with what may be missing": "SELECT v.id, t.* FROM visit v LEFT JOIN visit w ON w.id = v.id + 290 LEFT JOIN {} t ON t.number = w.number",
    "left, and nothing found": "SELECT v.id FROM visit v LEFT JOIN {} t ON t.shop = v.shop AND t.number = v.number WHERE t.shop IS NULL",
    "full": "SELECT v.id, t.* FROM visit v FULL JOIN {} t ON t.shop = v.shop AND t.number = v.number",
    "a join within a left one": "SELECT v.id, t.* FROM visit v LEFT JOIN (visit w JOIN {} t ON t.number = w.number) ON w.id = v.id AND t.shop = v.shop",
    "by an equality that is not leakproof": "SELECT v.id, t.* FROM visit v JOIN {} t ON t.amount = v.price AND t.number = v.number WHERE v.id < 100",
    "exists, all": "SELECT v.id FROM visit v WHERE EXISTS (SELECT FROM {} t WHERE t.shop = v.shop AND t.number = v.number)",
    "not exists, all": "SELECT v.id FROM visit v WHERE NOT EXISTS (SELECT FROM {} t WHERE t.shop = v.shop AND t.number = v.number)",
    "not in": "SELECT v.id FROM visit v WHERE v.number NOT IN (SELECT t.number FROM {} t WHERE t.shop = 2)",
    "in, or": "SELECT v.id FROM visit v WHERE v.number IN (SELECT t.number FROM {} t WHERE t.shop = 2) OR v.shop = 4",
    "is in": "SELECT v.id, v.number IN (SELECT t.number FROM {} t WHERE t.shop = 2) FROM visit v",
    "in the first": "SELECT v.id FROM visit v WHERE v.number IN (SELECT t.number FROM {} t ORDER BY t.number DESC, t.shop LIMIT 20)",
    "in the greatest": "SELECT v.id FROM visit v WHERE v.number IN (SELECT max(t.number) FROM {} t WHERE t.number < 200)",
    "in the greatest of each": "SELECT v.id FROM visit v WHERE v.number IN (SELECT max(t.number) FROM {} t WHERE t.number < 200 GROUP BY t.shop)",
    "in several": "SELECT v.id FROM visit v WHERE v.number IN (SELECT t.number FROM {0} t WHERE shop = 1 UNION ALL SELECT t.shop FROM {0} t)",
    "in each one": "SELECT v.id FROM visit v WHERE v.shop IN (SELECT DISTINCT ON (t.shop) t.number FROM {} t ORDER BY t.shop, t.number)",
    "few in the first": "SELECT v.id FROM visit v WHERE v.id IN (3, 8) AND (v.shop, v.number) IN (SELECT t.shop, t.number FROM {} t ORDER BY t.number DESC, t.shop LIMIT 20)",
    "few in the greatest of each": "SELECT v.id FROM visit v WHERE v.id IN (3, 8) AND (v.shop, v.number) IN (SELECT t.shop, max(t.number) FROM {} t GROUP BY t.shop)",
    "few not in": "SELECT v.id FROM visit v WHERE v.id IN (3, 10) AND (v.shop, v.number) NOT IN (SELECT t.shop, t.number FROM {} t)",
    "less than any": "SELECT v.id FROM visit v WHERE v.number < ANY (SELECT t.number FROM {} t WHERE t.shop = 2)",
    "in, of rows to be written": "WITH d AS (DELETE FROM visit v WHERE v.id > 250 AND v.number IN (SELECT t.number FROM {} t WHERE t.shop = 2) RETURNING id) SELECT * FROM d",
    "summed": "SELECT t.shop, count(*), sum(v.price) FROM visit v JOIN {} t ON t.shop = v.shop AND t.number = v.number GROUP BY t.shop",
}


@pytest.mark.parametrize("name", TABLES)
def test_old_rows_are_looked_up_for_few_rows_of_another_table(large_shop, name):
    shop = large_shop
    begin(shop, name)
    for what, query in FEW.items():
        plan = "\n".join(line for line, in shop.execute("EXPLAIN " + query.format(name)))
        assert not re.search(r"Seq Scan on line\b", plan), (what, plan)
        assert answer(shop, query.format(name)) == answer(shop, query.format("expected")), what


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("cheapest", ["as it is", "by key"])
def test_whatever_joins_them_all_rows_are_there(shop, name, cheapest):
    begin(shop, name)
    if cheapest == "by key":
        shop.execute("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off")
    for what, query in (FEW | MORE).items():
        rows = answer(shop, query.format(name))
        shop.execute("SET enable_hashjoin = on; SET enable_mergejoin = on")
        assert rows == answer(shop, query.format("expected")), what
        if cheapest == "by key":
            shop.execute("SET enable_hashjoin = off; SET enable_mergejoin = off")


def test_all_rows_of_another_table_do_not_look_up_each(large_shop):
    begin(large_shop, "sale")
    plan = "\n".join(line for line, in large_shop.execute("EXPLAIN " + MORE["all"].format("sale")))
    assert re.search(r"Seq Scan on line\b|Index Scan using line_pkey on line\b(?!.*\n *Index Cond)", plan), plan


def test_a_prepared_statement_looks_up_what_was_not_moved_then(shop):
    begin(shop, "sale")
    query = FEW["inner"].replace("v.id < 9", "v.id = %s")
    expected = [sorted(map(repr, shop.execute(query.format("expected"), (i,)))) for i in range(1, 30)]
    found = []
    for i in range(1, 30):
        found.append(sorted(map(repr, shop.execute(query.format("sale"), (i,), prepare=True))))
        if i % 5 == 0:
            shop.execute("SELECT bullfrog.sweep(id, ARRAY[%s]) FROM bullfrog.source", (i // 5 - 1,))
    assert found == expected
