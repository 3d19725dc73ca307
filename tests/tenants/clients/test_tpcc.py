"""TPC-C's conditions of consistency (clause 3.3.2): after a load, and after kills in the midst of runs and of recovery. What breaks one is noticed."""

import os
import random
import sys
import time

import pytest
from conftest import ROOT, Moving, running
from node import TARGET

sys.path.append(str(ROOT / "bench" / "tenants"))
import go_tpc  # noqa: E402

CLIENTS = 4
WAREHOUSES = 1
# For how long orders come while their database moves every second.
MOVING_SECONDS = int(os.environ.get("CLUSTER_MOVES", "8"))
# What the isolation of transactions demands, and no move adds to.
CONFLICTS = ("40001", "40P01", "could not serialize", "deadlock detected")
# What breaks a condition, and how it is undone.
BREAKS = [
    ("UPDATE warehouse SET w_ytd = w_ytd + 1", "UPDATE warehouse SET w_ytd = w_ytd - 1"),
    ("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 3", "UPDATE district SET d_next_o_id = d_next_o_id - 1 WHERE d_id = 3"),
    ("UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_d_id = 7 AND o_id = 9", "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_d_id = 7 AND o_id = 9"),
]


@pytest.fixture(scope="module")
def program():
    return go_tpc.build(TARGET / "go-tpc")


@pytest.fixture
def own_server(tmp_path):
    with running(tmp_path, settings={"tenants.log_distance": "16MiB"}) as server:
        yield server


def terminals(program, server, level):
    return go_tpc.GoTpc(program, server.port, "postgres", level, CLIENTS, WAREHOUSES)


@pytest.mark.parametrize("level", go_tpc.LEVELS)
def test_orders_stay_consistent_across_kills(program, own_server, level):
    dice = random.Random(level)
    loaded = terminals(program, own_server, level)
    loaded("prepare", "--no-check")
    loaded("check")
    with own_server.connect(autocommit=True) as connection:
        for breaks, mends in BREAKS:
            connection.execute(breaks)
            with pytest.raises(RuntimeError, match="failed"):
                loaded("check")
            connection.execute(mends)
    for _ in range(3):
        with own_server.connect() as connection:
            (before,) = connection.execute("SELECT count(*) FROM orders").fetchone()
        run = terminals(program, own_server, level).start_run()
        time.sleep(dice.uniform(3, 5))
        own_server.kill()
        run.kill()
        run.wait()
        # Killed twice more while it recovers.
        own_server.crash_storm(dice)
        terminals(program, own_server, level)("check")
        with own_server.connect() as connection:
            assert connection.execute("SELECT count(*) FROM orders").fetchone() > (before,), "nobody ordered anything"


@pytest.mark.parametrize("level", go_tpc.LEVELS)
def test_orders_stay_consistent_while_their_database_moves(program, tmp_path, level):
    server = Moving(tmp_path, settings={"tenants.log_distance": "16MiB"}, at_once=False)
    try:
        server.start()
        loaded = terminals(program, server, level)
        loaded("prepare", "--no-check")
        with server.connect() as connection:
            (before,) = connection.execute("SELECT count(*) FROM orders").fetchone()
        server.move_from_now_on()
        failed = terminals(program, server, level).run_for(MOVING_SECONDS)
        assert [each for each in failed if not any(word in each for word in CONFLICTS)] == []
        # Its statements take longer than the database stays at a node.
        server.ends.set()
        loaded("check")
        with server.connect() as connection:
            assert connection.execute("SELECT count(*) FROM orders").fetchone() > (before,), "nobody ordered anything"
    finally:
        server.kill()
