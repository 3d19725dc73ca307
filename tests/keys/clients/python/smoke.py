"""redis-py: `python smoke.py PORT`."""

import sys
import threading

import redis
from redis.exceptions import NoPermissionError, WatchError

PORT = int(sys.argv[1])


def smoke(protocol):
    def connect(**options):
        return redis.Redis(port=PORT, protocol=protocol, decode_responses=True, **options)

    client = connect()
    client.flushall()

    # Strings
    assert client.set("a", 1, ex=100) and client.incrby("a", 41) == 42 and client.get("a") == "42"
    assert client.get("nothing") is None and 90 < client.ttl("a") <= 100

    # Types
    client.hset("h", mapping={"f": 1, "g": "two"})
    assert client.hgetall("h") == {"f": "1", "g": "two"}
    client.zadd("z", {"b": 2, "a": 1})
    assert [tuple(pair) for pair in client.zrange("z", 0, -1, withscores=True)] == [("a", 1.0), ("b", 2.0)]

    # Pipeline
    with client.pipeline(transaction=False) as pipeline:
        for number in range(1000):
            pipeline.set(f"p:{number}", number)
        assert pipeline.execute() == [True] * 1000
    assert client.mget("p:0", "p:999") == ["0", "999"]

    # MULTI and WATCH
    assert client.pipeline().set("m", "x").append("m", "y").execute() == [True, 2]
    with client.pipeline() as pipeline:
        pipeline.watch("m")
        client.set("m", "changed")
        pipeline.multi()
        pipeline.set("m", "lost")
        try:
            pipeline.execute()
            raise AssertionError("expected a WatchError")
        except WatchError:
            pass

    # Scan
    assert len(set(client.scan_iter("p:*", count=100))) == 1000

    # Messages
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("news")
    message = None
    while message is None:
        client.publish("news", "hello")
        message = listener.get_message(timeout=0.1)
    assert message["data"] == "hello"
    listener.close()

    # Waiting for an element
    if client.execute_command("COMMAND COUNT") and "blpop" in client.command():
        popped = []
        waiter = threading.Thread(target=lambda: popped.append(connect().blpop("queue", 10)))
        waiter.start()
        client.rpush("queue", "job")
        waiter.join()
        assert [tuple(pair) for pair in popped] == [("queue", "job")]

    # A lock, which is a script
    if "eval" in client.command():
        with client.lock("lock", timeout=10):
            assert not client.lock("lock", timeout=10).acquire(blocking=False)
        assert client.get("lock") is None

    # A user with a password
    client.acl_setuser("clerk", enabled=True, passwords=["+secret"], keys=["c:*"], commands=["+@all"])
    clerk = connect(username="clerk", password="secret")
    assert clerk.set("c:1", "x")
    try:
        clerk.get("a")
        raise AssertionError("expected a refusal")
    except NoPermissionError:
        pass


for version in (2, 3):
    smoke(version)
print("redis-py: ok")
