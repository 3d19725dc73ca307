"""Random clients during a migration get the answers that an eagerly migrated copy gives, and leave the same tables.

A failure names kind and seed; `seeds.py` says how many there are.
"""

import contextlib
import itertools

import pytest

import histories
from conftest import database_from, setting
from seeds import in_turn, seeds

SEEDS = seeds()
PAGES = ", granularity => 'page', moves => 'worker'"
TUPLES = ", granularity => 'tuple', moves => 'worker'"
INSIDE = ", granularity => 'tuple', moves => 'transaction'"


@contextlib.contextmanager
def both(server, template, name, seed):
    with database_from(server, template, f"lazy {name} {seed}") as lazy, database_from(server, template, f"eager {name} {seed}") as eager:
        yield lazy, eager


def run(server, template, name, seed, sabotage=None, **options):
    with both(server, template, name, seed) as databases:
        histories.run(histories.KINDS[name], seed, *databases, sabotage, **options)


def run_there_and_back(server, template, name, seed, sabotage=None, **options):
    with both(server, template, name, seed) as databases:
        histories.run_there_and_back(histories.KINDS_THAT_GO_BACK[name], seed, *databases, sabotage, **options)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", in_turn(histories.KINDS, 0, 4))
def test_a_history_while_rows_move_is_that_of_an_eager_copy(server, template, name, seed):
    """In the way that is chosen for them."""
    run(server, template, name, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", in_turn(histories.KINDS, 3, 4))
def test_a_history_while_pages_move(server, template, name, seed):
    run(server, template, name, seed, options=PAGES)


@pytest.fixture
def on_conflict(server):
    """Two that move the same find out by the unique index of `moved` only."""
    with setting(server, "bullfrog.conflicts", "on_conflict"):
        yield


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", in_turn(histories.KINDS, 1, 4))
def test_a_history_while_tuples_move(server, template, name, seed):
    run(server, template, name, seed, options=TUPLES)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name, granularity", in_turn(itertools.product(histories.KINDS, ["page", "tuple"]), 6, 7))
def test_a_history_without_claims(server, template, on_conflict, name, granularity, seed):
    run(server, template, name, seed, options=f", granularity => '{granularity}', moves => 'worker'")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", in_turn(
    ["derive", "split", "aggregate", "foreign_key_join", "foreign_key", "live_rows", "live_groups"], 2, 3))
def test_a_history_while_transactions_move_their_own_tuples(server, template, name, seed):
    """Not those joins where a tuple is in rows of several sessions: these would wait for each other."""
    run(server, template, name, seed, options=INSIDE)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name, options", in_turn(itertools.product(histories.KINDS_THAT_GO_BACK, ["", PAGES, TUPLES, INSIDE]), 1, 3))
def test_a_history_that_goes_back_twice_is_that_of_an_eager_copy(server, template, name, options, seed):
    """What clients wrote is in the old tables after each abort, and in the new ones after the next migration."""
    run_there_and_back(server, template, name, seed, options=options)


def forget_moves(admin, step):
    admin.execute("DELETE FROM bullfrog.moved")


def forget_what_was_kept(admin, step):
    for (table,) in admin.execute("SELECT relname FROM pg_class WHERE relname LIKE 'kept\\_%' AND relkind = 'r'").fetchall():
        admin.execute(f"DELETE FROM bullfrog.{table}")


def at_first(*statements):
    def sabotage(admin, step):
        for statement in statements if step == 0 else ():
            admin.execute(statement)
    return sabotage


FLAWS = {
    "moves are forgotten": ("split", forget_moves),
    "moves of tuples are forgotten": ("derive", forget_moves, TUPLES),
    "moves inside of transactions are forgotten": ("derive", forget_moves, INSIDE),
    "a row is not copied": ("foreign_key_join", at_first("UPDATE bullfrog.target SET copy = copy || ' AND mod(k, 20) <> 7'")),
    "a part of a group is moved": ("aggregate", at_first("UPDATE bullfrog.target SET copy = replace(copy, 'SELECT k, num,', 'SELECT k,"
    " num - mod(k, 2),') WHERE granule = 'group'")),
    "rows that were moved are read in the old table, too": ("many_to_many", at_first("CREATE OR REPLACE VIEW bullfrog.unmoved_1 AS SELECT"
    " t.* FROM bullfrog.transformed_1 t")),
    "a table that stays in use is read as it is now": ("live_join", at_first("CREATE OR REPLACE FUNCTION bullfrog.was_there(xid, horizon"
    " bigint, others bigint[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'")),
    "changes of a table that stays in use are not kept": ("live_groups", at_first("UPDATE pg_trigger SET tgenabled = 'D'"
    " WHERE tgname = 'bullfrog_keep'")),
    "what was kept is forgotten": ("live_groups", forget_what_was_kept),
    "keys of rows that were not moved are free": ("derive", at_first("UPDATE pg_trigger SET tgenabled = 'D'"
    " WHERE tgname LIKE 'bullfrog%'")),
}


@pytest.mark.parametrize("flaw", in_turn(FLAWS, 0, 3))
def test_a_flaw_is_noticed(server, template, flaw):
    """The comparison notices migrations that were tampered with, within a few histories."""
    name, sabotage, options = (*FLAWS[flaw], PAGES)[:3]
    for seed in range(1, 6):
        try:
            run(server, template, name, seed, sabotage, options=options)
        except histories.Difference:
            return
    pytest.fail("nothing was noticed")


def test_that_rows_which_clients_deleted_come_back_is_noticed(server, template):
    """With the statement that deletes them in the old table left out."""
    def sabotage(admin, step):
        body = admin.execute("SELECT pg_get_functiondef('bullfrog.carry_back'::regproc)").fetchone()[0]
        admin.execute(body.replace("DELETE FROM ONLY %s o WHERE %s", "DELETE FROM ONLY %s o WHERE false AND %s"), prepare=False)
    for seed in range(1, 6):
        try:
            run_there_and_back(server, template, "renamed", seed, sabotage)
        except histories.Difference as difference:
            assert "t gave back" in str(difference)
            return
    pytest.fail("nothing was noticed")
