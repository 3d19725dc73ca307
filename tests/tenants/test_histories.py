"""Random concurrent transactions on lists and registers, while the server is killed: what they saw can have been."""

import dataclasses
import itertools
import random
import threading
import time

import psycopg
import pytest

from conftest import CRASHES, running
from histories import READ_COMMITTED, SERIALIZABLE, SNAPSHOT, Transaction, check, registers_as_lists
from test_sleep import LIMITS

KEYS = 6
CLIENTS = 5

APPEND = "INSERT INTO list VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET items = list.items || ' ' || excluded.items"
CONFLICTS = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation)


def read_list(connection, key):
    row = connection.execute("SELECT items FROM list WHERE id = %s", (key,)).fetchone()
    return [int(word) for word in row[0].split()] if row else []


def read_register(connection, key):
    row = connection.execute("SELECT value FROM register WHERE id = %s", (key,)).fetchone()
    return row[0] if row else None


def append_to_lists(connection, dice, one, numbers):
    """A few reads and appends."""
    for _ in range(dice.randint(1, 4)):
        key = dice.randrange(KEYS)
        if dice.random() < 0.5:
            one.steps.append(("read", key, read_list(connection, key)))
        else:
            number = next(numbers)
            one.steps.append(("append", key, number))
            connection.execute(APPEND, (key, str(number)))


def write_registers(connection, dice, one, numbers):
    """A few reads, some of them followed by a write of the same register."""
    for key in dice.sample(range(KEYS), dice.randint(1, 3)):
        one.steps.append(("read", key, read_register(connection, key)))
        if dice.random() < 0.5:
            value = next(numbers)
            one.steps.append(("write", key, value))
            connection.execute("UPDATE register SET value = %s WHERE id = %s", (value, key))


def transact(server, seed, level, act, numbers, history, stop):
    """Transactions one after the other, until the server is gone or is to be."""
    dice = random.Random(seed)
    try:
        connection = server.connect()
        connection.isolation_level = psycopg.IsolationLevel[level.replace(" ", "_")]
        while not stop.is_set():
            one = Transaction(time.monotonic())
            history.append(one)
            try:
                # Until COMMIT is sent nothing can be committed.
                one.outcome = "aborted"
                act(connection, dice, one, numbers)
                one.outcome = "unknown"
                connection.commit()
                one.end, one.outcome = time.monotonic(), "committed"
            except CONFLICTS:
                one.outcome = "aborted"
                connection.rollback()
    except psycopg.OperationalError:
        pass


def run(server, level, act, rounds=1, crashes=None):
    """A history of so many rounds of some dozens of commits; the server is killed three times at the end of each if there is a seed for that."""
    numbers = itertools.count(1)
    history = []
    for number in range(rounds):
        stop = threading.Event()
        seeds = [(crashes or 0) * 1000 + number * CLIENTS + client for client in range(CLIENTS)]
        clients = [threading.Thread(target=transact, args=(server, seed, level, act, numbers, history, stop)) for seed in seeds]
        for client in clients:
            client.start()
        goal = committed_in(history) + random.Random(seeds[0]).randint(40, 120)
        while committed_in(history) < goal and any(client.is_alive() for client in clients):
            time.sleep(0.01)
        if crashes is not None:
            server.kill()
        stop.set()
        for client in clients:
            client.join()
        if crashes is not None:
            server.crash_storm(random.Random(seeds[0]))
    return history


def committed_in(history):
    return sum(one.outcome == "committed" for one in list(history))


def end(server, history, read):
    """Appends the last transaction, which reads everything."""
    last = Transaction(time.monotonic())
    with server.connect() as connection:
        last.steps = [("read", key, read(connection, key)) for key in range(KEYS)]
    last.end, last.outcome = time.monotonic(), "committed"
    history.append(last)


def make_tables(server):
    with server.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS list, register")
        connection.execute("CREATE TABLE list (id int PRIMARY KEY, items text NOT NULL)")
        connection.execute("CREATE TABLE register (id int PRIMARY KEY, value int)")
        connection.execute("INSERT INTO register VALUES " + ", ".join(f"({key}, NULL)" for key in range(KEYS)))


def wrong_of_lists(server, level, **options):
    make_tables(server)
    history = run(server, level, append_to_lists, **options)
    end(server, history, read_list)
    assert committed_in(history) > 20
    return check(history, level)


def wrong_of_registers(server, level, **options):
    make_tables(server)
    history = run(server, level, write_registers, **options)
    end(server, history, read_register)
    lists, lost = registers_as_lists(history)
    return lost or check(lists, level)


