"""The statements of `engines/tenants/tests/sql` get from tenants, over the protocol, the answers that PostgreSQL gives.

With UPDATE_ANSWERS=1 the answers are written into the files, from PostgreSQL."""

import os
import pathlib

import pytest
from psycopg.pq import ExecStatus

FILES = sorted((pathlib.Path(__file__).resolve().parents[2] / "engines" / "tenants" / "tests" / "sql").glob("*.sql"))


def parts(text):
    """Lines of a file: those that are kept as they are, and statements."""
    statement = []
    for line in text.splitlines():
        if line[:2] in ("> ", "! ", "= "):
            continue
        if not statement and (not line or line.startswith("--")):
            yield line, None
            continue
        statement.append(line)
        if line.endswith(";"):
            whole = "\n".join(statement)
            statement = []
            yield whole, whole[:-1]


def answer(connection, statement):
    result = connection.pgconn.exec_(statement.encode())
    if result.status == ExecStatus.FATAL_ERROR:
        return ["! " + result.error_field(67).decode()]
    if result.status != ExecStatus.TUPLES_OK:
        return ["= " + result.command_status.decode()]
    value = lambda row, column: (result.get_value(row, column) or b"").decode()
    rows = ["|".join(value(row, column) for column in range(result.nfields)) for row in range(result.ntuples)]
    if "ORDER BY" not in statement.upper():
        rows.sort(key=lambda row: row.encode())
    return ["> " + row for row in rows]


def answered(connection, text):
    lines = []
    for line, statement in parts(text):
        lines.append(line)
        if statement is not None:
            lines += answer(connection, statement)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_have_postgresqls_answers(server, postgresql, path):
    text = path.read_text()
    with postgresql.connect(autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
        expected = answered(connection, text)
    if os.environ.get("UPDATE_ANSWERS"):
        path.write_text(expected)
    else:
        assert text == expected
    with server.connect(autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {path.stem}")
    with server.connect(path.stem, autocommit=True) as connection:
        assert answered(connection, text) == expected
