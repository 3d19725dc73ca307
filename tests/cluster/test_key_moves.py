"""Virtual nodes of keys that change their node while they are used: by hand, for a node that joins, and away from one that is drained."""

import json
import os
import signal
import subprocess
import time

import pytest
import requests

from conftest import ANY_PORTS, NODES, PATIENCE, SAVANNA, Loop
from test_drain import drain
from test_spread_keys import VIRTUAL_NODES, Spread, Watched, all_go_on, work

# Moments at which a process ends that comes to one first: that of the node that the keys leave, or that gets them.
FEW = ["source: frozen", "source: decided", "target: durable"]
MORE = [
    "source: announced",
    "source: round 0",
    "source: sent",
    "source: ready",
    "source: released",
    "target: begun",
    "target: round 0",
    "target: prepared",
    "target: decided",
    "target: serves",
]


@pytest.fixture
def spread(start):
    return lambda *settings, **options: Spread(start, "keys.moves=true", *settings, **options)


@pytest.fixture
def moment(tmp_path):
    """The file that says when a process of nodes that are started from now on ends."""
    path = tmp_path / "moment"
    os.environ["MOVES_END_AT"] = str(path)
    try:
        yield path
    finally:
        del os.environ["MOVES_END_AT"]


def shard_of(keys, key):
    return f"keys/v/{keys.slot_of(key) // 16}"


def move(keys, asked, shard, to):
    return keys.cluster.post(asked, "/api/v1/moves", {"shard": shard, "to": to})


