"""Names in a PostgreSQL, more of them than fit into the cache."""

import os
import random
import shutil
import subprocess
import threading
import time

import hdfs_native
import pytest
from conftest import Server
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


def test_what_was_acknowledged_is_there_after_kills_of_both(server, postgresql):
    rounds, seed = int(os.environ.get("FILES_KILLS", 4)), random.randrange(1 << 32)
    print("seed", seed)
    chance, there, gone, stop = random.Random(seed), {}, set(), threading.Event()

    def work(number):
        mine, client, count = random.Random(seed + number), hdfs_native.Client(server.url), 0
        while not stop.is_set():
            count += 1
            path, content = f"/{number}/{count % 7}/{count}", mine.randbytes(mine.randrange(1_000))
            try:
                with client.create(path, hdfs_native.WriteOptions()) as file:
                    file.write(content)
                there[path] = content
                if mine.random() < 0.3:
                    old = mine.choice([path for path in list(there) if path.startswith(f"/{number}/")])
                    kept = there.pop(old)
                    # Until it is acknowledged it may be there or not.
                    if client.delete(old, False):
                        gone.add(old)
                    else:
                        there[old] = kept
            except Exception:
                client = hdfs_native.Client(server.url)
                time.sleep(0.05)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for _ in range(rounds):
        time.sleep(chance.uniform(0.3, 1.5))
        if chance.random() < 0.5:
            postgresql.kill()
            time.sleep(chance.uniform(0, 1))
            if chance.random() < 0.5:
                server.kill()
                postgresql.start()
                server.start()
            else:
                postgresql.start()
        else:
            server.restart()
    time.sleep(1)
    stop.set()
    for worker in workers:
        worker.join()
    server.restart()
    client = hdfs_native.Client(server.url)
    assert there, "it did something"
    for path, content in there.items():
        with client.read(path) as file:
            assert file.read() == content, path
    for path in gone:
        with pytest.raises(FileNotFoundError):
            client.get_file_info(path)
