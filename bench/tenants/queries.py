"""Processor time per query of tenants beside PostgreSQL 15: 60 queries over three tables of 100,000 rows (bench/METHOD.md).

    bench/tenants/queries.py [--pairs 7] [--seconds 1] [--rows 100000] [--query WORD ..] [--explain]

The queries are of the kinds that a planner decides: which index, which order, what first. Before a query is measured, both have to give the
same answer. Servers, cores and processor time are those of `run.py`. `--query` takes those with a word in their names; `--explain` shows both
plans and measures nothing. Appends to bench/results/tenants_queries.jsonl, if all were measured, and prints a table.
"""

import argparse
import pathlib
import statistics
import tempfile
import types

from run import compare
from servers import PostgreSQL, Savanna, build, record

# Of all queries together, times PostgreSQL's: none above the first, the median at most the second.
WORST, MEDIAN = 3.0, 1.2

TABLES = """
CREATE TABLE customer (id int PRIMARY KEY, region int NOT NULL, score int, name text NOT NULL);
CREATE TABLE purchase (id int PRIMARY KEY, customer_id int NOT NULL REFERENCES customer, day date NOT NULL, amount numeric(10,2) NOT NULL, status text NOT NULL);
CREATE TABLE item (id int PRIMARY KEY, purchase_id int NOT NULL REFERENCES purchase, kind int NOT NULL, quantity int NOT NULL, weight double precision);
INSERT INTO customer SELECT g, g * 7 % 100, nullif(g * 7919 % 10007, 0), 'name ' || g * 31 % 100003 FROM generate_series(1, :rows) g;
INSERT INTO purchase SELECT g, 1 + g * 7919::bigint % :rows, '2020-01-01'::date + g * 37 % 2000, (g * 7907::bigint % 1000003) / 100.0,
    (ARRAY['open', 'paid', 'sent', 'done', 'done', 'done', 'done', 'done', 'done', 'done'])[1 + g % 10] FROM generate_series(1, :rows) g;
INSERT INTO item SELECT g, 1 + g * 6007::bigint % :rows, g % 50, 1 + g * 13 % 97, g * 17 % 1009 / 7.0 FROM generate_series(1, :rows) g;
CREATE INDEX customer_region ON customer (region);
CREATE INDEX customer_score ON customer (score);
CREATE INDEX purchase_customer ON purchase (customer_id);
CREATE INDEX purchase_day ON purchase (day);
CREATE INDEX item_purchase ON item (purchase_id);
CREATE INDEX item_kind ON item (kind, quantity);
"""

