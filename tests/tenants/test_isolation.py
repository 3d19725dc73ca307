"""Steps of several sessions in a given order: each waits where PostgreSQL's waits, and answers what PostgreSQL's answers.

The files of `isolation/` have the form of PostgreSQL's isolation tests; `isolation_files.py` runs others, too."""

import pathlib

import pytest

from isolation_files import clusters, compare

FILES = sorted((pathlib.Path(__file__).parent / "isolation").glob("*.spec"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sessions_wait_and_answer_as_in_postgresql(server, postgresql, path):
    played = compare(*clusters(server, postgresql, f"isolation_{path.stem}"), path)
    assert not any(played.differences.values()), "\n".join(sum(played.differences.values(), []))
