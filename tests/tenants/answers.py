"""What a client sees of a statement, to be compared between servers."""

import re

from psycopg.pq import ExecStatus, Format

# Types that users make have numbers of their own on each server.
FIRST_OF_USERS = 16384


def ordered(statement):
    """Whether it says the order of its rows: outside of all parentheses and texts."""
    statement = re.sub(r"'(?:[^']|'')*'", "", statement)
    while (shorter := re.sub(r"\([^()]*\)", "", statement)) != statement:
        statement = shorter
    return "ORDER BY" in statement


def answer(connection, statement, extended=False):
    """The SQLSTATE, or the types, rows and the tag. The extended protocol has values in binary."""
    if extended:
        result = connection.pgconn.exec_params(statement.encode(), [], result_format=Format.BINARY)
    else:
        result = connection.pgconn.exec_(statement.encode())
    if result.status == ExecStatus.FATAL_ERROR:
        return result.error_field(67).decode()
    rows = [tuple(result.get_value(row, column) for column in range(result.nfields)) for row in range(result.ntuples)]
    if not ordered(statement):
        rows.sort(key=repr)
    types = [min(result.ftype(column), FIRST_OF_USERS) for column in range(result.nfields)]
    return types, rows, result.command_status


def failed(answer):
    return isinstance(answer, str)
