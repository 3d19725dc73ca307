"""Machines that are lost, or stand still, one after the other and all at once, while clients work: long tests."""

import random
import signal
import time
from collections import Counter

from conftest import NODES
from test_kills import KILLS, goes_on, work


def test_machines_that_are_lost_one_after_the_other_take_nothing_along(start_machines):
    cluster = start_machines("keys.appendfsync=always")

    def disturb(clients):
        goes_on(cluster, clients.told)
        for number in range(KILLS):
            shards = cluster.shards(random.choice(NODES))
            owner = shards[("keys", "tenants/2", "tenants")[number % 3]]["owner"]
            # The first by name proposes who owns what.
            lost = owner if number % 4 else NODES[0]
            cluster.lose(lost)
            time.sleep(random.choice((0, 4)))
            cluster.replace(lost)
            goes_on(cluster, clients.told)

    assert all(count > 0 for count in work(cluster, disturb))
    # Of logs that nobody needs, what ended them is left.
    left = Counter(name.split("/")[3] for name in cluster.objects("tenants/logs/"))
    assert sum(count == 1 for count in left.values()) >= KILLS - 2, left
    assert set(cluster.stop().values()) == {0}, cluster.logs()


def test_all_machines_are_lost_at_once_and_others_have_all_that_was_told(start_machines):
    cluster = start_machines("keys.appendfsync=always")

    def disturb(clients):
        goes_on(cluster, clients.told)
        for node in NODES:
            cluster.lose(node)
        for node in NODES:
            cluster.begin(node)
        for node in NODES:
            cluster.wait_for(node)
        goes_on(cluster, clients.told)

    assert all(count > 0 for count in work(cluster, disturb))


def test_a_node_that_stands_still_past_its_lease_tells_nobody_anything(start_machines):
    cluster = start_machines("keys.appendfsync=always")

    def disturb(clients):
        goes_on(cluster, clients.told)
        for shard in ("keys", "tenants/2"):
            node = cluster.owner(shard)
            other = next(name for name in NODES if name != node)
            before = cluster.shards(other)[shard]["epoch"]
            process = cluster.processes[node]
            clients.leave_out(node)
            process.send_signal(signal.SIGSTOP)
            found = lambda: cluster.shards(other)[shard]
            cluster.until(lambda: found()["epoch"] > before and found()["state"] == "serving", f"another node owns {shard}")
            goes_on(cluster, clients.told)
            process.send_signal(signal.SIGCONT)
            assert process.wait(timeout=60) == 3, "its name is over"
            cluster.replace(node)
            clients.take_in(node)
            goes_on(cluster, clients.told)

    assert all(count > 0 for count in work(cluster, disturb))


def test_while_etcd_stands_still_nobody_is_told_anything_new_and_then_all_goes_on(start_machines):
    cluster = start_machines("keys.appendfsync=always")

    def disturb(clients):
        goes_on(cluster, clients.told)
        # Shorter than a lease: nobody notices.
        cluster.etcd.signal(signal.SIGSTOP)
        time.sleep(1)
        cluster.etcd.signal(signal.SIGCONT)
        goes_on(cluster, clients.told)
        assert cluster.living() == NODES
        # Longer: the nodes stop to serve, and end when it is there again.
        cluster.etcd.signal(signal.SIGSTOP)
        time.sleep(6)
        before = clients.told()
        time.sleep(1)
        assert clients.told() == before, "without a lease"
        cluster.etcd.signal(signal.SIGCONT)
        assert {process.wait(timeout=60) for process in cluster.processes.values()} == {3}, "their names are over"
        for node in NODES:
            cluster.begin(node)
        for node in NODES:
            cluster.wait_for(node)
        goes_on(cluster, clients.told)

    assert all(count > 0 for count in work(cluster, disturb))


def test_while_the_bucket_stands_still_commits_wait(start_machines):
    cluster = start_machines("keys.appendfsync=always")

    def disturb(clients):
        goes_on(cluster, clients.told)
        cluster.bucket.signal(signal.SIGSTOP)
        time.sleep(1)
        before = clients.told()
        time.sleep(4)
        assert clients.told() == before, "nothing is told that is not in the bucket"
        cluster.bucket.signal(signal.SIGCONT)
        goes_on(cluster, clients.told)
        assert cluster.living() == NODES

    assert all(count > 0 for count in work(cluster, disturb))
