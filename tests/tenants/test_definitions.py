"""The same definitions, and statements that rest on them, on tenants and on PostgreSQL: rows, tags, SQLSTATEs.

Each file of `definitions/` is run in a database of its own."""

import pathlib

import pytest

from answers import answer

FILES = sorted((pathlib.Path(__file__).parent / "definitions").glob("*.sql"))


def statements(text):
    """The statements of a file, one per line that ends with a semicolon."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("--")]
    for statement in "\n".join(lines).split(";\n"):
        yield statement.strip().removesuffix(";")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_definitions_mean_what_they_mean_in_postgresql(server, postgresql, path):
    name = f"definitions_{path.stem}"
    for cluster in (server, postgresql):
        with cluster.connect(autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
    with server.connect(name, autocommit=True) as ours, postgresql.connect(name, autocommit=True) as theirs:
        differences = []
        for statement in statements(path.read_text()):
            got, expected = answer(ours, statement), answer(theirs, statement)
            if got != expected:
                differences.append(f"{statement}\n    got      {got}\n    expected {expected}")
        for connection in (ours, theirs):
            answer(connection, "ROLLBACK")
        assert not differences, "\n".join(differences)
