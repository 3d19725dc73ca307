"""What was deleted, cut or changed in a directory of tenants is missed at the start, or nothing is missing.

A server that starts has every row that was acknowledged, or refuses the tenant with an error that says what is missing; and what it acknowledges then,
the next one has.
"""

import re
import shutil
import time

import psycopg
import pytest

from conftest import Server

ROWS = 60
SETTINGS = {"tenants.idle": "50ms", "tenants.log_distance": "256KiB"}
# What errors of damaged data begin with or have in them.
NAMED = ("expected", "damaged", "checksum", "deleted", "has a hole", "was cut", "another program", "does not exist", "storage failed to read")


def fill(server):
    """Tenants with rows in the storage, in the log, and in both."""
    with server.connect(autocommit=True) as connection:
        for name in ("asleep", "awake"):
            connection.execute(f"CREATE DATABASE {name}")
    insert(server, "asleep", 0, ROWS // 2)
    stored = server.data / "store" / "stored"
    within(60, lambda: stored.exists() and any(path.name.endswith("2") for path in stored.iterdir()))
    insert(server, "awake", 0, ROWS)
    # What the log said at first is needed from elsewhere from then on.
    first = segments(server.data)[0]
    within(60, lambda: not first.exists())
    insert(server, "asleep", ROWS // 2, ROWS)


def segments(data):
    return sorted((data / "log").glob("segment-*"))


def within(patience, happens):
    deadline = time.monotonic() + patience
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def insert(server, database, start, end):
    with server.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, filler text)")
        for number in range(start, end):
            connection.execute("INSERT INTO t VALUES (%s, repeat('x', 20000))", (number,))


def lived(directory, ends):
    directory.mkdir()
    # The log has many segments, and is cut as rows get to the storage.
    server = Server(directory, SETTINGS)
    server.start()
    server.listen()
    fill(server)
    getattr(server, ends)()
    return directory


@pytest.fixture(scope="module", params=["stop", "kill"])
def kept(request, tmp_path_factory):
    return lived(tmp_path_factory.mktemp("damage") / "kept", request.param)


def files(directory):
    paths = (directory / "data").rglob("*")
    return sorted(path.relative_to(directory) for path in paths if path.is_file() and used(path))


def delete(path):
    path.unlink()


def cut(path):
    path.write_bytes(used(path)[: len(used(path)) // 2])


def flip(path):
    bytes = bytearray(used(path))
    bytes[len(bytes) // 2] ^= 4
    path.write_bytes(bytes)


def used(path):
    """Without the zeros ahead."""
    return path.read_bytes().rstrip(b"\0")


class Refused(Exception):
    pass


def rows(server, database):
    """How many rows are served, or nothing if the tenant is refused with an error that names what is wrong."""
    try:
        with server.connect(database) as connection:
            return connection.execute("SELECT count(*), min(length(filler)) FROM t").fetchone()
    except psycopg.Error as error:
        assert any(word in str(error) for word in NAMED), error
        return None


def start(directory):
    server = Server(directory, SETTINGS)
    server.start()
    try:
        server.listen()
    except AssertionError as error:
        server.kill()
        # The service, or all of the node.
        refusals = [line for line in server.said().splitlines() if re.match(r"tenants +failed|error: ", line)]
        assert refusals and any(word in refusals[-1] for word in NAMED), server.said()
        raise Refused(refusals[-1]) from error
    return server


def check(directory):
    """Nothing acknowledged is missing without a word, and what is acknowledged now is there after the next start."""
    try:
        server = start(directory)
    except Refused:
        return "refused"
    served = {name: rows(server, name) for name in ("asleep", "awake")}
    try:
        assert all(found in (None, (ROWS, 20000)) for found in served.values()), (served, server.said())
        for name in [name for name, found in served.items() if found]:
            insert(server, name, ROWS, ROWS + 1)
        server.stop()
        server = start(directory)
        again = {name: rows(server, name) for name in served}
        assert again == {name: (ROWS + 1, 20000) if found else None for name, found in served.items()}
    finally:
        server.kill()
    return "served" if all(served.values()) else "one is refused"


def damaged(kept, directory, damage):
    shutil.copytree(kept, directory)
    (directory / "server.log").unlink()
    damage(directory)
    try:
        return check(directory)
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("how", [delete, cut, flip])
def test_a_damaged_file_is_missed_or_was_not_needed(kept, tmp_path, how):
    outcomes = {}
    for path in files(kept):
        outcomes[str(path)] = damaged(kept, tmp_path / "copy", lambda directory: how(directory / path))
    assert "refused" in outcomes.values() and "served" in outcomes.values(), outcomes


MISSING = ["high-water", "coordinator", *(f"tenants/{name}" for name in ("log", "store", "store/tenants", "store/stored", "store/log"))]


@pytest.mark.parametrize("missing", MISSING)
def test_a_folder_that_is_missing_is_missed_or_was_not_needed(kept, tmp_path, missing):
    def damage(directory):
        path = directory / "data" / missing
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    outcome = damaged(kept, tmp_path / "copy", damage)
    assert (outcome == "served") == (missing in ("tenants/store/stored", "high-water")), outcome


@pytest.mark.parametrize("count", [2, 3])
def test_the_newest_segments_are_missed_though_the_note_of_the_log_is_gone(kept, tmp_path, count):
    def damage(directory):
        shutil.rmtree(directory / "data" / "high-water")
        for segment in segments(directory / "data" / "tenants")[-count:]:
            segment.unlink()

    assert damaged(kept, tmp_path / "copy", damage) != "served"
