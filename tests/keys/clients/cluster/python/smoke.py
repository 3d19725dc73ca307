"""redis-py's client of clusters: `python smoke.py PORT`."""

import sys

from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster
from redis.exceptions import RedisClusterException

PORT = int(sys.argv[1])


def smoke(protocol):
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", PORT)], protocol=protocol, decode_responses=True)
    client.flushall()
    assert [(node.host, node.port) for node in client.get_primaries()] == [("127.0.0.1", PORT)]
    for key in ("", "foo", "{}x", "foo{bar}baz", "{a}{b}"):
        assert client.keyslot(key) == client.cluster_keyslot(key)
    for number in range(1000):
        assert client.set(f"k:{number}", number)
    assert client.get("k:7") == "7" and client.incr("k:7") == 8 and client.dbsize() == 1000
    assert client.mget_nonatomic([f"k:{number}" for number in range(100)])[99] == "99"
    assert client.mset({"{t}a": 1, "{t}b": 2}) and client.mget("{t}b", "{t}a") == ["2", "1"]
    try:
        client.mget("a", "b")
    except RedisClusterException:
        pass
    else:
        raise AssertionError("keys of two slots")
    pipeline = client.pipeline()
    for number in range(500):
        pipeline.get(f"k:{number}")
    assert pipeline.execute()[499] == "499"
    assert client.eval("return redis.call('GET', KEYS[1])", 1, "{t}a") == "1"
    slot = client.cluster_keyslot("{t}a")
    assert client.cluster_countkeysinslot(slot) == 2 and sorted(client.cluster_get_keys_in_slot(slot, 10)) == ["{t}a", "{t}b"]
    assert client.cluster_info()["cluster_state"] == "ok"
    (name, node), = client.cluster_nodes().items()
    assert name == f"127.0.0.1:{PORT}" and node["flags"] == "myself,master" and node["slots"] == [["0", "16383"]]
    assert len(set(client.scan_iter(count=100))) == 1002
    listener = client.pubsub()
    listener.ssubscribe("orders")
    assert listener.get_sharded_message(timeout=5)["type"] == "ssubscribe"
    client.spublish("orders", "x")
    message = listener.get_sharded_message(timeout=5)
    assert (message["channel"], message["data"]) == ("orders", "x")
    listener.close()
    reader = RedisCluster(host="127.0.0.1", port=PORT, load_balancing_strategy=LoadBalancingStrategy.ROUND_ROBIN, decode_responses=True)
    assert reader.get("{t}a") == "1"
    client.close()
    reader.close()


for version in (2, 3):
    smoke(version)
print("redis-py: ok")
