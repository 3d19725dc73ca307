"""LISTEN and NOTIFY with unchanged drivers, and beside PostgreSQL."""

import asyncio
import random
import threading
import time

import asyncpg
import psycopg
import pytest
from conftest import Server

SEEDS = 6
STATEMENTS = 60
CHANNELS = ["a", "b", '"B"']


def notes(connection, count, timeout=30):
    """So many notifications, each as channel and payload."""
    return [(note.channel, note.payload) for note in connection.notifies(timeout=timeout, stop_after=count)]


def test_a_client_that_waits_hears_at_once_and_from_whom(server):
    with server.connect(autocommit=True) as listens, server.connect(autocommit=True) as says:
        listens.execute("LISTEN jobs")
        said = threading.Timer(0.5, says.execute, ["SELECT pg_notify('jobs', 'one')"])
        said.start()
        heard = next(listens.notifies(timeout=30))
        said.join()
        assert (heard.channel, heard.payload, heard.pid) == ("jobs", "one", says.info.backend_pid)


def test_notifications_come_with_the_answer_to_the_next_statement(server):
    with server.connect(autocommit=True) as listens, server.connect(autocommit=True) as says:
        heard = []
        listens.add_notify_handler(heard.append)
        listens.execute("LISTEN jobs")
        listens.execute("BEGIN")
        says.execute("NOTIFY jobs, 'one'")
        says.execute("NOTIFY jobs, 'two'")
        listens.execute("SELECT 1")
        assert heard == []
        listens.execute("COMMIT")
        assert [note.payload for note in heard] == ["one", "two"]


def test_a_listener_with_a_small_idle_timeout_is_still_sent_away(server):
    with server.connect(autocommit=True) as listens, server.connect(autocommit=True) as says:
        listens.execute("LISTEN jobs")
        listens.execute("SET idle_session_timeout = '2s'")
        until = time.monotonic() + 30
        with pytest.raises(psycopg.OperationalError):
            while time.monotonic() < until:
                says.execute("NOTIFY jobs")
                notes(listens, 1, timeout=0.2)


def test_asyncpg_listens(server):
    async def listen():
        place = {"host": "127.0.0.1", "port": server.port, "user": "postgres", "database": "postgres"}
        listens, says = await asyncpg.connect(**place), await asyncpg.connect(**place)
        heard = asyncio.Queue()
        await listens.add_listener("jobs", lambda _, pid, channel, payload: heard.put_nowait((pid, channel, payload)))
        async with says.transaction():
            await says.execute("SELECT pg_notify($1, $2)", "jobs", "ü")
            assert heard.empty()
        assert await asyncio.wait_for(heard.get(), 30) == (says.get_server_pid(), "jobs", "ü")
        await listens.close()
        await says.close()

    asyncio.run(listen())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_sessions_hear_what_those_of_postgresql_hear(server, postgresql, seed):
    dice = random.Random(seed)
    both = [[made.connect(autocommit=True) for _ in range(3)] for made in (server, postgresql)]
    for sessions in both:
        for session in sessions:
            session.execute("UNLISTEN *")
    heard = [[[] for _ in sessions] for sessions in both]
    for sessions, lists in zip(both, heard):
        for session, notes in zip(sessions, lists):
            session.add_notify_handler(lambda note, notes=notes: notes.append((note.channel, note.payload)))
    for number in range(STATEMENTS):
        at, channel = dice.randrange(3), dice.choice(CHANNELS)
        statement = dice.choice(
            [f"LISTEN {channel}"] * 2
            + [f"NOTIFY {channel}, '{number % 7}'"] * 4
            + [f"SELECT pg_notify('b', (g % 3)::text) FROM generate_series(1, {dice.randrange(6)}) g"] * 2
            + ["BEGIN", "SAVEPOINT s", "ROLLBACK TO s", "ROLLBACK", "COMMIT", "COMMIT", f"UNLISTEN {channel}", "UNLISTEN *", "SELECT 1 / 0"]
            + ["SELECT * FROM pg_listening_channels() ORDER BY 1"]
        )
        answers = []
        for sessions in both:
            try:
                cursor = sessions[at].execute(statement)
                answers.append((cursor.statusmessage, cursor.fetchall() if cursor.description and "notify" not in statement else None))
            except psycopg.Error as error:
                answers.append(error.sqlstate)
        assert answers[0] == answers[1], statement
    for sessions in both:
        for session in sessions:
            session.execute("ROLLBACK")
            session.execute("SELECT 1")
    # PostgreSQL wakes who listens when it comes to it.
    until = time.monotonic() + 30
    while heard[0] != heard[1] and time.monotonic() < until:
        for session in both[0] + both[1]:
            session.execute("SELECT 1")
    assert heard[0] == heard[1]
    assert any(heard[0])
    for session in both[0] + both[1]:
        session.close()


def test_nobody_hears_of_what_a_kill_undoes(tmp_path):
    """Whatever was heard had been written when the server was killed."""
    server = Server(tmp_path, {})
    server.start()
    server.listen()
    with server.connect(autocommit=True) as client:
        client.execute("CREATE TABLE t (n int PRIMARY KEY)")
    last = 0
    for _ in range(3):
        with server.connect(autocommit=True) as listens, server.connect(autocommit=True) as says:
            listens.execute("LISTEN written")

            def write(says=says, first=last + 1):
                try:
                    for n in range(first, first + 100_000):
                        says.execute(f"WITH n AS (INSERT INTO t VALUES ({n}) RETURNING n) SELECT pg_notify('written', n::text) FROM n")
                except psycopg.Error:
                    pass

            writing = threading.Thread(target=write)
            writing.start()
            killed = threading.Timer(1, server.kill)
            killed.start()
            heard = []
            try:
                for note in listens.notifies(timeout=30):
                    heard.append(int(note.payload))
            except psycopg.OperationalError:
                pass
            killed.join()
            writing.join()
        assert heard
        server.start()
        server.listen()
        with server.connect(autocommit=True) as client:
            last = client.execute("SELECT max(n) FROM t").fetchone()[0]
        assert max(heard) <= last
    server.stop()
