"""Random changes of tables that refer to each other have PostgreSQL's outcome: rows, counts, SQLSTATEs."""

import os
import random

import pytest

from answers import answer

SEEDS = int(os.environ.get("TENANTS_SEEDS", "12"))
STATEMENTS = 120
ACTIONS = ["", "NO ACTION", "RESTRICT", "CASCADE", "SET NULL", "SET DEFAULT"]


def reference(dice, parent):
    """What follows REFERENCES."""
    actions = "".join(f" ON {event} {action}" for event in ("DELETE", "UPDATE") if (action := dice.choice(ACTIONS)))
    deferrable = dice.choice(["", "", " DEFERRABLE", " DEFERRABLE INITIALLY DEFERRED"])
    return f"REFERENCES {parent}{actions}{deferrable}"


def tables(dice):
    """A grandparent, a parent, and children of both and of themselves."""
    yield "CREATE TABLE a (id int PRIMARY KEY, k text UNIQUE, n int)"
    yield f"CREATE TABLE b (id int PRIMARY KEY, a int DEFAULT 1 {reference(dice, 'a')}, k text {reference(dice, 'a (k)')}, UNIQUE (a, id))"
    yield f"CREATE TABLE c (id int PRIMARY KEY, b bigint DEFAULT 2 {reference(dice, 'b')}, up int {reference(dice, 'c')})"
    yield f"CREATE TABLE d (id int PRIMARY KEY, x int, y int, FOREIGN KEY (y, x) {reference(dice, 'b (id, a)')})"
    for columns in ("b (a)", "b (k DESC)", "c (b)", "d (x, y, id)"):
        if dice.random() < 0.5:
            yield f"CREATE INDEX ON {columns}"


def statement(dice):
    number = lambda: dice.choice(["NULL", *map(str, range(6))])
    key = lambda: dice.randint(0, 5)
    text = lambda: dice.choice(["NULL", "'p'", "'q'", "'r'"])
    table = dice.choice("aabbcd")
    kind = dice.random()
    if kind < 0.1:
        return dice.choice(["BEGIN", "COMMIT", "COMMIT", "ROLLBACK", "SET CONSTRAINTS ALL DEFERRED", "SET CONSTRAINTS ALL IMMEDIATE"])
    if kind < 0.55:
        row = {"a": lambda: f"{key()}, {text()}, 0", "b": lambda: f"{key()}, {number()}, {text()}",
               "c": lambda: f"{key()}, {number()}, {number()}", "d": lambda: f"{key()}, {number()}, {number()}"}[table]
        rows = ", ".join(f"({row()})" for _ in range(dice.randint(1, 2)))
        return f"INSERT INTO {table} VALUES {rows}" + dice.choice([" ON CONFLICT DO NOTHING", ""])
    where = dice.choice([f"id = {key()}", f"id > {key()}", f"id % 2 = {key() % 2}"])
    if kind < 0.75:
        return f"DELETE FROM {table} WHERE {where}"
    column = dice.choice({"a": ["id", "k", "n"], "b": ["id", "a", "k"], "c": ["id", "b", "up"], "d": ["x", "y"]}[table])
    # One row at a time: which of several takes a value first depends on their order.
    return f"UPDATE {table} SET {column} = {text() if column == 'k' else key()} WHERE id = {key()}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_changes_have_postgresqls_outcome(server, postgresql, seed):
    dice = random.Random(seed)
    with server.connect(autocommit=True) as ours, postgresql.connect(autocommit=True) as theirs:
        setup = ["DROP TABLE IF EXISTS a, b, c, d CASCADE", *tables(dice)]
        for text in setup:
            assert answer(ours, text) == answer(theirs, text), f"seed {seed}: {text}"
        refused = 0
        for number in range(STATEMENTS):
            text = statement(dice)
            got, expected = answer(ours, text), answer(theirs, text)
            assert got == expected, f"seed {seed}, statement {number}: {text}; {setup}"
            refused += got == "23503"
            for table in "abcd":
                rows = f"SELECT * FROM {table} ORDER BY id"
                assert answer(ours, rows) == answer(theirs, rows), f"seed {seed}, after statement {number}: {text}; {setup}"
        for connection in (ours, theirs):
            answer(connection, "ROLLBACK")
        assert refused > 3, f"seed {seed} asks too little"
