"""Random statements get from tenants the answer that PostgreSQL gives: rows, counts, SQLSTATEs."""

import os

import pytest
from answers import answer, failed
from statements import Statements

SEEDS = int(os.environ.get("TENANTS_SEEDS", "30"))
STATEMENTS = 150
# How types are called in PostgreSQL's catalog.
NAMES = {"character varying(5)": "varchar(5)", "character(4)": "char(4)", "time without time zone": "time", "timestamp without time zone": "timestamp",
         "timestamp with time zone": "timestamptz", "bit varying": "varbit"}
COLUMNS = """SELECT attname, format_type(atttypid, atttypmod), attidentity <> '' FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""


class Pair:
    """Tenants and PostgreSQL, which are told the same."""

    def __init__(self, ours, theirs, seed):
        self.ours, self.theirs, self.seed = ours, theirs, seed
        self.told = []
        # Statements with one answer, and those of which nobody promises which answer they have.
        self.same = self.undecided = 0

    def both(self, statement, extended=False):
        self.told.append(statement)
        return answer(self.ours, statement, extended), answer(self.theirs, statement, extended)

    def tell(self, statement, extended=False):
        """The answer of both."""
        got, expected = self.both(statement, extended)
        assert got == expected, self.story()
        return got

    def ask(self, statement, extended):
        """The answer of both, or nothing if it can be the one or the other."""
        got, expected = self.both(statement, extended)
        if got == expected:
            self.same += 1
            return got
        assert is_undecided(statement, got, expected), f"{self.story()}\n{got}\n{expected}"
        self.undecided += 1
        return None

    def story(self):
        return f"seed {self.seed}:\n" + "\n".join(self.told[-8:])


def is_undecided(statement, *answers):
    """Which condition is asked first is nobody's promise, nor which of several rows is changed first: so one may fail where the other does
    not get to, or fail for another reason."""
    codes = [answer[:2] if failed(answer) else None for answer in answers]
    if None not in codes:
        return {*codes} <= {"21", "22", "23"} or {*answers} == {"22P02", "428C9"}
    return bool({*codes} & {"21", "22"}) or ("23505" in answers and statement.startswith("UPDATE"))


def columns(connection, table):
    """The types of a table's columns, and those that number their rows."""
    found = connection.execute(COLUMNS, (table,)).fetchall()
    return {name: NAMES.get(of, of) for name, of, _ in found}, [name for name, _, numbers in found if numbers]


def defined(pair, dice):
    """Makes a schema; whether it is there. A default that fails is refused by tenants when it is defined, by PostgreSQL perhaps when it is asked."""
    for name in ("VIEW IF EXISTS v", "TABLE IF EXISTS a, b", "TYPE IF EXISTS mood"):
        pair.tell(f"DROP {name}")
    for statement in dice.schema():
        got, expected = pair.both(statement)
        assert got == expected or got[:2] == "22", pair.story()
        if failed(got):
            return False
    return True


def block(pair, dice):
    """A transaction of some statements."""
    pair.tell("BEGIN")
    for _ in range(dice.random.randint(1, 3)):
        saved = dice.chance(0.3)
        if saved:
            pair.tell("SAVEPOINT s")
        got = pair.ask(dice.statement(), dice.chance(0.3))
        if got is None or (failed(got) and not saved):
            pair.both("ROLLBACK")
            return
        if saved and (failed(got) or dice.chance(0.2)):
            pair.tell("ROLLBACK TO s")
    pair.tell(dice.pick(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_statements_have_postgresqls_answers(server, postgresql, seed):
    dice = Statements(seed)
    with server.connect(autocommit=True) as ours, postgresql.connect(autocommit=True) as theirs:
        pair = Pair(ours, theirs, seed)
        while not defined(pair, dice):
            pass
        while pair.same + pair.undecided < STATEMENTS:
            block(pair, dice)
            for table in ("a", "b"):
                pair.tell(f"SELECT * FROM {table} ORDER BY id")
                dice.tables[table], dice.numbered[table] = columns(theirs, table)
                for column in dice.numbered[table]:
                    # What failed has taken numbers, how many is nobody's promise.
                    pair.tell(f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {len(pair.told)})")
        assert pair.undecided < STATEMENTS / 10, "too little is compared"