QUERIES = {
    # Orders that an index has, and others.
    "order_index": "SELECT id, score FROM customer ORDER BY score, id LIMIT 10",
    "order_index_alone": "SELECT score FROM customer ORDER BY score LIMIT 10",
    "order_index_descending": "SELECT day FROM purchase ORDER BY day DESC LIMIT 10",
    "order_index_offset": "SELECT day FROM purchase ORDER BY day LIMIT 10 OFFSET 1000",
    "order_index_two": "SELECT kind, quantity FROM item ORDER BY kind DESC, quantity DESC LIMIT 10",
    "order_index_filter": "SELECT day FROM purchase WHERE status = 'open' ORDER BY day DESC LIMIT 20",
    "order_index_behind_equal": "SELECT quantity FROM item WHERE kind = 7 ORDER BY quantity DESC LIMIT 5",
    "order_index_range": "SELECT day FROM purchase WHERE day > '2023-01-01' ORDER BY day LIMIT 10",
    "order_index_join": "SELECT p.day FROM purchase p JOIN customer c ON c.id = p.customer_id ORDER BY p.day DESC LIMIT 10",
    "order_key": "SELECT * FROM customer ORDER BY id DESC LIMIT 10",
    "top": "SELECT id, amount FROM purchase ORDER BY amount DESC, id LIMIT 10",
    "top_computed": "SELECT id FROM purchase ORDER BY amount % 100, id LIMIT 10",
    "top_groups": "SELECT customer_id, sum(amount) FROM purchase GROUP BY customer_id ORDER BY 2 DESC, 1 LIMIT 10",
    "sort": "SELECT id FROM item ORDER BY weight, id OFFSET 99990",
    # The smallest and the largest.
    "max_key": "SELECT max(id) FROM purchase",
    "min_index": "SELECT min(score) FROM customer",
    "max_index": "SELECT max(score) FROM customer",
    "min_max": "SELECT min(day), max(day) FROM purchase",
    "max_behind_equal": "SELECT max(quantity) FROM item WHERE kind = 7",
    "max_filter": "SELECT max(day) FROM purchase WHERE status = 'open'",
    "max_within": "SELECT c.id, (SELECT max(p.day) FROM purchase p WHERE p.customer_id = c.id) FROM customer c WHERE c.id < 100 ORDER BY 1",
    # Lists.
    "in_key": "SELECT id, name FROM customer WHERE id IN (5, 50, 500, 5000, 50000) ORDER BY id",
    "in_index": "SELECT count(*) FROM item WHERE kind IN (3, 13, 23)",
    "in_long": f"SELECT count(*) FROM item WHERE quantity IN ({', '.join(str(3 * number) for number in range(200))})",
    "in_long_key": f"SELECT count(*) FROM item WHERE id IN ({', '.join(str(7 * number) for number in range(500))})",
    "any_array": f"SELECT count(*) FROM item WHERE quantity = ANY ('{{{','.join(str(3 * number) for number in range(200))}}}')",
    "or_indexes": "SELECT id FROM customer WHERE id = 77 OR score = 77 ORDER BY id",
    "not_in": f"SELECT count(*) FROM item WHERE quantity NOT IN ({', '.join(str(3 * number) for number in range(30))})",
    # Conditions on what is computed.
    "into_group": "SELECT * FROM (SELECT customer_id, count(*), sum(amount) FROM purchase GROUP BY customer_id) q WHERE customer_id = 77",
    "into_having": "SELECT customer_id, count(*) FROM purchase GROUP BY customer_id HAVING customer_id BETWEEN 70 AND 80 ORDER BY 1",
    "into_distinct": "SELECT * FROM (SELECT DISTINCT kind, quantity FROM item) q WHERE kind = 7 ORDER BY quantity",
    "into_window": "SELECT * FROM (SELECT id, customer_id, row_number() OVER (PARTITION BY customer_id ORDER BY day, id) FROM purchase) q WHERE customer_id = 77",
    "into_union_all": "SELECT count(*) FROM (SELECT id, score AS n FROM customer UNION ALL SELECT id, quantity FROM item) q WHERE id = 77",
    "into_union": "SELECT count(*) FROM (SELECT region AS n FROM customer UNION SELECT kind FROM item) q WHERE n = 7",
    "into_with": "WITH q AS (SELECT customer_id, max(day) AS day FROM purchase GROUP BY customer_id) SELECT * FROM q WHERE customer_id = 77",
    "into_limited": "SELECT * FROM (SELECT * FROM purchase ORDER BY day DESC, id LIMIT 50) q WHERE status = 'open' ORDER BY id",
    # Joins.
    "join_key": "SELECT c.name, p.amount FROM purchase p JOIN customer c ON c.id = p.customer_id WHERE p.id = 77",
    "join_index": "SELECT c.name, p.amount FROM purchase p JOIN customer c ON c.id = p.customer_id WHERE c.id = 77",
    "join_all": "SELECT count(*), sum(p.amount) FROM purchase p JOIN customer c ON c.id = p.customer_id",
    "join_few_first": "SELECT count(*) FROM purchase p JOIN item i ON i.purchase_id = p.id WHERE i.kind = 7 AND i.quantity = 50",
    "join_unindexed": "SELECT count(*) FROM item i JOIN customer c ON c.region = i.kind WHERE c.name = 'name 31'",
    "join_values": "SELECT c.name FROM customer c JOIN (VALUES (5), (50), (500)) v (id) ON v.id = c.id ORDER BY 1",
    "join_three": "SELECT c.region, sum(i.quantity) FROM item i JOIN purchase p ON p.id = i.purchase_id JOIN customer c ON c.id = p.customer_id "
                  "WHERE c.region = 7 GROUP BY c.region",
    "join_three_few": "SELECT i.id FROM customer c JOIN purchase p ON p.customer_id = c.id JOIN item i ON i.purchase_id = p.id WHERE c.name = 'name 77' ORDER BY 1",
    "join_group": "SELECT c.region, count(*) FROM customer c JOIN purchase p ON p.customer_id = c.id GROUP BY c.region ORDER BY 1",
    "join_grouped": "SELECT c.name, q.n FROM customer c JOIN (SELECT customer_id, count(*) AS n FROM purchase GROUP BY customer_id) q ON q.customer_id = c.id "
                    "WHERE c.id BETWEEN 70 AND 80 ORDER BY 1",
    "left_join": "SELECT count(*), count(p.id) FROM customer c LEFT JOIN purchase p ON p.customer_id = c.id WHERE c.region = 7",
    "left_join_strict": "SELECT count(*) FROM customer c LEFT JOIN purchase p ON p.customer_id = c.id WHERE p.day = '2021-05-05'",
    "anti_join": "SELECT count(*) FROM customer c WHERE NOT EXISTS (SELECT 1 FROM purchase p WHERE p.customer_id = c.id AND p.status = 'open')",
    "semi_join": "SELECT count(*) FROM customer c WHERE EXISTS (SELECT 1 FROM purchase p WHERE p.customer_id = c.id AND p.amount > 9990)",
    "semi_join_in": "SELECT count(*) FROM purchase WHERE customer_id IN (SELECT id FROM customer WHERE score = 77)",
    "lateral_values": "SELECT count(*), sum(v.n) FROM item i, LATERAL (VALUES (i.kind), (i.quantity)) v (n)",
    "lateral_limit": "SELECT c.id, q.day FROM customer c, LATERAL (SELECT day FROM purchase p WHERE p.customer_id = c.id ORDER BY day DESC LIMIT 1) q "
                     "WHERE c.id < 100 ORDER BY 1",
    # All rows.
    "count": "SELECT count(*) FROM item",
    "sum_filter": "SELECT sum(quantity), avg(weight) FROM item WHERE weight > 70",
    "group": "SELECT kind, count(*), sum(quantity), avg(weight) FROM item GROUP BY kind ORDER BY 1",
    "distinct": "SELECT count(*) FROM (SELECT DISTINCT quantity FROM item) q",
    "window_running": "SELECT max(s) FROM (SELECT sum(quantity) OVER (PARTITION BY kind ORDER BY id) AS s FROM item) q",
    "window_frame": "SELECT max(s) FROM (SELECT sum(quantity) OVER (ORDER BY id ROWS 100 PRECEDING) AS s FROM item) q",
    "window_first": "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY day, id) AS n FROM purchase) q WHERE n <= 10",
}  # fmt: skip


