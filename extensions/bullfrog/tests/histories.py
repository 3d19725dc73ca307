"""Random histories of several clients, from a seed, and their run on two databases side by side: one whose migration is
under way, and one that was migrated eagerly. The same statements in the same order must give the same answers.

Sessions take turns statement by statement. Each writes rows of its own only (`mod(k, SESSIONS)`), and reads all, so that
none waits for another. A transaction that one database asks to be tried again (40001) is tried again in both.
"""

import dataclasses
import random

import psycopg

SESSIONS = 4
STEPS = 120
LEVELS = ("READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "REPEATABLE READ", "SERIALIZABLE")
RETRIABLE = ("40001", "40P01")


@dataclasses.dataclass(frozen=True)
class Table:
    """A new table. All have the columns `k`, `num` and `txt`."""
    name: str
    key: tuple = ("k",)
    also: tuple = ()

    @property
    def columns(self):
        return (*self.key, "num", "txt", *self.also)


@dataclasses.dataclass(frozen=True)
class Kind:
    """Old tables, a migration of them, and the new ones."""
    setup: str
    definition: str
    tables: tuple
    keys: int
    live: tuple = ()
    # What the old tables say of each new one, where all that is written can be carried back.
    back: tuple = ()


BASE = """
    CREATE TABLE base (k int PRIMARY KEY, num int NOT NULL, txt text, other int, pad text);
    INSERT INTO base SELECT n, n * 7 % 50, nullif('text ' || n % 20, 'text 3'), n % 100, repeat('.', 300) FROM generate_series(0, 399) n;
"""
LINES = """
    CREATE TABLE item (k int PRIMARY KEY, cap int NOT NULL, txt text, pad text);
    CREATE TABLE line (k int NOT NULL, j int NOT NULL, num int, pad text, PRIMARY KEY (k, j));
    INSERT INTO item SELECT n, n % 11, nullif('item ' || n % 9, 'item 4'), repeat('.', 200) FROM generate_series(0, 119) n;
    INSERT INTO line SELECT n, j, (n * j) % 31, repeat('.', 300) FROM generate_series(0, 99) n, generate_series(1, 5) j WHERE n % 6 >= j
        ORDER BY j, n;
"""
# Tables that stay in use are written by the histories, too.
LIVE = """
    CREATE TABLE item (k int PRIMARY KEY, num int, txt text, pad text);
    CREATE TABLE line (k int NOT NULL, j int NOT NULL, gone int, num int, txt text, pad text, PRIMARY KEY (k, j));
    ALTER TABLE line DROP COLUMN gone;
    INSERT INTO item SELECT n, n % 11, nullif('item ' || n % 9, 'item 4'), repeat('.', 200) FROM generate_series(0, 119) n;
    INSERT INTO line SELECT n, j, (n * j) % 31, 'line ' || j, repeat('.', 300) FROM generate_series(0, 99) n, generate_series(1, 5) j
        WHERE n % 6 >= j ORDER BY j, n;
"""
KINDS = {
    "derive": Kind(BASE, """
        CREATE TABLE t AS SELECT k, num * 2 AS num, upper(txt) AS txt FROM base WHERE num <> 13;
        ALTER TABLE t ADD PRIMARY KEY (k)""", (Table("t"),), 400),
    "split": Kind(BASE, """
        CREATE TABLE t AS SELECT k, num, 'x' || txt AS txt FROM base;
        CREATE TABLE u AS SELECT k, other AS num, txt FROM base;
        ALTER TABLE t ADD PRIMARY KEY (k); ALTER TABLE u ADD PRIMARY KEY (k); CREATE INDEX ON u (num)""", (Table("t"), Table("u")), 400),
    "aggregate": Kind(LINES, """
        CREATE TABLE t AS SELECT k, sum(num)::int AS num, max(pad) AS txt FROM line GROUP BY k;
        CREATE TABLE u AS SELECT k, j, num, left(pad, 3) AS txt FROM line;
        ALTER TABLE t ADD PRIMARY KEY (k); ALTER TABLE u ADD PRIMARY KEY (k, j)""", (Table("t"), Table("u", ("k", "j"))), 100),
    "foreign_key_join": Kind(LINES, """
        CREATE TABLE t AS SELECT l.k, l.j, l.num + i.cap AS num, i.txt FROM line l JOIN item i USING (k);
        ALTER TABLE t ADD PRIMARY KEY (k, j)""", (Table("t", ("k", "j")),), 100),
    "many_to_many": Kind(LINES, """
        CREATE TABLE t AS SELECT i.k, l.k * 10 + l.j AS j, i.cap AS num, i.txt FROM item i JOIN line l ON l.num = i.cap;
        ALTER TABLE t ADD PRIMARY KEY (k, j)""", (Table("t", ("k", "j")),), 100),
    "outer_join": Kind(LINES, """
        CREATE TABLE t AS SELECT i.k, coalesce(l.j, 0) AS j, l.num, i.txt FROM item i LEFT JOIN line l ON l.k = i.k AND l.num > 5;
        ALTER TABLE t ADD PRIMARY KEY (k, j)""", (Table("t", ("k", "j")),), 120),
    "foreign_key": Kind(BASE + """
        CREATE TABLE person AS SELECT k, num, txt, pad FROM base WHERE k < 100;
        ALTER TABLE person ADD PRIMARY KEY (k)""", """
        CREATE TABLE t AS SELECT k, num, txt FROM person;
        CREATE TABLE u AS SELECT k, num, txt, other AS parent FROM base;
        ALTER TABLE t ADD PRIMARY KEY (k); ALTER TABLE u ADD PRIMARY KEY (k); CREATE INDEX ON u (parent);
        ALTER TABLE u ADD FOREIGN KEY (parent) REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE""",
        (Table("t"), Table("u", also=("parent",))), 100),
}


class Difference(AssertionError):
    """The two databases gave different answers."""


class Generator:
    """What sessions say, from a seed."""

    def __init__(self, kind, seed, sessions=SESSIONS):
        self.kind, self.sessions = kind, sessions
        self.random = random.Random(seed)

    def own(self, session):
        """A key of a session, of an old row or of none."""
        return self.random.randrange(self.kind.keys * 5 // 4 // self.sessions) * self.sessions + session

    def is_own(self, session, alias):
        return f"mod({alias}.k, {self.sessions}) = {session}"

    def row(self, table, session):
        values = {"num": self.random.randrange(60), "txt": self.random.choice(["new", "text 5", None]), "j": self.random.randrange(8),
            "k": self.own(session)}
        values["parent"] = self.own(session)
        return [values[column] for column in table.columns]

    def statement(self, session, reads_own=False):
        """A statement and its parameters; of a COPY, its rows."""
        choice = self.random.random()
        if choice < 0.4:
            return self.read(session if reads_own else None)
        return self.write(session)

    def read(self, session):
        """A query of all rows, or of those of a session."""
        table = self.random.choice(self.kind.tables)
        other = self.random.choice(self.kind.tables)
        key = self.random.randrange(self.kind.keys) if session is None else self.own(session)
        mine, others = ("true" if session is None else self.is_own(session, alias) for alias in "ab")
        columns = ", ".join(table.columns)
        return self.random.choice([
            (f"SELECT {columns} FROM {table.name} a WHERE k = %s AND {mine}", [key]),
            (f"SELECT {columns} FROM {table.name} a WHERE k BETWEEN %s AND %s AND {mine}", [key, key + 20]),
            (f"SELECT {columns} FROM {table.name} a WHERE num = %s AND {mine}", [self.random.randrange(60)]),
            (f"SELECT count(*), sum(num), min(txt), count(txt) FROM {table.name} a WHERE {mine}", []),
            (f"SELECT mod(num, 5), count(*), sum(k) FROM {table.name} a WHERE txt IS NOT NULL AND {mine} GROUP BY 1"
            " HAVING count(*) > %s", [self.random.randrange(5)]),
            (f"SELECT a.k, a.num, b.num FROM {table.name} a LEFT JOIN {other.name} b ON a.k = b.k WHERE a.k < %s AND {mine}", [key]),
            (f"SELECT k FROM {table.name} a WHERE EXISTS (SELECT FROM {other.name} b WHERE b.num = a.num AND b.k <> a.k AND {others})"
            f" AND mod(k, 10) = %s AND {mine}", [key % 10]),
            (f"WITH one AS (SELECT * FROM {table.name} a WHERE k = %s AND {mine}) SELECT count(*) FROM one, {other.name} b"
            f" WHERE b.num = one.num AND {others}", [key]),
            (f"SELECT row_number() OVER (ORDER BY {', '.join(table.key)}), k FROM {table.name} a WHERE num > %s AND {mine}",
            [self.random.randrange(60)]),
        ])

    def write(self, session):
        table, other = (self.random.choice(self.kind.tables) for _ in range(2))
        name, key, own = table.name, self.own(session), self.is_own(session, table.name)
        marks = ", ".join(["%s"] * len(table.columns))
        columns, keys = ", ".join(table.columns), ", ".join(table.key)
        insert = f"INSERT INTO {name} ({columns}) VALUES ({marks})"
        row = self.row(table, session)
        # One row only: the order in which rows take keys from each other is nobody's promise.
        one = " AND ".join(f"{column} = %s" for column in table.key)
        return self.random.choice([
            (f"UPDATE {name} SET num = num + 1 WHERE k = %s RETURNING {columns}", [key]),
            (f"UPDATE {name} SET txt = txt || '!', num = %s WHERE k = %s", [row[table.columns.index('num')], key]),
            (f"UPDATE {name} SET num = num + 1 WHERE num = %s AND {own}", [self.random.randrange(60)]),
            (f"UPDATE {name} SET txt = 'wide' WHERE k BETWEEN %s AND %s AND {own}", [key, key + 30]),
            (f"UPDATE {name} a SET num = b.num FROM (SELECT k, max(num) AS num FROM {other.name} GROUP BY k) b WHERE a.k = b.k"
            " AND a.k = %s", [key]),
            (f"UPDATE {name} SET k = %s WHERE {one}", [self.own(session), *row[:len(table.key)]]),
            (f"DELETE FROM {name} WHERE k = %s RETURNING {columns}", [key]),
            (f"DELETE FROM {name} WHERE num = %s AND {own}", [self.random.randrange(60)]),
            (f"DELETE FROM {name} WHERE k IN (SELECT k FROM {other.name} WHERE num = %s) AND k = %s", [self.random.randrange(60), key]),
            (insert, row),
            (insert, row),
            (f"{insert} ON CONFLICT DO NOTHING", row),
            (f"{insert} ON CONFLICT ({keys}) DO UPDATE SET num = {name}.num + excluded.num, txt = excluded.txt RETURNING {columns}", row),
            (f"{insert} ON CONFLICT ({keys}) DO UPDATE SET txt = 'upsert' WHERE {name}.num > 20", row),
            (f"SELECT {columns} FROM {name} WHERE k = %s FOR UPDATE", [key]),
            (f"SELECT k FROM {name} WHERE num = %s AND {own} FOR SHARE", [self.random.randrange(60)]),
            (f"COPY {name} ({columns}) FROM STDIN", [row, self.row(table, session)]),
        ])


class Side:
    """A session in one of the two databases."""

    def __init__(self, database, is_simple, is_generic):
        self.connection = database.connect(cursor_factory=psycopg.ClientCursor if is_simple else psycopg.Cursor)
        self.connection.execute("SET statement_timeout = '60s'")
        if is_generic:
            self.connection.execute("SET plan_cache_mode = force_generic_plan")

    def run(self, sql, parameters=(), prepare=None):
        try:
            if isinstance(self.connection.cursor_factory, type) and issubclass(self.connection.cursor_factory, psycopg.ClientCursor):
                prepare = None
            if sql.startswith("COPY"):
                return self.copy(sql, parameters)
            cursor = self.connection.execute(sql, parameters or None, prepare=prepare)
        except psycopg.Error as error:
            if error.sqlstate in (None, "57014") or error.sqlstate.startswith("XX"):
                raise
            return ("error", error.sqlstate)
        if cursor.description:
            return ("rows", sorted(map(repr, cursor.fetchall())))
        return ("count", cursor.rowcount)

    def copy(self, sql, rows):
        cursor = self.connection.cursor()
        with cursor.copy(sql) as copy:
            for row in rows:
                copy.write_row(row)
        return ("count", cursor.rowcount)


class Session:
    """A client of both databases."""

    # Whether it takes turns with others on tables without foreign keys (whose checks are statements within others): then the first
    # statement of a transaction at REPEATABLE READ needs no other try.
    is_sure_at_first = False
    # A try moves what its last statement touches, or what foreign keys look up for it: two come past each statement.
    patience = 2

    def __init__(self, number, lazy, eager, is_simple, is_generic):
        self.number = number
        self.sides = [Side(database, is_simple, is_generic) for database in (lazy, eager)]
        self.level = None
        self.said = []
        self.savepoints = 0
        self.attempts = 0
        self.shown = False

    def both(self, sql, parameters=(), prepare=None):
        """The answer of both; none if one of them asks for another try."""
        lazy, eager = (side.run(sql, parameters, prepare) for side in self.sides)
        retried = [answer[0] == "error" and answer[1] in RETRIABLE for answer in (lazy, eager)]
        is_first = self.is_sure_at_first and self.level == "REPEATABLE READ" and not self.shown
        if is_first and retried[0] and not retried[1] and sql.startswith(("UPDATE", "DELETE", "SELECT")):
            raise Difference(f"session {self.number}: {sql} {parameters} was the first, and asked to be tried again")
        self.shown = not sql.startswith("BEGIN") and (self.shown or not sql.startswith(("SAVEPOINT", "ROLLBACK")))
        if any(retried):
            return None
        if lazy != eager:
            said = f"session {self.number} at {self.level}: {sql} {parameters}"
            raise Difference(f"{said}\nlazy:  {lazy}\neager: {eager}\nbefore: {self.said}")
        return lazy

    def begin(self, level):
        self.level, self.said, self.savepoints, self.attempts = level, [], 0, 0
        self.both(f"BEGIN ISOLATION LEVEL {level}")

    def say(self, sql, parameters=(), prepare=None):
        if self.level is None:
            self.say_alone(sql, parameters, prepare)
            return
        self.said.append((sql, parameters, prepare))
        answer = self.both(sql, parameters, prepare)
        if answer is None:
            self.again()
        elif answer[0] == "error":
            self.recover()

    def say_alone(self, sql, parameters, prepare):
        if self.both(sql, parameters, prepare) is None:
            raise Difference(f"session {self.number}: {sql} {parameters} alone was asked to be tried again")

    def is_refused(self, sql):
        """Says what is refused while rows move."""
        answer = self.sides[0].run(sql)
        if answer != ("error", "55006"):
            raise Difference(f"session {self.number}: {sql} was not refused, but {answer}")

    def recover(self):
        """Goes on after an error that both gave."""
        if self.savepoints:
            self.said.append((f"ROLLBACK TO s{self.savepoints}", (), None))
            self.both(self.said[-1][0])
        else:
            self.end("ROLLBACK")

    def again(self):
        """Tries the whole transaction again, in both."""
        level, said = self.level, self.said
        self.both("ROLLBACK")
        while self.attempts < self.patience * len(said):
            self.attempts += 1
            self.both(f"BEGIN ISOLATION LEVEL {level}")
            for sql, parameters, prepare in said:
                answer = self.both(sql, parameters, prepare)
                if answer is None:
                    self.both("ROLLBACK")
                    break
                if answer[0] == "error":
                    # What others did meanwhile made it an error: there is nothing to go on with.
                    self.end("ROLLBACK")
                    return
            else:
                return
        if level != "SERIALIZABLE":
            raise Difference(f"session {self.number}: {self.attempts} tries at {level} did not succeed: {said}")
        self.level = None

    def savepoint(self):
        self.savepoints += 1
        self.say(f"SAVEPOINT s{self.savepoints}")

    def undo(self):
        if self.savepoints:
            self.say(f"ROLLBACK TO s{self.savepoints}")

    def end(self, how):
        """Ends the transaction. One of the two may fail at its very end, so both promise before either commits."""
        level, self.level = self.level, None
        if level == "SERIALIZABLE" and how == "COMMIT":
            promises = [side.run(f"PREPARE TRANSACTION '{side.connection.info.dbname}_{self.number}'") for side in self.sides]
            is_promised = all(promise[0] != "error" for promise in promises)
            for side, promise in zip(self.sides, promises):
                if promise[0] != "error":
                    side.run(f"{'COMMIT' if is_promised else 'ROLLBACK'} PREPARED '{side.connection.info.dbname}_{self.number}'")
            return
        self.both(how)


KINDS_OF_LIVE = {
    "live_rows": Kind(LIVE, """
        CREATE TABLE t AS SELECT k, j, num * 2 AS num, upper(txt) AS txt FROM line WHERE num <> 13;
        ALTER TABLE t ADD PRIMARY KEY (k, j)""", (Table("t", ("k", "j")), Table("line", ("k", "j"))), 100, ("line",)),
    "live_groups": Kind(LIVE, """
        CREATE TABLE t AS SELECT k, sum(num)::int AS num, max(txt) AS txt FROM line GROUP BY k HAVING count(*) < 4;
        ALTER TABLE t ADD PRIMARY KEY (k)""", (Table("t"), Table("line", ("k", "j"))), 100, ("line",)),
    "live_join": Kind(LIVE, """
        CREATE TABLE t AS SELECT l.k, l.j, l.num + i.num AS num, i.txt FROM line l JOIN item i USING (k);
        CREATE TABLE u AS SELECT i.k, count(l.j)::int AS num, min(i.txt) AS txt FROM item i LEFT JOIN line l ON l.k = i.k GROUP BY i.k;
        ALTER TABLE t ADD PRIMARY KEY (k, j); ALTER TABLE u ADD PRIMARY KEY (k)""",
        (Table("t", ("k", "j")), Table("u"), Table("line", ("k", "j")), Table("item")), 100, ("line", "item")),
    "live_beside_closed": Kind(LIVE, """
        CREATE TABLE t AS SELECT i.k, coalesce(l.j, 0) AS j, l.num, i.txt FROM item i LEFT JOIN line l ON l.k = i.k AND l.num > 5;
        CREATE TABLE u AS SELECT k, num, txt FROM item;
        ALTER TABLE t ADD PRIMARY KEY (k, j); ALTER TABLE u ADD PRIMARY KEY (k)""",
        (Table("t", ("k", "j")), Table("u"), Table("line", ("k", "j"))), 120, ("line",)),
}
KINDS |= KINDS_OF_LIVE


KINDS_THAT_GO_BACK = {
    "renamed": Kind(BASE, """
        CREATE TABLE t AS SELECT k, num, txt FROM base;
        ALTER TABLE t ADD PRIMARY KEY (k)""", (Table("t"),), 400, back=("SELECT k, num, txt FROM base",)),
    "foreign_key": dataclasses.replace(KINDS["foreign_key"],
        back=("SELECT k, num, txt FROM person", "SELECT k, num, txt, other AS parent FROM base")),
}


class Course:
    """The course of a history on both databases."""

    def __init__(self, kind, seed, lazy, eager):
        self.kind, self.generator = kind, Generator(kind, seed)
        self.choose = self.generator.random
        self.admin, self.copy = lazy.connect(), eager.connect()
        for connection in (self.admin, self.copy):
            connection.execute(kind.setup, prepare=False)
            connection.execute("ANALYZE")
        self.copy.execute(kind.definition, prepare=False)
        self.sessions = []
        self.sources = []
        self.lazy, self.eager = lazy, eager

    def migrate(self, options=""):
        """Begins the migration of the lazy database."""
        self.admin.execute(f"SELECT bullfrog.migrate('m', %s, live => %s{options})", (self.kind.definition, list(self.kind.live)), prepare=False)
        # What a transaction moved itself, others wait for until its end.
        self.sources = self.admin.execute("SELECT id, pages FROM bullfrog.source WHERE NOT inside ORDER BY id").fetchall()

    def connect(self):
        choose = self.choose
        self.sessions = [Session(number, self.lazy, self.eager, choose.random() < 0.3, choose.random() < 0.3) for number in range(SESSIONS)]
        for session in self.sessions:
            session.is_sure_at_first = "FOREIGN KEY" not in self.kind.definition

    def go(self, steps, levels=LEVELS, sabotage=None):
        for step in range(steps):
            if sabotage and step % 20 == 0:
                sabotage(self.admin, step)
            self.step(levels)

    def step(self, levels):
        choose, session = self.choose, self.choose.choice(self.sessions)
        choice = choose.random()
        if choice < 0.04 and self.sources:
            source, pages = choose.choice(self.sources)
            some = choose.sample(range(pages), min(pages, choose.randrange(1, 4)))
            self.admin.execute("SELECT bullfrog.sweep(%s, %s::bigint[])", (source, some))
        elif session.level is None and choice < 0.06:
            session.is_refused(f"TRUNCATE {choose.choice(self.kind.tables).name}")
        elif session.level is None and choice < 0.4:
            session.begin(choose.choice(levels))
        elif session.level and choice < 0.2:
            session.end("COMMIT" if choose.random() < 0.7 else "ROLLBACK")
        elif session.level and choice < 0.28:
            session.savepoint()
        elif session.level and choice < 0.34:
            session.undo()
        else:
            session.say(*self.generator.statement(session.number), prepare=choose.choice([True, None]))

    def rest(self):
        """All transactions end."""
        for session in self.sessions:
            if session.level:
                session.end("COMMIT")

    def disconnect(self):
        self.rest()
        for session in self.sessions:
            for side in session.sides:
                side.connection.close()

    def finish(self):
        compare(self.kind, self.admin, self.copy)
        self.admin.execute("SELECT bullfrog.finish('m')")
        compare(self.kind, self.admin, self.copy)

    def abort(self):
        """What the old tables have is what was written to the new ones."""
        self.admin.execute("SELECT bullfrog.abort('m')")
        for table, query in zip(self.kind.tables, self.kind.back, strict=True):
            expected = f"SELECT {', '.join(table.columns)} FROM {table.name}"
            alike(f"what {table.name} gave back", self.admin, f"SELECT {', '.join(table.columns)} FROM ({query}) back", self.copy, expected)


def run(kind, seed, lazy, eager, sabotage=None, options="", levels=LEVELS):
    """Runs a history; raises Difference if the two databases do not agree. `sabotage` is done to the lazy one every 20 steps. `options` are
    those of bullfrog.migrate."""
    course = Course(kind, seed, lazy, eager)
    course.migrate(options)
    course.connect()
    course.go(STEPS, levels, sabotage)
    course.disconnect()
    course.finish()


def run_there_and_back(kind, seed, lazy, eager, sabotage=None, options=""):
    """The same of a migration that is aborted twice, while clients stay connected, and then goes to its end."""
    course = Course(kind, seed, lazy, eager)
    course.migrate(options)
    course.connect()
    for _ in range(2):
        course.go(STEPS // 3, LEVELS, sabotage)
        course.rest()
        course.abort()
        course.migrate(options)
    course.go(STEPS // 3)
    course.disconnect()
    course.finish()


def compare(kind, lazy, eager):
    for table in kind.tables:
        query = f"SELECT {', '.join(table.columns)} FROM {table.name}"
        alike(table.name, lazy, query, eager, query)


def alike(what, lazy, query, eager, expected):
    """The two queries give the same rows."""
    answers = [sorted(map(repr, connection.execute(sql).fetchall())) for connection, sql in ((lazy, query), (eager, expected))]
    if answers[0] != answers[1]:
        only = [sorted(set(answers[side]) - set(answers[1 - side])) for side in (0, 1)]
        counts = f"{what} has {len(answers[0])} rows, should have {len(answers[1])}"
        raise Difference(f"{counts}; wrong: {only[0][:5]}, missing: {only[1][:5]}")