def moved(keys, key):
    """Moves the virtual node of a key to the next node. It stays if the machine is too busy for a step, or it is on its way already: then again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        owner = keys.owner_of(key)
        to = NODES[(NODES.index(owner) + 1) % 3]
        told = move(keys, to, shard_of(keys, key), to)
        if "shard" in told and told["stayed"] is None:
            assert (told["from"], told["to"]) == (owner, to), told
            return told
        assert time.monotonic() < deadline, f"expected that it moves, came {told}\n{keys.cluster.logs()}"
        time.sleep(0.1)


def is_even(keys, nodes, asked=NODES[0]):
    shares = keys.shares(asked)
    return set(shares) == set(nodes) and max(shares.values()) - min(shares.values()) <= 1 and sum(shares.values()) == VIRTUAL_NODES


def test_nothing_moves_unless_it_is_asked_for(start):
    keys = Spread(start)
    owner = keys.owner_of("k")
    to = NODES[(NODES.index(owner) + 1) % 3]
    before = keys.shares()
    ran, report = drain(keys.cluster, "n3", "n1")
    assert ran.returncode == 0 and report["stayed"] == 0, ran
    asked = subprocess.run(
        [SAVANNA, "move", shard_of(keys, "k"), "--to", to, "--url", f"http://127.0.0.1:{keys.cluster.ports['n1']['http']}"], capture_output=True, text=True
    )
    assert asked.returncode != 0 and "keys.moves" in asked.stderr, asked
    assert keys.shares() == before and keys.owner_of("k") == owner
    assert keys.cluster.stop() == 0, keys.cluster.logs()


def test_a_virtual_node_moves_under_counters(spread):
    keys = spread("keys.appendfsync=always")
    windows = []

    def disturb(counters):
        for counter in counters * 2:
            windows.append(moved(keys, counter.key)["window_ms"])
            all_go_on(keys.cluster, counters)

    work(keys, disturb)
    print("nobody was served for", sorted(windows), "ms")
    assert keys.cluster.stop() == 0, keys.cluster.logs()


def test_no_error_and_nothing_is_lost_while_a_node_joins_and_leaves_again(spread):
    keys = spread("keys.appendfsync=always")
    cluster = keys.cluster
    client = cluster.redis("n1")
    pipe = client.pipeline(transaction=False)
    for number in range(3_000):
        pipe.set(f"k:{number}", number)
    pipe.execute()
    watched = [Watched(cluster, f"steady:{number}", NODES[number % 3]) for number in range(6)]
    loops = [Loop(one.step) for one in watched]
    join = [SAVANNA, "node", "--join", cluster.directory, "--name", "n4", *ANY_PORTS, "--set", "keys.threads=1", "--set", "keys.appendfsync=always", "--set", "keys.moves=true"]
    with subprocess.Popen([*join, "--output", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert json.loads(process.stdout.readline())["node"] == "n4"
            cluster.until(lambda: is_even(keys, [*NODES, "n4"]), "the fourth node has its share")
            ran, report = drain(cluster, "n1", "n4")
            assert ran.returncode == 0 and report["stayed"] == 0, ran
            cluster.until(lambda: is_even(keys, NODES), "the others have what it had")
            for loop in loops:
                loop.end()
            values = client.pipeline(transaction=False)
            for number in range(3_000):
                values.get(f"k:{number}")
            assert values.execute() == [str(number) for number in range(3_000)]
            assert client.dbsize() == 3_000 + len(watched)
        finally:
            for loop in loops:
                loop.ended.set()
            process.terminate()
            process.wait()
    print("the longest waits:", sorted(round(one.longest, 3) for one in watched))
    assert all(one.count > 0 and one.longest < 10 for one in watched)
    assert cluster.stop() == 0, cluster.logs()


def move_anywhere(keys, shard):
    """Has a virtual node move, through a node that it neither leaves nor comes to."""
    owner = keys.cluster.owner(shard)
    to, asked = (node for node in NODES if node != owner)
    move(keys, asked, shard, to)
    return False


def ends_at(keys, path, moments):
    def disturb(counters):
        for number, moment in enumerate(moments):
            shard = shard_of(keys, counters[number % len(counters)].key)
            pids = {node: keys.cluster.status(node)["pid"] for node in NODES}
            path.write_text(moment)
            # One that stays before that moment, as the machine is busy, or as it is refused, is asked for again.
            keys.cluster.until(lambda: not path.exists() or move_anywhere(keys, shard), f"a process ends at {moment}")
            keys.cluster.until(lambda: {node: keys.cluster.status(node)["pid"] for node in NODES} != pids, "it is started again")
            keys.until_served()
            all_go_on(keys.cluster, counters)

    work(keys, disturb)
    assert keys.cluster.stop() == 0, keys.cluster.logs()


def test_a_move_whose_process_ends_in_the_midst_loses_nothing(spread, moment):
    ends_at(spread("keys.appendfsync=always"), moment, FEW)


@pytest.mark.long
def test_a_move_whose_process_ends_at_any_moment_loses_nothing(spread, moment):
    ends_at(spread("keys.appendfsync=always"), moment, MORE)


@pytest.mark.long
def test_nodes_that_stand_still_while_keys_move_lose_nothing(spread):
    keys = spread("keys.appendfsync=always")
    cluster, asked = keys.cluster, NODES[0]

    def moves_between(counters, still):
        """Moves virtual nodes from one node to another and back, one by one, whatever comes of it."""
        turn = iter(range(1_000_000))

        def step():
            counter = counters[next(turn) % len(counters)]
            try:
                to = asked if keys.owner_of(counter.key) == still else still
                move(keys, asked, shard_of(keys, counter.key), to)
            except (requests.RequestException, KeyError):
                pass

        return Loop(step)

    def disturb(counters):
        for still in NODES[1:]:
            loop = moves_between(counters, still)
            try:
                cluster.until(lambda: loop.steps > 10, "some have moved")
                pid = cluster.signal(still, signal.SIGSTOP)
                cluster.until(lambda: still not in keys.shares(), f"others have what {still} had")
                os.kill(pid, signal.SIGCONT)
                cluster.until(lambda: cluster.status(still)["pid"] != pid, f"{still} is there again")
            finally:
                loop.end()
            keys.until_served()
            all_go_on(cluster, counters)

    work(keys, disturb)
    assert cluster.stop() == 0, cluster.logs()
