"""Random clients during a migration get the answers that an eagerly migrated copy gives, and leave the same tables.

BULLFROG_SEEDS is the number of histories of each kind, BULLFROG_SEED the first seed. A failure names kind and seed.
"""

import os

import pytest

import histories
from conftest import database_from

FIRST = int(os.environ.get("BULLFROG_SEED", 1))
SEEDS = range(FIRST, FIRST + int(os.environ.get("BULLFROG_SEEDS", 1)))


def run(server, template, name, seed, sabotage=None):
    with database_from(server, template, f"lazy {name} {seed}") as lazy, database_from(server, template, f"eager {name} {seed}") as eager:
        histories.run(histories.KINDS[name], seed, lazy, eager, sabotage)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", histories.KINDS)
def test_a_history_while_rows_move_is_that_of_an_eager_copy(server, template, name, seed):
    run(server, template, name, seed)


def forget_moves(admin, step):
    admin.execute("DELETE FROM bullfrog.moved")


def at_first(*statements):
    def sabotage(admin, step):
        for statement in statements if step == 0 else ():
            admin.execute(statement)
    return sabotage


FLAWS = {
    "moves are forgotten": ("split", forget_moves),
    "a row is not copied": ("foreign_key_join", at_first("UPDATE bullfrog.target SET copy = copy || ' AND mod(k, 20) <> 7'")),
    "a part of a group is moved": ("aggregate", at_first("UPDATE bullfrog.target SET copy = replace(copy, 'SELECT k, num,', 'SELECT k,"
    " num - mod(k, 2),') WHERE grouped")),
    "rows that were moved are read in the old table, too": ("many_to_many", at_first("CREATE OR REPLACE VIEW bullfrog.unmoved_1 AS SELECT"
    " t.* FROM bullfrog.transformed_1 t")),
    "keys of rows that were not moved are free": ("derive", at_first("UPDATE pg_trigger SET tgenabled = 'D'"
    " WHERE tgname LIKE 'bullfrog%'")),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_noticed(server, template, flaw):
    """The comparison notices migrations that were tampered with, within a few histories."""
    name, sabotage = FLAWS[flaw]
    for seed in range(1, 6):
        try:
            run(server, template, name, seed, sabotage)
        except histories.Difference:
            return
    pytest.fail("nothing was noticed")
