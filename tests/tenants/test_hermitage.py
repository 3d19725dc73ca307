"""Hermitage's anomalies (Martin Kleppmann's collection; names as in Adya 1999) in SQL, at each level. Each is shown to happen in PostgreSQL at the
level below the one that prevents it, so that a step that says nothing is noticed. How many wait or fail meanwhile is not compared: levels
above READ COMMITTED decide at the commit here. `kernels/transaction/tests/it/anomalies.rs` has the same without SQL."""

import collections
import concurrent.futures

import psycopg
import pytest

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
# A step that has not ended by then waits for another session.
PATIENCE = 0.2
READ = "SELECT value FROM test WHERE id = {}"
ALL = "SELECT id, value FROM test ORDER BY id"

# The level that prevents it, its steps, and whether it happened: by what each session's steps gave, and by the rows at the end.
Anomaly = collections.namedtuple("Anomaly", "prevented_by steps happened")


class Gave:
    """What the steps of each session gave: rows, counts or SQLSTATEs."""

    def __init__(self):
        self.steps = collections.defaultdict(list)

    def committed(self, *sessions):
        return all(self.steps[session][-1] == "COMMIT" for session in sessions)

    def read(self, session):
        """The single values that were read."""
        return [rows[0][0] for rows in self.steps[session] if isinstance(rows, list) and len(rows) == 1 and len(rows[0]) == 1]

    def rows(self, session, at):
        given = [rows for rows in self.steps[session] if isinstance(rows, list)]
        return given[at]


def update(row, value):
    return f"UPDATE test SET value = {value} WHERE id = {row}"


def vanishes(gave, final):
    """Whether somebody who had seen what the later one wrote saw the earlier one's again."""
    later = False
    for value in gave.read(3):
        later |= value in (12, 18)
        if later and value in (11, 19):
            return True
    return False


ANOMALIES = {
    "G0 dirty writes": Anomaly("READ COMMITTED", [
        (1, update(1, 11)), (2, update(1, 12)), (1, update(2, 21)), (1, "COMMIT"), (2, update(2, 22)), (2, "COMMIT"),
    ], lambda gave, final: final not in ({1: 11, 2: 21}, {1: 12, 2: 22})),
    "G1a aborted reads": Anomaly("READ COMMITTED", [
        (1, update(1, 101)), (2, READ.format(1)), (1, "ROLLBACK"), (2, READ.format(1)), (2, "COMMIT"),
    ], lambda gave, final: 101 in gave.read(2)),
    "G1b intermediate reads": Anomaly("READ COMMITTED", [
        (1, update(1, 101)), (2, READ.format(1)), (1, update(1, 11)), (1, "COMMIT"), (2, READ.format(1)), (2, "COMMIT"),
    ], lambda gave, final: 101 in gave.read(2)),
    "G1c circular information flow": Anomaly("READ COMMITTED", [
        (1, update(1, 11)), (2, update(2, 22)), (1, READ.format(2)), (2, READ.format(1)), (1, "COMMIT"), (2, "COMMIT"),
    ], lambda gave, final: gave.read(1) == [22] and gave.read(2) == [11]),
    "OTV observed transaction vanishes": Anomaly("READ COMMITTED", [
        (1, update(1, 11)), (1, update(2, 19)), (2, update(1, 12)), (1, "COMMIT"), (3, READ.format(1)), (2, update(2, 18)), (3, READ.format(2)),
        (2, "COMMIT"), (3, READ.format(2)), (3, READ.format(1)), (3, "COMMIT"),
    ], vanishes),
    "PMP predicate-many-preceders": Anomaly("REPEATABLE READ", [
        (1, "SELECT id, value FROM test WHERE value = 30"), (2, "INSERT INTO test VALUES (3, 30)"), (2, "COMMIT"),
        (1, "SELECT id, value FROM test WHERE value % 3 = 0"), (1, "COMMIT"),
    ], lambda gave, final: gave.rows(1, 1) == [(3, 30)]),
    "PMP by a write": Anomaly("REPEATABLE READ", [
        (1, "UPDATE test SET value = value + 10"), (2, "DELETE FROM test WHERE value = 20"), (1, "COMMIT"), (2, "COMMIT"),
    ], lambda gave, final: gave.committed(1, 2) and final not in ({2: 30}, {1: 20})),
    "P4 lost update": Anomaly("REPEATABLE READ", [
        (1, READ.format(1)), (2, READ.format(1)), (1, update(1, 11)), (2, update(1, 11)), (1, "COMMIT"), (2, "COMMIT"),
    ], lambda gave, final: gave.committed(1, 2)),
    "G-single read skew": Anomaly("REPEATABLE READ", [
        (1, READ.format(1)), (2, update(1, 12)), (2, update(2, 18)), (2, "COMMIT"), (1, READ.format(2)), (1, "COMMIT"),
    ], lambda gave, final: gave.read(1) == [10, 18]),
    "G-single by a predicate": Anomaly("REPEATABLE READ", [
        (1, "SELECT id, value FROM test WHERE value % 5 = 0"), (2, "UPDATE test SET value = 12 WHERE value = 10"), (2, "COMMIT"),
        (1, "SELECT id, value FROM test WHERE value % 3 = 0"), (1, "COMMIT"),
    ], lambda gave, final: gave.rows(1, 1) == [(1, 12)]),
    "G-single by a write": Anomaly("REPEATABLE READ", [
        (1, READ.format(1)), (2, update(1, 12)), (2, update(2, 18)), (2, "COMMIT"), (1, "DELETE FROM test WHERE value = 20"), (1, "COMMIT"),
    ], lambda gave, final: gave.committed(1) and 2 in final),
    "G2-item write skew": Anomaly("SERIALIZABLE", [
        (1, ALL), (2, ALL), (1, update(1, 11)), (2, update(2, 21)), (1, "COMMIT"), (2, "COMMIT"),
    ], lambda gave, final: gave.committed(1, 2)),
    "G2 anti-dependency cycle": Anomaly("SERIALIZABLE", [
        (1, "SELECT id, value FROM test WHERE value % 3 = 0"), (2, "SELECT id, value FROM test WHERE value % 3 = 0"),
        (1, "INSERT INTO test VALUES (3, 30)"), (2, "INSERT INTO test VALUES (4, 42)"), (1, "COMMIT"), (2, "COMMIT"),
    ], lambda gave, final: gave.committed(1, 2)),
    "G2 with two edges": Anomaly("SERIALIZABLE", [
        (1, ALL), (2, "UPDATE test SET value = value + 5 WHERE id = 2"), (2, "COMMIT"), (3, ALL), (3, "COMMIT"), (1, update(1, 0)), (1, "COMMIT"),
    ], lambda gave, final: gave.committed(1, 2, 3)),
}  # fmt: skip