def fill(server, rows):
    for text in (TABLES.replace(":rows", str(rows)), "VACUUM ANALYZE"):
        done = server.psql(text)
        if done.returncode != 0:
            raise SystemExit(f"{type(server).__name__}: {done.stderr}")


def check(servers, name, query):
    """Both give the same answer."""
    answers = [server.psql(query) for server in servers]
    if answers[0].stdout != answers[1].stdout or any(answer.returncode != 0 for answer in answers):
        raise SystemExit(f"{name}: {query}\n" + "\n".join((answer.stdout or answer.stderr)[:500] for answer in answers))


def explain(servers, name, query):
    print(f"-- {name}: {query[:200]}")
    for server in servers:
        print(f"{type(server).__name__}\n" + server.psql(f"EXPLAIN (COSTS OFF) {query}").stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--query", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--explain", action="store_true")
    options = parser.parse_args()
    chosen = {name: query for name, query in QUERIES.items() if any(word in name for word in options.query)}
    Savanna.binary, commit, profile = build()
    where = {**record.circumstances(commit, profile), "pairs": options.pairs, "rows": options.rows}
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.pairs} pairs, {options.rows} rows\n")
    servers = [Savanna(), PostgreSQL()]
    for server in servers:
        fill(server, options.rows)
    if options.explain:
        for name, query in chosen.items():
            explain(servers, name, query)
        chosen = {}
    else:
        print("| query | ours, µs | theirs, µs | ratio | interval | |\n|---|---|---|---|---|---|")
    results = []
    with tempfile.TemporaryDirectory() as scripts:
        script = pathlib.Path(scripts, "query")
        for name, query in chosen.items():
            check(servers, name, query)
            script.write_text(query + ";\n")
            figure = compare(servers, script, "simple", 1, types.SimpleNamespace(seconds=options.seconds, pairs=options.pairs))
            ratio = figure["ratio"]
            results.append({"query": name, "bar": WORST, **figure})
            print(f"| {name} | {figure['ours']:.0f} | {figure['theirs']:.0f} | {ratio['median']:.2f} | {ratio['low']:.2f}-{ratio['high']:.2f} "
                  f"| {'met' if ratio['high'] <= WORST else 'missed'} |", flush=True)  # fmt: skip
    for server in servers:
        server.stop()
    if results:
        median = statistics.median(result["ratio"]["median"] for result in results)
        print(f"\n{len(results)} queries, median of their ratios {median:.2f} (bar {MEDIAN})")
    if len(results) == len(QUERIES):
        record.keep("tenants_queries", where, results)


if __name__ == "__main__":
    main()
