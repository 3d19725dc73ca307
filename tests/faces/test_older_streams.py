"""Queries, views and savepoints that former releases wrote go on: nothing is lost, and nothing is written twice."""

import tarfile

import pytest

from older.streams import made

KEPT = sorted(path.name.removesuffix(".tar.gz") for path in made.HERE.glob("*.tar.gz"))


@pytest.mark.parametrize("name", KEPT)
def test_queries_and_views_of_a_former_release_go_on(tmp_path, name):
    with tarfile.open(made.HERE / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    # The query that looked them up has read them already, and keeps them.
    made.write_names(tmp_path, made.OTHER_NAMES)
    # The second time it is a directory that two releases have written to.
    for more in (1, 2):
        node = made.start(tmp_path)
        try:
            made.check(node, tmp_path, made.ROWS + (more - 1) * 700, made.ROWS + more * 700)
        finally:
            assert node.stop() == 0, node.log.read_text()


def test_each_release_kept_a_directory_that_was_stopped_and_one_that_was_killed():
    assert {name.rpartition("-")[2] for name in KEPT} == {"killed", "stopped"}