def give(connection, statement):
    try:
        cursor = connection.execute(statement)
    except psycopg.Error as error:
        return error.sqlstate
    return cursor.fetchall() if cursor.description else cursor.statusmessage


def play(cluster, level, steps):
    """What the steps gave, and the rows at the end."""
    with cluster.connect(autocommit=True) as admin:
        admin.execute("DROP TABLE IF EXISTS test")
        admin.execute("CREATE TABLE test (id int PRIMARY KEY, value int)")
        admin.execute("INSERT INTO test VALUES (1, 10), (2, 20)")
        names = sorted({name for name, _ in steps})
        connections = {name: cluster.connect(autocommit=True) for name in names}
        threads = {name: concurrent.futures.ThreadPoolExecutor(1) for name in names}
        given = []
        for name in names:
            connections[name].execute(f"BEGIN ISOLATION LEVEL {level}")
        for name, statement in steps:
            step = threads[name].submit(give, connections[name], statement)
            given.append((name, step))
            concurrent.futures.wait([step], PATIENCE)
        gave = Gave()
        for name, step in given:
            gave.steps[name].append(step.result(60))
        for name in names:
            threads[name].shutdown()
            connections[name].close()
        return gave, dict(admin.execute(ALL).fetchall())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ANOMALIES)
def test_anomalies_do_not_happen_at_the_levels_that_prevent_them(server, postgresql, name, level):
    anomaly = ANOMALIES[name]
    if LEVELS.index(level) >= LEVELS.index(anomaly.prevented_by):
        for cluster in (server, postgresql):
            gave, final = play(cluster, level, anomaly.steps)
            assert not anomaly.happened(gave, final), (type(cluster).__name__, dict(gave.steps), final)
    else:
        gave, final = play(postgresql, level, anomaly.steps)
        assert anomaly.happened(gave, final), (dict(gave.steps), final)
