"""Random windowed queries over random out-of-order rows in several files: the stream equals the batch.

A row is late for a window when the window ended at or before the running watermark of the row's own file (largest event time
so far in that file, less the delay), at any parallelism. DuckDB computes that rule with a window function over the row numbers.
"""

import random

import pyarrow
import pyarrow.parquet
import pytest

from conftest import CASES, MODES, ON_FUNCTIONS, assert_same_rows

BASE_MS = 1_700_000_000_000

TYPES = {"id": "BIGINT", "ts": "TIMESTAMP(3)", "k": "BIGINT", "name": "VARCHAR", "v": "BIGINT", "x": "DOUBLE"}
AGGREGATES = [
    ("count(*)", "c", "BIGINT"),
    ("count(v)", "cv", "BIGINT"),
    ("sum(v)", "s", "BIGINT"),
    ("min(v)", "mn", "BIGINT"),
    ("max(name)", "mx", "VARCHAR"),
    ("avg(x)", "a", "DOUBLE"),
    ("count(DISTINCT v)", "d", "BIGINT"),
    ("count(*) FILTER (WHERE v > 0)", "f", "BIGINT"),
    ("sum(x) FILTER (WHERE k <> 3)", "fx", "DOUBLE"),
]
FILTERS = ["", "WHERE v > -500", "WHERE k IS NOT NULL AND k <> 5", "WHERE name LIKE 'a%' OR x < 30", "WHERE upper(name) = 'B'"]
KEYS = [[], ["k"], ["name"], ["k", "name"]]


def interval(ms):
    return f"INTERVAL '{ms / 1000}' SECOND"


class Input:
    """A table of random rows that drift forward in time, in several files, with some values NULL."""

    def __init__(self, rng, directory, name, late=True):
        self.name = name
        self.directory = directory / name
        self.late = directory / f"{name}-late" if late else None
        self.files = rng.choice([1, 2, 5])
        self.delay = rng.choice([0, 100, 2_000, 10_000])
        self.directory.mkdir()
        rows = rng.choice([10, 500, 4_000])
        for number in range(self.files):
            self.write(rng, number, rows)

    def write(self, rng, number, rows):
        clock = BASE_MS
        columns = {column: [] for column in TYPES}
        for row in range(rows):
            clock += rng.choice([0, 1, 3, 10, 40, rng.choice([0, 0, 700])])
            columns["id"].append(number * 1_000_000 + row)
            columns["ts"].append(clock - rng.choice([0, 0, 0, 5, 200, 3_000]))
            columns["k"].append(rng.choice([None, *range(12)]))
            columns["name"].append(rng.choice(["a", "b", "ä", "", None]))
            columns["v"].append(rng.choice([None, rng.randint(-1000, 1000)]))
            columns["x"].append(rng.random() * 100)
        types = {"ts": pyarrow.timestamp("ms"), "name": pyarrow.string(), "x": pyarrow.float64()}
        table = pyarrow.table({c: pyarrow.array(values, types.get(c, pyarrow.int64())) for c, values in columns.items()})
        pyarrow.parquet.write_table(table, self.directory / f"part-{number}.parquet")

    def declaration(self):
        """The table, and the table of its late rows."""
        columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
        late = f"""CREATE TABLE {self.name}_late ({columns})
                WITH ('connector' = 'file', 'path' = '{self.late}', 'format' = 'parquet');"""
        side = f", 'late-data' = 'side:{self.name}_late'"
        return f"""
            {late if self.late else ''}
            CREATE TABLE {self.name} ({columns}, WATERMARK FOR ts AS ts - {interval(self.delay)})
                WITH ('connector' = 'file', 'path' = '{self.directory}', 'format' = 'parquet'{side if self.late else ''});
        """

    def place(self, duck):
        """Gives DuckDB the rows, each with its file's running watermark."""
        reads = " UNION ALL ".join(
            f"SELECT *, {n} AS file, file_row_number AS row"
            f" FROM read_parquet('{self.directory}/part-{n}.parquet', file_row_number = true)"
            for n in range(self.files)
        )
        duck.sql(f"""CREATE TABLE {self.name}_placed AS
            SELECT *, epoch_ms(ts) AS ms,
                max(epoch_ms(ts)) OVER (PARTITION BY file ORDER BY row) - {self.delay} AS watermark
            FROM ({reads})""")