@pytest.mark.parametrize("level", [READ_COMMITTED, SNAPSHOT, SERIALIZABLE])
@pytest.mark.parametrize("seed", CRASHES)
def test_lists_are_what_the_level_allows_while_the_server_is_killed(tmp_path, level, seed):
    # Every second one flushes and cuts its log all the time.
    with running(tmp_path, settings=LIMITS if seed % 2 else None) as server:
        assert wrong_of_lists(server, level, rounds=3, crashes=seed) == []


# At READ COMMITTED updates that follow a read of their own are lost by right.
@pytest.mark.parametrize("level", [SNAPSHOT, SERIALIZABLE])
@pytest.mark.parametrize("seed", CRASHES)
def test_registers_are_what_the_level_allows_while_the_server_is_killed(tmp_path, level, seed):
    # Every second one flushes and cuts its log all the time.
    with running(tmp_path, settings=LIMITS if seed % 2 else None) as server:
        assert wrong_of_registers(server, level, rounds=3, crashes=seed) == []


@pytest.mark.parametrize("level", [READ_COMMITTED, SNAPSHOT, SERIALIZABLE])
def test_histories_of_postgresql_have_nothing_wrong(postgresql, level):
    """Nothing is called wrong that is right."""
    assert wrong_of_lists(postgresql, level) == []
    if level != READ_COMMITTED:
        assert wrong_of_registers(postgresql, level) == []


def committed(*steps, begin=0.0, end=1.0):
    return Transaction(begin, list(steps), end, "committed")


def test_write_skew_is_wrong_where_it_is_said_to_be(server):
    """Two that each read what the other writes, by a server that lets it happen at one level and not at the other."""
    for level, expected in ((SNAPSHOT, True), (SERIALIZABLE, False)):
        make_tables(server)
        sessions = [server.connect(), server.connect()]
        history = []
        for place, session in enumerate(sessions):
            session.isolation_level = psycopg.IsolationLevel[level.replace(" ", "_")]
            history.append(committed(("read", place, read_list(session, place)), ("append", 1 - place, place + 1)))
        for place, session in enumerate(sessions):
            session.execute(APPEND, (1 - place, str(place + 1)))
        sessions[0].commit()
        if expected:
            sessions[1].commit()
            end(server, history, read_list)
            assert check(history, SNAPSHOT) == []
            assert "a circle" in check(history, SERIALIZABLE)[0]
        else:
            with pytest.raises(psycopg.errors.SerializationFailure):
                sessions[1].commit()
        for session in sessions:
            session.close()


def test_a_lost_update_is_wrong(server):
    """Two that read a register, then write it, at READ COMMITTED."""
    make_tables(server)
    sessions = [server.connect(), server.connect()]
    history = [committed(("read", 0, read_register(session, 0)), ("write", 0, place + 1)) for place, session in enumerate(sessions)]
    for place, session in enumerate(sessions):
        session.execute("UPDATE register SET value = %s WHERE id = 0", (place + 1,))
        session.commit()
        session.close()
    end(server, history, read_register)
    assert "both follow None" in registers_as_lists(history)[1][0]


TAMPERED = {
    "is not there": [committed(("append", 0, 1)), committed(("read", 0, []))],
    "is twice": [committed(("append", 0, 1)), committed(("read", 0, [1, 1]))],
    "never committed": [Transaction(0, [("append", 0, 1)], outcome="aborted"), committed(("read", 0, [1]))],
    "in the midst": [committed(("append", 0, 1), ("append", 0, 2)), committed(("read", 0, [1])), committed(("read", 0, [1, 2]))],
    "no beginning": [committed(("append", 0, 1)), committed(("append", 0, 2)), committed(("read", 0, [2])), committed(("read", 0, [1, 2]))],
    # Who began when the writer had ended did not see it.
    "a circle": [committed(("append", 0, 1), end=1), committed(("append", 0, 2), begin=2, end=3), committed(("read", 0, [2, 1]), begin=4, end=5)],
    # One reads two lists that another appends to, one before and one after.
    "saw a part": [committed(("append", 0, 1), ("append", 1, 2)), committed(("read", 0, [1]), ("read", 1, [])),
                   committed(("read", 0, [1]), ("read", 1, [2]), begin=4, end=5)],
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERED)
def test_what_cannot_have_been_is_found(what):
    history = [dataclasses.replace(one) for one in TAMPERED[what]]
    assert what in check(history, SNAPSHOT)[0]
