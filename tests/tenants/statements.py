"""Random schemas and statements over them."""

from expressions import KEYED, LITERALS, NUMBERS, RANKED, TEXTS, UNSHAPED, Expressions

# Types that rows are grouped by.
GROUPED = [of for of in LITERALS if of not in UNSHAPED]
# Types of numbers of which a sum does not depend on the order of rows.
SUMMED = NUMBERS[:-1]
IDS = 40


class Statements(Expressions):
    """Statements over the tables `a` and `b` and a view of `a`, from a seed; all have a key `id`."""

    def __init__(self, seed):
        super().__init__(seed)
        # The columns of each table that number its rows.
        self.numbered = {"a": [], "b": []}

    def schema(self):
        """Makes the type, tables, indexes and the view."""
        yield "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')"
        for name in ("a", "b"):
            yield from self.table(name)
        shown = self.random.sample(list(self.tables["a"])[1:], 2)
        check = self.pick(["", " WITH CHECK OPTION"])
        yield f"CREATE VIEW v AS SELECT id, {', '.join(shown)} FROM a WHERE {self.condition('a', 1)}{check}"
        self.tables["v"] = {column: self.tables["a"][column] for column in ["id", *shown]}

    def table(self, name):
        columns = {"id": "integer"} | {f"c{number}": self.pick(LITERALS) for number in range(self.random.randint(3, 6))}
        self.tables[name] = columns
        parts = ["id integer PRIMARY KEY", *(f"{column} {self.declared(of)}" for column, of in list(columns.items())[1:])]
        if columns["c0"] in KEYED and self.chance(0.3):
            parts.append("UNIQUE (c0)")
        if self.chance(0.5):
            # A check sees the columns of its row by their names alone.
            parts.append(f"CONSTRAINT {name}_check CHECK ({self.row_condition(name)} OR id % 3 > 0)")
        yield f"CREATE TABLE {name} ({', '.join(parts)})"
        for number in range(self.random.randint(0, 3)):
            yield self.index(name, f"{name}_{number}")

    def declared(self, of):
        if of in ("integer", "bigint") and self.chance(0.3):
            return f"{of} GENERATED {self.pick(['ALWAYS', 'BY DEFAULT'])} AS IDENTITY"
        return of + self.default(of)

    def default(self, of):
        return (f" DEFAULT {self.value(of, depth=1)}" if self.chance(0.3) else "") + self.pick(["", "", "", " NOT NULL"])

    def row_condition(self, table):
        """A condition that reads its row alone."""
        condition = "SELECT"
        while "SELECT" in condition:
            condition = self.condition(table, 1)
        return condition.replace(f"{table}.", "")

    def keyed(self, table):
        """The columns that can be keys."""
        return [column for column, of in self.tables[table].items() if of in KEYED]

    def index(self, table, name):
        found = self.keyed(table)
        keys = [column + self.pick(["", " DESC"]) for column in self.random.sample(found, min(len(found), self.random.randint(1, 2)))]
        text = self.column(table, TEXTS)
        if text and self.chance(0.3):
            keys.append(f"lower({text})".replace(f"{table}.", ""))
        where = f" WHERE {self.row_condition(table)}" if self.chance(0.3) else ""
        return f"CREATE {self.pick(['', '', '', 'UNIQUE '])}INDEX {name} ON {table} ({', '.join(keys)}){where}"

    def statement(self):
        kinds = {self.insert: 28, self.update: 15, self.delete: 5, self.select: 20, self.aggregate: 12, self.window: 6, self.combine: 4, self.join: 8,
                 self.common: 5, self.ordered: 5, self.extremes: 3, self.derived: 6, self.define: 2}
        return self.random.choices(list(kinds), kinds.values())[0]()

    def changed(self):
        """A table, or the view, that is written."""
        return self.pick(["a", "a", "b", "b", "v"])

    def insert(self):
        table = self.changed()
        columns = self.tables[table]
        target = self.random.sample(list(columns)[1:], self.random.randint(1, len(columns) - 1)) if self.chance(0.4) else list(columns)[1:]
        value = lambda column: self.pick(["DEFAULT", "NULL"]) if self.chance(0.15) else self.value(columns[column], depth=1)
        rows = [", ".join([str(self.random.randint(0, IDS)), *map(value, target)]) for _ in range(self.random.randint(1, 3))]
        source = f"VALUES {', '.join(f'({row})' for row in rows)}"
        if self.chance(0.15):
            other = self.pick(self.tables)
            chosen = ", ".join([f"{other}.id + {self.random.randint(0, 9)}", *(self.value(columns[column], other) for column in target)])
            source = f"SELECT {chosen} FROM {other} WHERE {self.condition(other, 1)} ORDER BY {other}.id"
        overriding = self.pick(["", "", " OVERRIDING SYSTEM VALUE"])
        conflict = ""
        if self.chance(0.3):
            column = self.pick(target)
            where = f" WHERE {self.condition(table, 1)}" if self.chance(0.3) else ""
            conflict = self.pick([" ON CONFLICT DO NOTHING", f" ON CONFLICT (id) DO UPDATE SET {column} = excluded.{column}{where}"])
        return f"INSERT INTO {table} (id, {', '.join(target)}){overriding} {source}{conflict}" + self.pick(["", "", " RETURNING *"])

    def update(self):
        table = self.changed()
        columns = self.tables[table]
        chosen = self.random.sample(list(columns)[1:], self.random.randint(1, 2))
        if self.chance(0.2):
            other = self.pick([other for other in self.tables if other != table])
            source = [f"{column} = {self.value(columns[column], self.pick([table, other]))}" for column in chosen]
            where = f" FROM {other} WHERE {other}.id = {table}.id + {self.random.randint(0, 2)} AND {self.condition(other, 1)}"
            return f"UPDATE {table} SET {', '.join(source)}{where}"
        # Which row gets which number depends on their order.
        default = lambda column: column not in self.numbered["a" if table == "v" else table] and self.chance(0.08)
        changes = [f"{column} = {'DEFAULT' if default(column) else self.value(columns[column], table)}" for column in chosen]
        returning = f" RETURNING id, {chosen[0]}" if self.chance(0.3) else ""
        return f"UPDATE {table} SET {', '.join(changes)} WHERE {self.condition(table)}{returning}"

    def delete(self):
        table = self.changed()
        if self.chance(0.05):
            return f"TRUNCATE {self.pick(['a', 'b', 'a, b'])}"
        if self.chance(0.3):
            other = self.pick([other for other in self.tables if other != table])
            return f"DELETE FROM {table} USING {other} WHERE {other}.id = {table}.id AND {self.condition(other, 1)} AND {table}.id % 3 = 0 RETURNING {table}.id"
        return f"DELETE FROM {table} WHERE {self.condition(table, 1)} AND id % 3 = 0"

    def select(self):
        table = self.pick(self.tables)
        shown = ", ".join([f"{table}.id", *(self.value(self.type(table), table) for _ in range(2))])
        ordered = f" ORDER BY {table}.{self.pick(self.tables[table])} {self.pick(['', 'DESC', 'NULLS FIRST'])}, {table}.id" if self.chance(0.5) else ""
        limit = f" LIMIT {self.random.randint(0, 5)} OFFSET {self.random.randint(0, 2)}" if ordered and self.chance(0.5) else ""
        distinct = ""
        if self.chance(0.15):
            group = self.column(table, GROUPED)
            distinct, ordered = f"DISTINCT ON ({group}) ", f" ORDER BY {group}, {table}.id"
        return f"SELECT {distinct}{shown} FROM {table} WHERE {self.condition(table)}{ordered}{limit}"

    def perhaps(self, table, probability):
        """A WHERE clause, or none."""
        return f" WHERE {self.condition(table, 1)}" if self.chance(probability) else ""

    def ordered(self):
        """The first rows in an order that an index may have, often of all rows of a table."""
        table = self.pick(self.tables)
        found = [column for column, of in self.tables[table].items() if of in GROUPED]
        keys = self.random.sample(found, min(len(found), self.random.randint(1, 2)))
        # Rows that are equal in what they are sorted by are told apart, or look alike.
        last = self.pick(["", ", id", ", id DESC"])
        order = ", ".join(key + self.pick(["", "", " DESC", " DESC", " NULLS FIRST", " DESC NULLS LAST"]) for key in keys)
        limit = f" LIMIT {self.random.randint(0, 5)}" + self.pick(["", "", " OFFSET 2"])
        return f"SELECT {', '.join(keys)}{', id' if last else ''} FROM {table}{self.perhaps(table, 0.4)} ORDER BY {order}{last}{limit}"

    def extremes(self):
        table = self.pick(self.tables)
        ends = [f"{self.pick(['min', 'max'])}({self.column(table, RANKED)})" for _ in range(self.random.randint(1, 3))]
        having = self.pick(["", "", "", f" HAVING {ends[0]} IS NOT NULL"])
        return f"SELECT {', '.join(ends)} FROM {table}{self.perhaps(table, 0.4)}{having}"

    def derived(self):
        """Conditions on what a query in FROM computes."""
        table, other = self.pick(self.tables), self.pick(["a", "b"])
        # Of char(4) set operations have no length, and tenants no blanks.
        found = [(of, f"{table}.{column}") for column, of in self.tables[table].items() if of in GROUPED and of != "char(4)"]
        of, group = self.pick(found)
        source = f"FROM {table}{self.perhaps(table, 0.3)}"
        rows = self.pick([
            f"SELECT count(*) AS id, {group} AS t {source} GROUP BY {group}",
            f"SELECT row_number() OVER (PARTITION BY {group} ORDER BY {table}.id) AS id, {group} AS t {source}",
            f"SELECT max({table}.id) OVER (PARTITION BY {group}, {table}.id % 2) AS id, {group} AS t {source}",
            f"SELECT DISTINCT {table}.id % 3 AS id, {group} AS t {source}",
            f"SELECT {table}.id, {group} AS t {source} {self.pick(['UNION', 'UNION ALL', 'INTERSECT', 'EXCEPT ALL'])} SELECT id, {self.value(of, other, 1)} FROM {other}",
            f"SELECT {table}.id, {group} AS t {source} ORDER BY {table}.id LIMIT 3",
        ])
        self.tables["w"] = {"id": "bigint", "t": of}
        where = self.pick([f"w.t = {self.literal(of)}", f"w.t IN ({self.literal(of)}, {self.literal(of)})", self.condition("w", 1)])
        del self.tables["w"]
        return f"SELECT * FROM ({rows}) AS w WHERE {where}"

    def aggregates(self, table):
        number, ranked, group = (self.column(table, types) for types in (SUMMED, RANKED, GROUPED))
        return self.random.sample(["count(*)", f"count(DISTINCT {group})", f"sum({number})", f"avg({number})", f"min({ranked})", f"max({ranked})",
                                   f"string_agg({self.value('text', table)}, ',' ORDER BY {table}.id)", f"array_agg({number} ORDER BY {table}.id DESC)",
                                   f"bool_or({self.condition(table, 1)})", f"count(*) FILTER (WHERE {self.condition(table, 1)})",
                                   f"jsonb_agg({self.value('integer', table)} ORDER BY {table}.id)"], 4)

    def aggregate(self):
        table = self.pick(self.tables)
        aggregates = ", ".join(self.aggregates(table))
        source = f"FROM {table} WHERE {self.condition(table, 1)}"
        if self.chance(0.4):
            return f"SELECT {aggregates} {source}"
        group, other = self.column(table, GROUPED), self.column(table, GROUPED)
        grouping = self.pick([group, group, f"{group}, {other}", f"ROLLUP ({group}, {other})", f"CUBE ({group})"])
        having = " HAVING count(*) > 1" if self.chance(0.3) else ""
        return f"SELECT {group}, {aggregates} {source} GROUP BY {grouping}{having}"

    def window(self):
        table = self.pick(self.tables)
        number, ranked, group = (self.column(table, types) for types in (SUMMED, RANKED, GROUPED))
        frame = self.pick(["", " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING", " ROWS 2 PRECEDING", " RANGE UNBOUNDED PRECEDING"])
        call = self.pick([f"sum({number})", "row_number()", f"lag({ranked}, 2)", f"lead({ranked})", f"first_value({ranked})", "ntile(3)", f"max({ranked})",
                          "count(*)", f"nth_value({ranked}, 2)"])
        rank = self.pick(["rank()", "dense_rank()", "percent_rank()", "cume_dist()"])
        return (f"SELECT {table}.id, {call} OVER (PARTITION BY {group} ORDER BY {table}.id{frame}), {rank} OVER (ORDER BY {ranked}) "
                f"FROM {table} WHERE {self.condition(table, 1)}")

    def combine(self):
        sides = [f"SELECT {side}.id, {self.value('text', side)} FROM {side} WHERE {self.condition(side, 1)}" for side in ("a", "b")]
        return f" {self.pick(['UNION', 'INTERSECT', 'EXCEPT'])} {self.pick(['', 'ALL '])}".join(sides)

    def join(self):
        kind, key = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LATERAL"]), f"b.id = a.id + {self.random.randint(0, 2)}"
        where = f"WHERE {self.condition('a' if kind == 'LATERAL' else self.pick(['a', 'b']), 1)}"
        if kind == "FULL JOIN":
            return f"SELECT a.id, b.id FROM a FULL JOIN b ON {key} {where}"
        if kind == "LATERAL":
            return f"SELECT a.id, q.* FROM a, LATERAL (SELECT b.id, {self.value('integer', 'a', 1)} FROM b WHERE b.id > a.id ORDER BY b.id LIMIT 2) AS q {where}"
        return f"SELECT a.id, b.id, {self.value(self.type('b'), 'b', 1)} FROM a {kind} b ON {key} AND {self.condition('b', 1)} {where}"

    def common(self):
        """A statement that has others in WITH."""
        table, of = self.pick(self.tables), self.pick(LITERALS)
        shown = f"{table}.id, {self.value(of, table, 1)} AS t"
        rows = f"SELECT {shown} FROM {table} WHERE {self.condition(table, 1)}"
        if table != "v" and self.chance(0.3):
            rows = f"DELETE FROM {table} WHERE {self.condition(table, 1)} AND id % 4 = 0 RETURNING {shown}"
        self.tables["w"] = {"id": "integer", "t": of}
        query = f"SELECT w.id, {self.value(self.type('w'), 'w')} FROM w WHERE {self.condition('w', 1)}"
        del self.tables["w"]
        if self.chance(0.2):
            return f"WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < {self.random.randint(0, 6)}) SELECT n, {self.value('text', depth=1)} FROM r"
        return f"WITH w AS ({rows}) {query}"

    def define(self):
        """A change of a table, which may fail for its rows or for what depends on a column."""
        table = self.pick(["a", "b"])
        column = self.pick(list(self.tables[table])[1:])
        of, new = self.tables[table][column], self.pick(LITERALS)
        return f"ALTER TABLE {table} " + self.pick([
            f"ALTER {column} SET DEFAULT {self.literal(of)}", f"ALTER {column} DROP DEFAULT", f"ALTER {column} SET NOT NULL", f"ALTER {column} DROP NOT NULL",
            f"ADD CONSTRAINT {table}_more CHECK ({self.row_condition(table)})", f"DROP CONSTRAINT IF EXISTS {table}_more", f"DROP CONSTRAINT {table}_check",
            f"ADD COLUMN n{self.random.randint(0, 3)} {new}{self.default(new)}", f"DROP COLUMN n{self.random.randint(0, 3)}",
            f"ALTER {column} TYPE {new}", f"RENAME {column} TO {column}", f"ADD CONSTRAINT {table}_unique UNIQUE ({self.pick(self.keyed(table))})",
            f"DROP CONSTRAINT {table}_unique"])
