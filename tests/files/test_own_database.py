"""Names in a database of the node itself, which is what a node does that nobody told anything else."""

import re
import time

import hdfs_native
import psycopg
import pytest
from conftest import EXAMPLE, Server
from shapes import check_a_thousand_levels, check_rights_of_what_is_elsewhere

pytestmark = pytest.mark.skipif(EXAMPLE, reason="the small server has no tenants")


@pytest.fixture(autouse=True)
def own_database(monkeypatch):
    """This is what is tested here, whatever database the others have."""
    monkeypatch.delenv("FILES_DATABASE", raising=False)


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path, cache=20, services=("files", "tenants"))
    yield server
    server.kill()


@pytest.fixture
def alone(tmp_path):
    server = Server(tmp_path, cache=20)
    yield server
    server.kill()


def connect(server, database="savanna_files"):
    ports = re.compile(r"tenants +running +127.0.0.1:(\d+)")
    until(lambda: ports.search(server.text()))
    return psycopg.connect(f"host=127.0.0.1 port={ports.findall(server.text())[-1]} user=ann dbname={database}", autocommit=True)


def until(what):
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def write(client, path, content):
    with client.create(path, hdfs_native.WriteOptions()) as file:
        file.write(content)


def test_more_names_than_the_cache_has_are_there_after_kills(alone):
    client = hdfs_native.Client(alone.url)
    for number in range(300):
        write(client, f"/many/{number % 3}/{number:04}", str(number).encode())
    for _ in range(3):
        alone.restart()
        client = hdfs_native.Client(alone.url)
        for part in range(3):
            listed = [status.path.rsplit("/", 1)[-1] for status in client.list_status(f"/many/{part}")]
            assert listed == [f"{number:04}" for number in range(300) if number % 3 == part]
        assert client.get_content_summary("/many").file_count == 300
        with client.read("/many/2/0299") as file:
            assert file.read() == b"299"
    assert client.delete("/many/0", True)
    alone.restart()
    assert hdfs_native.Client(alone.url).get_content_summary("/").file_count == 200
    # Nobody else reaches it.
    assert "tenants" in alone.text() and not re.search(r"tenants +running +\d", alone.text())


def test_a_thousand_levels_are_found_where_nothing_is_in_memory(alone):
    check_a_thousand_levels(alone)


def test_who_deletes_a_directory_is_asked_about_what_is_not_in_memory(alone, monkeypatch):
    check_rights_of_what_is_elsewhere(alone, monkeypatch)


def test_psql_reads_the_names_and_does_not_write_them(server):
    client = hdfs_native.Client(server.url)
    client.mkdirs("/d/deep", create_parent=True)
    write(client, "/d/small", b"few")
    write(client, "/d/large", b"more" * 1_000)
    with connect(server) as connection:
        def query(text):
            return connection.execute(text).fetchall()

        until(lambda: query("SELECT count(*) FROM inode WHERE NOT is_directory") == [(2,)])
        until(lambda: query("SELECT count(*) FROM inode WHERE client IS NOT NULL") == [(0,)])
        assert query("SELECT name, length FROM inode WHERE NOT is_directory AND length < 100") == [(b"small", 3)]
        path = query("WITH RECURSIVE up AS (SELECT parent, name, 1 AS n FROM inode WHERE name = 'deep' UNION ALL"
                     " SELECT i.parent, i.name, n + 1 FROM up JOIN inode i ON i.id = up.parent)"
                     " SELECT string_agg(convert_from(name, 'UTF8'), '/' ORDER BY n DESC) FROM up")
        assert path == [("/d/deep",)]
        for statement in [
            "DELETE FROM inode", "UPDATE marker SET txid = 0", "CREATE TABLE mine (a int)", "DROP TABLE inode", "LOCK TABLE inode",
            "SELECT * FROM inode FOR UPDATE", "BEGIN READ WRITE; DELETE FROM inode", "SET TRANSACTION READ WRITE; DELETE FROM inode",
            "SET default_transaction_read_only = off; DELETE FROM inode", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE; DELETE FROM inode",
            "SELECT set_config('transaction_read_only', 'off', false); DELETE FROM inode", "DROP DATABASE savanna_files",
            "TRUNCATE inode", "CREATE USER me PASSWORD 'x'", "WITH gone AS (DELETE FROM inode RETURNING 1) SELECT * FROM gone",
        ]:
            with pytest.raises(psycopg.Error):
                connection.execute(statement)
            connection.execute("ROLLBACK")
        assert query("SELECT count(*) FROM inode WHERE NOT is_directory") == [(2,)]
        with connection.cursor() as cursor, pytest.raises(psycopg.Error):
            with cursor.copy("COPY block FROM STDIN") as copy:
                copy.write(b"1\t1\n")
    with connect(server, "postgres") as connection, pytest.raises(psycopg.errors.ObjectInUse, match="belongs to another service"):
        connection.execute("DROP DATABASE savanna_files")
    write(client, "/d/later", b"more")
    with connect(server) as connection:
        until(lambda: connection.execute("SELECT count(*) FROM inode WHERE NOT is_directory").fetchall() == [(3,)])


def test_names_of_a_node_that_had_no_database_go_there(tmp_path):
    server = Server(tmp_path, database="none")
    client = hdfs_native.Client(server.url)
    for number in range(50):
        write(client, f"/d/{number}", b"x")
    server.kill()
    server.database = None
    try:
        server.start()
        assert hdfs_native.Client(server.url).get_content_summary("/d").file_count == 50
        server.restart()
        assert hdfs_native.Client(server.url).get_content_summary("/d").file_count == 50
    finally:
        server.kill()
