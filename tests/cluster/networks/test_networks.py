"""Networks that are cut, slow ones, and nodes that are killed in theirs while clients work: nothing that was acknowledged is lost, nothing happens twice."""

import os
import random
import time

import pytest

from conftest import NODES, Loop
from network import NetworkedCluster
from test_kills import KILLS, Counter, Transfers, goes_on

# How many databases there are when nodes are killed; `make suites` has more.
DATABASES = int(os.environ.get("CLUSTER_DATABASES", "10"))
# So many clients transfer money at once, each in its share of the databases.
CLIENTS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = NetworkedCluster(tmp_path_factory.mktemp("networks") / "data")
    yield cluster
    cluster.remove()


def others(node):
    return [other for other in NODES if other != node]


@pytest.fixture
def work(cluster, request):
    """Clients at all nodes, and what they were told is checked at the end."""
    name = "".join(letter for letter in request.node.name if letter.isalnum())[-30:].lower()
    with cluster.tenants(NODES[0], autocommit=True) as client:
        client.execute(f"CREATE DATABASE {name}")
    counter, transfers = Counter(cluster, name), Transfers(cluster, name)
    loops = [Loop(counter.step), Loop(transfers.step)]
    yield counter, transfers
    for loop in loops:
        loop.end()
    assert counter.check() > 0 and transfers.check() > 0


@pytest.mark.parametrize("how", ["cut", "mute"])
@pytest.mark.parametrize("whom", ["keys", "tenants", "coordinator"])
def test_a_node_that_is_cut_off_is_replaced_and_comes_back(cluster, work, whom, how):
    """Also where the coordinator is: it goes to the larger side, though the node still reaches the disk, and stays there."""
    node = cluster.coordinator() if whom == "coordinator" else cluster.shards(NODES[0])[whom]["owner"]
    asked = others(node)[0]
    time.sleep(1)
    getattr(cluster.network, how)(node)
    cluster.until(lambda: cluster.serves_nothing(node, asked), f"others serve what {node} had")
    assert cluster.coordinator() != node
    told, term = len(work[0].told), cluster.term()
    cluster.until(lambda: len(work[0].told) > told, "clients go on")
    time.sleep(3)
    # It serves nobody, and waits for somebody to tell it.
    assert not cluster.has_ended(node)
    cluster.comes_back(node)
    assert not any(cluster.has_ended(other) for other in others(node)), cluster.logs()
    assert cluster.term() == term, "the coordinator has stayed where it was"


def test_nodes_that_start_on_the_larger_side_take_the_coordinator(cluster, work):
    node = cluster.coordinator()
    cluster.network.cut(node)
    for other in others(node):
        cluster.kill(other)
    # They are started again.
    cluster.until(lambda: cluster.serves_nothing(node, others(node)[0]), f"others serve what {node} had")
    for other in others(node):
        cluster.is_there(other)
    cluster.comes_back(node)


def test_a_node_that_only_misses_the_coordinator_leaves_it_where_it_is(cluster, work):
    coordinator = cluster.coordinator()
    node, asked = others(coordinator)
    cluster.network.mute_towards(node, coordinator)
    cluster.until(lambda: cluster.serves_nothing(node, asked), f"others serve what {node} had")
    assert cluster.coordinator() == coordinator
    cluster.comes_back(node)


def test_a_slow_network_makes_nothing_wrong(cluster, work):
    term = cluster.term()
    for node in NODES:
        cluster.network.slow(node)
    time.sleep(10)
    assert cluster.term() <= term + 1
    for node in NODES:
        cluster.network.heal(node)
    for node in NODES:
        cluster.is_there(node)


class Share:
    """Transfers in several databases, in one after the other."""

    def __init__(self, jobs):
        self.jobs = jobs

    def step(self):
        random.choice(self.jobs).step()


def test_nodes_that_are_killed_take_nothing_of_many_databases_along(cluster):
    with cluster.tenants(NODES[0], autocommit=True) as client:
        for number in range(DATABASES):
            client.execute(f"CREATE DATABASE many{number}")
    transfers = [Transfers(cluster, f"many{number}") for number in range(DATABASES)]
    counters = [Counter(cluster, "many"), Counter(cluster, "more")]
    workers = [*counters, *(Share(share) for at in range(CLIENTS) if (share := transfers[at::CLIENTS]))]
    loops = [Loop(worker.step) for worker in workers]
    told = lambda: sum(len(job.told) for job in (*transfers, *counters))
    try:
        goes_on(cluster, told)
        for number in range(KILLS):
            shards = cluster.shards(NODES[0])
            # Who runs the coordinator, who sees to the databases of nodes that are gone, who has the keys, and anybody.
            node = [cluster.coordinator(), shards["tenants"]["owner"], shards["keys"]["owner"], random.choice(NODES)][number % 4]
            cluster.kill(node)
            # It is started again.
            goes_on(cluster, told)
            cluster.is_there(node)
            cluster.until(lambda: all(cluster.is_served(node) for node in NODES), "all nodes serve")
    finally:
        for loop in loops:
            loop.end()
    assert all(job.check() > 0 for job in counters)
    done = [job.check() for job in transfers]
    assert sum(done) > 0
    print(f"{KILLS} kills, {sum(done)} transfers in {DATABASES} databases, {sum(len(job.told) for job in counters)} counts")
