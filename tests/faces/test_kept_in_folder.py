"""Queries that are kept in a folder of a file system (`file:///FOLDER`), beside or instead of the node's own directory."""

import random
import shutil
import signal
import time

import psycopg
import pytest

from node import Node
from test_buckets import SESSIONS, undisturbed
from test_survival import BIDS, HOT, NEXMARK, connect, hot, lines, named, states, until

SEED = random.randrange(1 << 32)


@pytest.fixture
def start(tmp_path):
    nodes = []

    def start(name):
        (tmp_path / name).mkdir(exist_ok=True)
        nodes.append(Node(tmp_path / name, files=f"{tmp_path}/shared,{tmp_path}/out"))
        return nodes[-1]

    (tmp_path / "shared").mkdir()
    yield start
    for node in nodes:
        if node.process.poll() is None:
            node.kill()


def begin(node, tmp_path, insert, *settings):
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot(f"file://{tmp_path}/out"), "SET 'snapshot-interval' = '100ms'", *settings,
                          f"SET 'query.store' = 'file://{tmp_path}/shared'", named("hot"), insert]:
            connection.execute(statement)


def take_over(node, tmp_path, *settings):
    with connect(node) as connection:
        for statement in [*settings, f"RESUME QUERY FROM SAVEPOINT 'file://{tmp_path}/shared/hot'"]:
            connection.execute(statement)


def files(folder):
    """All files but what a node was writing when it was killed, which goes an hour later."""
    return [path for path in folder.rglob("*") if path.is_file() and "#" not in path.name]


def test_a_query_goes_on_in_other_nodes_when_its_own_is_lost_with_its_directory(tmp_path, start):
    node, dice, lost = start("node-0"), random.Random(SEED), 0
    begin(node, tmp_path, SESSIONS, "SET 'group-size' = '1'")
    until(lambda: states(node)["hot"]["snapshot"].startswith("epoch"))
    assert not list((tmp_path / "node-0/data/streams").glob("queries/*")), "nothing of it is in the node"
    kept = next((tmp_path / "shared/hot").iterdir())
    assert (tmp_path / "shared/hot").stat().st_mode & 0o777 == 0o700, "passwords are in it"
    assert files(kept / "log") and files(kept / "snapshots")
    for number in range(1, 4):
        time.sleep(dice.uniform(0.2, 0.8))
        is_over = "hot" not in states(node)
        node.kill()
        if is_over:
            break
        lost += 1
        shutil.rmtree(tmp_path / f"node-{number - 1}/data")
        node = start(f"node-{number}")
        take_over(node, tmp_path, f"SET 'group-size' = '{number % 2 + 1}'")
    assert lost >= 2, f"seed {SEED}: it was over too soon"
    # A node that is killed goes on with it by itself.
    node.kill()
    node = start(f"node-{lost}")
    until(lambda: "hot" not in states(node), deadline=120)
    assert lines(tmp_path / "out") == undisturbed(tmp_path / "expected", SESSIONS), f"seed {SEED}"
    assert files(tmp_path / "shared") == [], "what is over leaves nothing"


def test_a_node_that_was_paused_while_another_one_took_its_query_over_records_no_more(tmp_path, start):
    first, second = start("first"), start("second")
    begin(first, tmp_path, SESSIONS)
    until(lambda: states(first)["hot"]["snapshot"].startswith("epoch"))
    first.process.send_signal(signal.SIGSTOP)
    # The sink of files is written by one process, which has to be gone.
    with pytest.raises(psycopg.Error, match="hot is this node's now, and stopped"):
        take_over(second, tmp_path)
    first.process.send_signal(signal.SIGCONT)
    until(lambda: states(first)["hot"]["state"] == "failed")
    assert "another process has" in states(first)["hot"]["error"], states(first)["hot"]
    with connect(first) as connection:
        with pytest.raises(psycopg.Error, match="another node has taken"):
            connection.execute("RESUME QUERY 'hot'")
        connection.execute("DROP QUERY 'hot'")
    with connect(second) as connection:
        connection.execute("RESUME QUERY 'hot'")
    until(lambda: "hot" not in states(second), deadline=120)
    assert lines(tmp_path / "out") == undisturbed(tmp_path / "expected", SESSIONS)


def test_savepoints_go_through_urls_of_folders_and_other_places_are_refused(tmp_path, start):
    first, second = start("first"), start("second")
    url = f"file://{tmp_path}/shared/saved"
    with connect(first) as connection:
        for statement in [NEXMARK, BIDS, hot(f"file://{tmp_path}/out"), named("hot"), HOT]:
            connection.execute(statement)
        until(lambda: lines(tmp_path / "out"))
        for elsewhere in (f"file://{tmp_path}/elsewhere", f"file://{tmp_path}/shared/../elsewhere"):
            with pytest.raises(psycopg.Error, match="lies outside of the folders"):
                connection.execute(f"STOP QUERY 'hot' WITH SAVEPOINT '{elsewhere}'")
        connection.execute(f"STOP QUERY 'hot' WITH SAVEPOINT '{url}'")
        connection.execute("DROP QUERY 'hot'")
        with pytest.raises(psycopg.Error, match="lies outside of the folders"):
            connection.execute(f"SET 'query.store' = 'file://{tmp_path}/elsewhere'")
            connection.execute("SET 'snapshot-interval' = '1s'")
            connection.execute(named("hot"))
            connection.execute(HOT)
    with connect(second) as connection:
        with pytest.raises(psycopg.Error, match="read the savepoint"):
            connection.execute(f"RESUME QUERY FROM SAVEPOINT '{url}-none'")
        assert not (tmp_path / "shared/saved-none").exists(), "who only looks makes nothing"
        connection.execute(f"RESUME QUERY FROM SAVEPOINT '{url}'")
    until(lambda: "hot" not in states(second), deadline=120)
    assert lines(tmp_path / "out") == undisturbed(tmp_path / "expected", HOT)
