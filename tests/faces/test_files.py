"""Tables of files in a node: below which folders they lie, and what is left of them when the node stops."""

import subprocess
import time

import psycopg
import pytest

from node import SAVANNA, Node


def connect(node):
    address = f"host=127.0.0.1 port={node.ports['pgwire']} user=postgres dbname=savanna_streams"
    return psycopg.connect(address, autocommit=True)


def table(name, path, more=""):
    return f"CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv'{more})"


@pytest.fixture
def own_node(tmp_path):
    (tmp_path / "files").mkdir()
    node = Node(tmp_path, files=tmp_path / "files")
    yield node
    node.kill()


def test_tables_use_the_folders_that_the_node_was_given(own_node, tmp_path):
    inside, outside = tmp_path / "files", tmp_path / "outside"
    outside.mkdir()
    (outside / "rows.csv").write_text("n\n1\n")
    (inside / "rows.csv").write_text("n\n2\nx\n")
    (inside / "link").symlink_to(outside)
    (inside / "file.csv").symlink_to(outside / "rows.csv")
    data = tmp_path / "data"
    with connect(own_node) as connection:
        refused = [
            outside / "rows.csv", outside, inside / ".." / "outside", inside / "link", inside / "link" / "rows.csv",
            inside / "*.csv", inside / "file.csv", "/etc/hosts", "/etc/*", data / "keys", inside / "link" / "new",
        ]
        for at, path in enumerate(refused):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match=f"{inside}.*--files DIR"):
                connection.execute(table(f"refused_{at}", path))
                connection.execute(f"SELECT * FROM refused_{at}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(table("letters", inside / "rows.csv", f", 'on-error' = 'dead-letter:{outside}/letters'"))
        connection.execute(table("good", inside / "rows.csv", f", 'on-error' = 'dead-letter:{inside}/letters'"))
        assert connection.execute("SELECT n FROM good").fetchall() == [(2,)]
        connection.execute(table("own", data / "files" / "out"))
        connection.execute("INSERT INTO own SELECT n FROM good")
        deadline = time.monotonic() + 60
        while not list((data / "files" / "out").glob("part-*")):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_what_a_rolling_sink_has_is_visible_when_the_node_stops(own_node, tmp_path):
    out = tmp_path / "files" / "out"
    with connect(own_node) as connection:
        connection.execute("""CREATE TABLE endless (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000',
                              'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000000')""")
        connection.execute(table("large", out, ", 'csv.header' = 'false', 'sink.rolling-policy.file-size' = '1GiB'"))
        connection.execute("INSERT INTO large SELECT n FROM endless")
        deadline = time.monotonic() + 60
        rows = 0
        while rows < 500:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            rows = next(int(row[column]) for row, column in queries(connection))
    own_node.process.terminate()
    assert own_node.process.wait(timeout=60) == 0, own_node.log.read_text()
    visible = [int(line) for path in out.glob("part-*") for line in path.read_text().split()]
    assert len(visible) >= rows
    assert sorted(visible) == list(range(1, len(visible) + 1))
    assert not list(out.glob(".part-*"))


def test_what_a_rolling_sink_has_is_visible_when_the_command_is_terminated(tmp_path):
    out = tmp_path / "out"
    script = f"""
        CREATE TABLE endless (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000',
            'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '1000000000');
        {table("large", out, ", 'csv.header' = 'false', 'sink.rolling-policy.file-size' = '1GiB'")};
        INSERT INTO large SELECT n FROM endless"""
    with subprocess.Popen([SAVANNA, "sql", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as command:
        deadline = time.monotonic() + 60
        while not [part for part in out.glob(".part-*") if part.stat().st_size > 0]:
            assert time.monotonic() < deadline and command.poll() is None
            time.sleep(0.05)
        command.terminate()
        assert command.wait(timeout=60) == 130, command.stderr.read()
    visible = [int(line) for path in out.glob("part-*") for line in path.read_text().split()]
    assert visible == list(range(1, len(visible) + 1)) and visible
    assert not list(out.glob(".part-*"))


def queries(connection):
    """The rows of SHOW QUERIES with the place of the rows that came out."""
    shown = connection.execute("SHOW QUERIES")
    names = [column.name for column in shown.description]
    return [(row, names.index("result_rows")) for row in shown.fetchall()]