class Windows:
    """A window function of fixed windows, in both systems' words."""

    KINDS = ("TUMBLE", "HOP", "CUMULATE")

    def __init__(self, rng):
        self.kind = rng.choice(self.KINDS)
        self.size = rng.choice([50, 1_000, 10_000])
        self.step = self.size if self.kind == "TUMBLE" else rng.choice([self.size // 2, self.size // 5, self.size // 5 * 2])
        if self.kind == "CUMULATE":
            self.step = rng.choice([self.size // 2, self.size // 5])

    def stream(self, table):
        lengths = interval(self.size) if self.kind == "TUMBLE" else f"{interval(self.step)}, {interval(self.size)}"
        return f"TABLE({self.kind}(TABLE {table}, DESCRIPTOR(ts), {lengths}))"

    def batch(self, duck, table):
        """Gives DuckDB the rows in their windows, and those that are late for all of them."""
        size, step = self.size, self.step
        first = f"(ms // {step}) * {step}"
        if self.kind == "CUMULATE":
            base = f"(ms // {size}) * {size}"
            windows = f"SELECT {base} AS s, unnest(range({first} + {step}, {base} + {size} + 1, {step})) AS e"
        else:
            windows = f"SELECT unnest(range({first} - ({size} // {step} + 1) * {step}, ms + 1, {step})) AS s, s + {size} AS e"
        duck.sql(f"""
            CREATE TABLE {table}_windowed AS
            SELECT make_timestamp_ms(s) AS window_start, make_timestamp_ms(e) AS window_end, * EXCLUDE (s, e)
            FROM ({windows}, * FROM {table}_placed) WHERE s <= ms AND ms < e AND e > watermark;
        """)

    def __str__(self):
        return f"{self.kind} {self.step} {self.size}"


class Case:
    """What all random queries have in common."""

    def __init__(self, case, duck, run_script, tmp_path):
        self.rng = random.Random(case)
        self.duck, self.run_script, self.tmp_path = duck, run_script, tmp_path
        self.settings = {
            "parallelism": self.rng.choice([1, 2, 3]),
            "group-size": self.rng.choice([1, 2, 4]),
            "epoch-events": self.rng.choice([7, 100, 3_000, 1_000_000]),
        }
        if ON_FUNCTIONS:
            # Each epoch is a call of each function.
            self.settings["epoch-events"] = max(self.settings["epoch-events"], 500)
        self.mode = self.rng.choice(MODES)

    def input(self, name, late=True):
        return Input(self.rng, self.tmp_path, name, late)

    def run(self, inputs, columns, query, views=""):
        """Runs the query into a table of these columns; returns what reads it in DuckDB."""
        self.query = query
        settings = "".join(f"SET '{name}' = '{value}';" for name, value in self.settings.items())
        self.run_script(f"""
            {settings} {self.mode}
            {''.join(table.declaration() for table in inputs)}
            CREATE TABLE result ({columns})
                WITH ('connector' = 'file', 'path' = '{self.tmp_path}/out', 'format' = 'parquet');
            {views}
            INSERT INTO result {query}
        """)
        for table in inputs:
            table.place(self.duck)
        if not any((self.tmp_path / "out").glob("*.parquet")):
            self.duck.sql(f"CREATE TABLE nothing ({columns.replace('TIMESTAMP(3)', 'TIMESTAMP')})")
            return "SELECT * FROM nothing"
        return f"SELECT * FROM read_parquet('{self.tmp_path}/out/*.parquet')"

    def check(self, got, expected):
        assert_same_rows(self.duck, got, expected, f"{self.settings} {self.mode}\n{self.query}")

    def check_late(self, table, in_a_window):
        """The side table holds the rows that are in no window."""
        if not any(table.late.glob("*.parquet")):
            got = f"SELECT * FROM {table.name}_placed LIMIT 0"
        else:
            got = f"SELECT * FROM read_parquet('{table.late}/*.parquet')"
        columns = ", ".join(TYPES)
        self.check(
            f"SELECT {columns} FROM ({got})",
            f"SELECT {columns} FROM {table.name}_placed WHERE id NOT IN (SELECT id FROM {in_a_window})",
        )


@pytest.fixture
def random_case(duck, run_script, tmp_path):
    return lambda case: Case(case, duck, run_script, tmp_path)


def listed(items):
    return "".join(f", {item}" for item in items)


@pytest.mark.parametrize("number", range(CASES))
def test_an_aggregate_of_windows(number, random_case):
    case = random_case(number)
    table = case.input("t")
    windows, keys, where = Windows(case.rng), case.rng.choice(KEYS), case.rng.choice(FILTERS)
    chosen = case.rng.sample(AGGREGATES, case.rng.randint(1, 4))
    columns = [f"{key} {TYPES[key]}" for key in keys] + [f"{name} {kind}" for _, name, kind in chosen]
    select = f"SELECT window_start AS ws, window_end AS we{listed(keys)}{listed(f'{sql} AS {name}' for sql, name, _ in chosen)}"
    rest = f"{where} GROUP BY window_start, window_end{listed(keys)}"
    got = case.run(
        [table], f"ws TIMESTAMP(3), we TIMESTAMP(3){listed(columns)}", f"{select} FROM {windows.stream('t')} {rest}"
    )
    windows.batch(case.duck, "t")
    case.check(got, f"{select} FROM t_windowed {rest}")
    if not where:
        case.check_late(table, "t_windowed")


JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]


@pytest.mark.parametrize("number", range(CASES // 2))
def test_a_join_of_aggregated_windows(number, random_case):
    case = random_case(10_000 + number)
    tables = [case.input("t"), case.input("u")]
    windows, kind = Windows(case.rng), case.rng.choice(JOINS)
    count = "SELECT window_start, window_end, k, count(*) AS n, sum(v) AS s FROM {} GROUP BY window_start, window_end, k"
    join = f"""SELECT l.window_start AS ls, r.window_end AS re, l.k AS lk, r.k AS rk, l.n AS n, r.s AS s FROM ({{}}) AS l {kind}
        ({{}}) AS r ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.k = r.k"""
    got = case.run(
        tables,
        "ls TIMESTAMP(3), re TIMESTAMP(3), lk BIGINT, rk BIGINT, n BIGINT, s BIGINT",
        join.format(*(count.format(windows.stream(table.name)) for table in tables)),
    )
    for table in tables:
        windows.batch(case.duck, table.name)
    case.check(got, join.format(count.format("t_windowed"), count.format("u_windowed")))


@pytest.mark.parametrize("number", range(CASES // 2))
def test_a_join_of_windows(number, random_case):
    """Rows of two streams in the same window, by every kind of join."""
    case = random_case(20_000 + number)
    tables = [case.input("t"), case.input("u")]
    windows, kind = Windows(case.rng), case.rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "EXISTS", "NOT EXISTS"])
    on = "l.window_start = r.window_start AND l.window_end = r.window_end AND l.k = r.k AND l.name = r.name"
    if kind.endswith("JOIN"):
        join = f"""SELECT coalesce(l.window_start, r.window_start) AS ws, l.id AS lid, r.id AS rid
            FROM (SELECT * FROM {{}}) AS l {kind} (SELECT * FROM {{}}) AS r ON {on}"""
    else:
        join = f"""SELECT l.window_start AS ws, l.id AS lid, l.k AS rid FROM (SELECT * FROM {{}}) AS l
            WHERE {kind} (SELECT * FROM (SELECT * FROM {{}}) AS r WHERE {on})"""
    got = case.run(
        tables, "ws TIMESTAMP(3), lid BIGINT, rid BIGINT", join.format(*(windows.stream(table.name) for table in tables))
    )
    for table in tables:
        windows.batch(case.duck, table.name)
    case.check(got, join.format("t_windowed", "u_windowed"))


@pytest.mark.parametrize("number", range(CASES // 2))
def test_the_top_rows_of_each_window(number, random_case):
    """Which of equal rows is kept is open: the ranks and what they are ordered by must agree, and each row must be there."""
    case = random_case(30_000 + number)
    table = case.input("t")
    windows = Windows(case.rng)
    parts, limit = case.rng.choice([[], ["k"], ["name"]]), case.rng.choice([1, 2, 7])
    order = case.rng.choice(["v DESC", "v", "k DESC"])
    by = order.split()[0]
    top = f"""SELECT ws, we, id, k, name, v, rn FROM (
            SELECT window_start AS ws, window_end AS we, id, k, name, v, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end{listed(parts)} ORDER BY {order}) AS rn
            FROM {{}} WHERE {by} IS NOT NULL) AS ranked
        WHERE rn <= {limit}"""
    columns = "ws TIMESTAMP(3), we TIMESTAMP(3), id BIGINT, k BIGINT, name VARCHAR, v BIGINT, rn BIGINT"
    got = case.run([table], columns, top.format(windows.stream("t")))
    windows.batch(case.duck, "t")
    ranks = "SELECT ws, we" + listed(sorted({*parts, by})) + ", rn FROM ({})"
    case.check(ranks.format(got), ranks.format(top.format("t_windowed")))
    row = "ws, we, id, k, name, v"
    every = "SELECT window_start AS ws, window_end AS we, id, k, name, v FROM t_windowed"
    invented = case.duck.sql(f"SELECT {row} FROM ({got}) EXCEPT ALL {every} LIMIT 10").fetchall()
    assert not invented, f"{case.query}\nno rows of the window, or given twice: {invented}"


@pytest.mark.parametrize("number", range(CASES // 2))
def test_a_window_over_windows(number, random_case):
    case = random_case(40_000 + number)
    table = case.input("t")
    small, factor, where = case.rng.choice([50, 1_000]), case.rng.choice([2, 5]), case.rng.choice(FILTERS)
    large = small * factor
    inner = f"""SELECT window_time AS at, k, count(*) AS c, max(v) AS m
        FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), {interval(small)})) {where}
        GROUP BY window_start, window_end, window_time, k"""
    got = case.run(
        [table],
        "ws TIMESTAMP(3), n BIGINT, c BIGINT, m BIGINT",
        f"""SELECT window_start AS ws, count(*) AS n, sum(c) AS c, max(m) AS m
            FROM TABLE(TUMBLE(TABLE inner_windows, DESCRIPTOR(at), {interval(large)})) GROUP BY window_start, window_end""",
        f"CREATE VIEW inner_windows AS {inner};",
    )
    case.check(
        got,
        f"""SELECT make_timestamp_ms(s // {large} * {large}) AS ws, count(*) AS n, sum(c)::BIGINT AS c, max(m) AS m FROM (
            SELECT ms // {small} * {small} AS s, k, count(*) AS c, max(v) AS m
            FROM (SELECT * FROM t_placed WHERE ms // {small} * {small} + {small} > watermark) {where} GROUP BY ALL)
            GROUP BY 1""",
    )


SESSION_FORMS = ["SESSION", "GROUP BY"]


@pytest.mark.parametrize("number", range(CASES))
def test_a_session(number, random_case):
    """A row is late for sessions when its time lies before its own file's running watermark."""
    case = random_case(50_000 + number)
    table = case.input("t")
    gap, keys, where = case.rng.choice([5, 50, 1_000]), case.rng.choice(KEYS), case.rng.choice(FILTERS)
    grouped = case.rng.choice(SESSION_FORMS) == "GROUP BY"
    chosen = case.rng.sample(AGGREGATES, case.rng.randint(1, 4))
    columns = [f"{key} {TYPES[key]}" for key in keys] + [f"{name} {kind}" for _, name, kind in chosen]
    aggregates = listed(f"{sql} AS {name}" for sql, name, _ in chosen)
    if grouped:
        query = f"""SELECT SESSION_START(ts, {interval(gap)}) AS ws, SESSION_END(ts, {interval(gap)}) AS we{listed(keys)}{aggregates}
            FROM t {where} GROUP BY SESSION(ts, {interval(gap)}){listed(keys)}"""
    else:
        rows = f"(SELECT * FROM t {where})" if where else "TABLE t"
        partition = f"PARTITION BY ({', '.join(keys)})" if keys else ""
        query = f"""SELECT window_start AS ws, window_end AS we{listed(keys)}{aggregates}
            FROM TABLE(SESSION({rows} {partition}, DESCRIPTOR(ts), {interval(gap)}))
            GROUP BY window_start, window_end{listed(keys)}"""
    got = case.run([table], f"ws TIMESTAMP(3), we TIMESTAMP(3){listed(columns)}", query)
    over = f"({'PARTITION BY ' * bool(keys)}{', '.join(keys)} ORDER BY ms, id)"
    case.duck.sql(f"""CREATE TABLE sessions AS
        SELECT *, min(ms) OVER w AS first, max(ms) OVER w + {gap} AS past FROM (
            SELECT *, sum(new::INT) OVER {over} AS session FROM (
                SELECT *, coalesce(ms - lag(ms) OVER {over} >= {gap}, true) AS new
                FROM (SELECT * FROM t_placed WHERE ms >= watermark) {where}))
        WINDOW w AS (PARTITION BY session{listed(keys)})""")
    case.check(
        got,
        f"""SELECT make_timestamp_ms(first) AS ws, make_timestamp_ms(past) AS we{listed(keys)}{aggregates}
            FROM sessions GROUP BY first, past{listed(keys)}""",
    )


class Bounds:
    """How far apart the times of a pair may lie, in one of the ways to write it in the stream's words."""

    def __init__(self, rng, widest):
        self.earliest = rng.choice([0, 0, -1, -7, -widest, widest // 2])
        self.latest = self.earliest + rng.choice([0, 1, 20, widest])
        low, high = (self.shifted("r.ts", by) for by in (self.earliest, self.latest))
        self.stream = rng.choice([
            f"l.ts BETWEEN {low} AND {high}",
            f"l.ts > {self.shifted('r.ts', self.earliest - 1)} AND l.ts < {self.shifted('r.ts', self.latest + 1)}",
            f"r.ts <= {self.shifted('l.ts', -self.earliest)} AND {high} >= l.ts",
            f"l.ts - r.ts >= {interval(self.earliest)} AND l.ts - r.ts <= {interval(self.latest)}",
        ])
        self.batch = f"l.ms - r.ms BETWEEN {self.earliest} AND {self.latest}"

    @staticmethod
    def shifted(time, by):
        return f"{time} {'-' if by < 0 else '+'} {interval(abs(by))}"


PAIR_CONDITIONS = ["", "", "l.v > r.v", "l.x + r.x < 100", "r.v > 0", "l.k <> 3"]
PAIR_KINDS = [*JOINS, "EXISTS", "NOT EXISTS"]


class TimedJoin:
    """A join of single rows within bounds of time, in both systems' words. A row before its file's watermark is late."""

    def __init__(self, case, kinds):
        rng = case.rng
        self.inputs = [case.input(name, late=False) for name in rng.choice(["t", "tu", "tu", "tu"])]
        self.tables = self.inputs[0].name, self.inputs[-1].name
        self.kind, keys = rng.choice(kinds), rng.choice([[], ["k"], ["name"], ["k", "name"]])
        bounds = Bounds(rng, 500 if "k" in keys else 20)
        self.condition = rng.choice(PAIR_CONDITIONS)
        rest = [f"l.{key} = r.{key}" for key in keys] + [self.condition] * bool(self.condition)
        self.stream = self.text(" AND ".join([bounds.stream, *rest]), "{}")
        self.batch = self.text(" AND ".join([bounds.batch, *rest]), "(SELECT * FROM {}_placed WHERE ms >= watermark)")

    def text(self, on, table):
        left, right = (table.format(name) for name in self.tables)
        if self.kind.endswith("JOIN"):
            return f"SELECT l.id AS lid, r.id AS rid, l.ts AS lts, r.ts AS rts FROM {left} AS l {self.kind} {right} AS r ON {on}"
        exists = f"{self.kind} (SELECT * FROM {right} AS r WHERE {on})"
        return f"SELECT l.id AS lid, l.k AS rid, l.ts AS lts, l.ts AS rts FROM {left} AS l WHERE {exists}"


@pytest.mark.parametrize("number", range(CASES))
def test_a_join_within_bounds_of_time(number, random_case):
    case = random_case(60_000 + number)
    join = TimedJoin(case, PAIR_KINDS)
    got = case.run(join.inputs, "lid BIGINT, rid BIGINT, lts TIMESTAMP(3), rts TIMESTAMP(3)", join.stream)
    case.check(got, join.batch)


@pytest.mark.parametrize("number", range(CASES // 2))
def test_a_window_over_a_join_within_bounds_of_time(number, random_case):
    """No pair is late for a window, by the time of whichever side that is never NULL."""
    case = random_case(70_000 + number)
    join, size = TimedJoin(case, JOINS), case.rng.choice([50, 1_000])
    time = case.rng.choice({"LEFT JOIN": ["lts"], "RIGHT JOIN": ["rts"]}.get(join.kind, ["lts", "rts"]))
    got = case.run(
        join.inputs,
        "ws TIMESTAMP(3), n BIGINT, pairs BIGINT",
        f"""SELECT window_start AS ws, count(*) AS n, count(lid + rid) AS pairs
            FROM TABLE(TUMBLE(TABLE joined, DESCRIPTOR({time}), {interval(size)})) GROUP BY window_start, window_end""",
        f"CREATE VIEW joined AS {join.stream};",
    )
    case.check(
        got,
        f"""SELECT make_timestamp_ms(epoch_ms({time}) // {size} * {size}) AS ws, count(*) AS n, count(lid + rid) AS pairs
            FROM ({join.batch}) WHERE {time} IS NOT NULL GROUP BY 1""",
    )
