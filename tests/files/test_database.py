"""Names in a PostgreSQL, more of them than fit into the cache."""

import random
import shutil
import subprocess
import time

import hdfs_native
import pytest
from conftest import Server
from kills import check_what_is_acknowledged
from shapes import check_a_thousand_levels, check_rights_of_what_is_elsewhere
from postgresql import PROGRAMS, PostgreSQL

PASSWORD = "open-sesame"


class Database(PostgreSQL):
    def __init__(self):
        super().__init__(PASSWORD)

    @property
    def url(self):
        return f"postgres://postgres:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def query(self, text):
        words = [PROGRAMS / "psql", "-At", self.url, "-c", text]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def postgresql():
    postgresql = Database()
    yield postgresql
    postgresql.kill()
    shutil.rmtree(postgresql.root)


@pytest.fixture
def server(tmp_path, postgresql):
    server = Server(tmp_path, postgresql.url, cache=20)
    yield server
    server.kill()


def until(what):
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_names_beyond_the_cache_are_listed_read_and_asked_for(server, postgresql):
    client = hdfs_native.Client(server.url)
    for number in range(300):
        with client.create(f"/many/{number % 3}/{number:04}", hdfs_native.WriteOptions()) as file:
            file.write(str(number).encode())
    for _ in range(2):
        for part in range(3):
            listed = [status.path.rsplit("/", 1)[-1] for status in client.list_status(f"/many/{part}")]
            assert listed == [f"{number:04}" for number in range(300) if number % 3 == part]
        for number in random.sample(range(300), 30):
            with client.read(f"/many/{number % 3}/{number:04}") as file:
                assert file.read() == str(number).encode()
        assert client.get_content_summary("/many").file_count == 300
        server.restart()
        client = hdfs_native.Client(server.url)
    assert client.rename("/many/0", "/moved") is None and client.delete("/many", True)
    assert client.get_content_summary("/").file_count == 100
    assert PASSWORD not in server.text()
    # Whoever reads the tables sees what there is.
    until(lambda: postgresql.query("SELECT count(*) FROM inode WHERE NOT is_directory") == "100")
    assert postgresql.query("SELECT count(*) FROM block") == "100"


def test_a_thousand_levels_are_found_where_nothing_is_in_memory(server):
    check_a_thousand_levels(server)


def test_who_deletes_a_directory_is_asked_about_what_is_not_in_memory(server, monkeypatch):
    check_rights_of_what_is_elsewhere(server, monkeypatch)


def test_what_was_acknowledged_is_there_after_kills_of_both(server, postgresql):
    def kill(dice):
        if dice.random() < 0.5:
            server.restart()
            return
        postgresql.kill()
        time.sleep(dice.uniform(0, 1))
        is_killed = dice.random() < 0.5
        if is_killed:
            server.kill()
        postgresql.start()
        if is_killed:
            server.start()

    check_what_is_acknowledged(server, 1_000, kill)
