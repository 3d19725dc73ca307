"""Requests about keys of several nodes, where keys are spread and `keys.groups` is on: done at all or at none, whoever is killed."""

import random
import signal
import time

import pytest
import redis

from conftest import NODES, Loop
from test_kills import NOT_DONE
from test_spread_keys import KILLS, Spread

ACCOUNTS = 9


@pytest.fixture
def grouped(start):
    return lambda *settings, **options: Spread(start, "keys.groups=true", *settings, **options)


def test_clients_of_any_node_use_keys_of_all_as_if_they_were_on_one(grouped):
    keys = grouped()
    clients = {node: keys.cluster.redis(node) for node in NODES}
    for number, (node, client) in enumerate(clients.items()):
        a, b, c = (keys.keys_of(owner, 3)[number] for owner in NODES)
        assert client.mset({a: 1, b: 2, c: 3})
        for other in clients.values():
            assert other.mget([c, a, b]) == ["3", "1", "2"], node
        transaction = client.pipeline(transaction=True)
        transaction.incrby(a, 10)
        transaction.decrby(b, 10)
        transaction.append(c, "0")
        transaction.mget([a, b, c])
        assert transaction.execute() == [11, -8, 2, ["11", "-8", "30"]]
        move = client.register_script("local n = redis.call('GET', KEYS[1]); redis.call('SET', KEYS[2], n); return redis.call('INCRBY', KEYS[3], n)")
        assert move(keys=[a, b, c]) == 41
        assert client.rename(b, a)
        assert client.exists(a, b, c) == 2
        assert client.delete(a, b, c) == 2
        client.sadd(a, "x", "y", "z")
        client.sadd(b, "y", "z", "w")
        assert client.sinterstore(c, [a, b]) == 2
        assert clients[NODES[(number + 1) % 3]].smembers(c) == {"y", "z"}
        assert client.sdiff([a, b]) == {"x"}
        assert client.delete(a, b, c) == 3
    with pytest.raises(redis.ResponseError, match="hash to the same slot"):
        redis.Redis(port=keys.doors["n1"]).mset({"a": 1, "b": 2})
    # Many keys, of all nodes, in pipelines that do not wait.
    for client in clients.values():
        replies = client.pipeline(transaction=False)
        for number in range(20):
            replies.set(f"p:{number}", 0)
            replies.mset({f"p:{other}": number for other in range(20)})
            replies.incr(f"p:{number}")
            replies.mget([f"p:{other}" for other in range(20)])
        told = replies.execute()
        for number in range(20):
            expected = [str(number + (other == number)) for other in range(20)]
            assert told[4 * number : 4 * number + 4] == [True, True, number + 1, expected]
    assert [client.dbsize() for client in clients.values()] == [20] * 3
    assert clients["n3"].flushall()
    assert keys.cluster.stop() == 0, keys.cluster.logs()


class Transfers:
    """Moves something between accounts at all nodes, each time through another node, and writes down each transfer at both."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.made, self.told, self.unknown = {}, set(), set()

    def step(self):
        try:
            with self.cluster.redis(random.choice(NODES), retry=None) as client:
                for _ in range(10):
                    self.transfer(client)
        except (redis.RedisError, OSError):
            time.sleep(0.05)

    def transfer(self, client):
        number = len(self.made)
        giver, taker = random.sample(range(ACCOUNTS), 2)
        self.made[number] = (giver, taker)
        self.unknown.add(number)
        transaction = client.pipeline(transaction=True)
        transaction.decr(f"{self.name}:{giver}")
        transaction.incr(f"{self.name}:{taker}")
        transaction.sadd(f"{self.name}:seen:{giver}", number)
        transaction.sadd(f"{self.name}:seen:{taker}", number)
        try:
            replies = transaction.execute()
        except (redis.RedisError, OSError) as error:
            if any(word in str(error) for word in NOT_DONE):
                self.unknown.discard(number)
            raise
        assert replies[2:] == [1, 1], "it was done already"
        self.unknown.discard(number)
        self.told.add(number)

    def check(self):
        client = self.cluster.redis(NODES[0])
        seen = [{int(number) for number in client.smembers(f"{self.name}:seen:{account}")} for account in range(ACCOUNTS)]
        balances = [0] * ACCOUNTS
        for number, (giver, taker) in self.made.items():
            done = number in seen[giver]
            assert done == (number in seen[taker]), f"transfer {number} is at one account, and not at the other"
            assert done or number not in self.told, f"transfer {number} was told, and is lost"
            assert not done or number in self.told or number in self.unknown, f"transfer {number} was done, and was said not to be"
            balances[giver] -= done
            balances[taker] += done
        assert [int(client.get(f"{self.name}:{account}") or 0) for account in range(ACCOUNTS)] == balances
        return len(self.told)


def test_nodes_that_are_killed_leave_no_transfer_at_one_account_alone(grouped):
    keys = grouped("keys.appendfsync=always")
    cluster = keys.cluster
    transfers = [Transfers(cluster, name) for name in ("bank", "till", "purse")]
    loops = [Loop(each.step) for each in transfers]
    try:
        cluster.until(lambda: all(len(each.told) > 20 for each in transfers), "all transfer something")
        for number in range(KILLS):
            lost = NODES[(number + 1) % 3]
            pid = cluster.signal(lost, signal.SIGKILL)
            cluster.runs_again(lost, pid)
            keys.until_served()
            before = [len(each.told) for each in transfers]
            cluster.until(lambda: all(len(each.told) > told + 20 for each, told in zip(transfers, before)), "all go on")
    finally:
        for loop in loops:
            loop.end()
    keys.until_served()
    assert all(each.check() > 0 for each in transfers)
    assert cluster.stop() == 0, cluster.logs()


def test_without_the_setting_they_are_refused(start):
    keys = Spread(start)
    one, other = (keys.keys_of(node, 1)[0] for node in ("n1", "n2"))
    with pytest.raises(redis.ResponseError, match=r"^CROSSNODE"):
        keys.cluster.redis("n1").mset({one: 1, other: 2})
    assert keys.cluster.stop() == 0, keys.cluster.logs()
