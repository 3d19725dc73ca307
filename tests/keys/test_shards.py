"""Channels of shards (`SSUBSCRIBE`): to Savanna and to redis-server."""

import time

import pytest

from resp import Client


@pytest.mark.parametrize("protocol", [2, 3])
def test_channels_of_shards_are_a_kind_of_their_own(redis, savanna, protocol):
    for server in (redis, savanna):
        listeners = [Client(server.port, protocol) for _ in range(4)]
        speaker = Client(server.port, protocol)
        for listener in listeners:
            assert listener.call("SSUBSCRIBE", "orders") == [b"ssubscribe", b"orders", 1]
            assert listener.call("SUBSCRIBE", "orders") == [b"subscribe", b"orders", 1]
            assert listener.call("PSUBSCRIBE", "ord*") == [b"psubscribe", b"ord*", 2]
        # A subscription is heard of by the other threads a moment after its reply.
        wait_for(lambda: speaker.call("PUBSUB", "SHARDNUMSUB", "orders", "none"), counted(len(listeners)))
        wait_for(lambda: speaker.call("PUBLISH", "orders", "plain"), 2 * len(listeners))
        assert speaker.call("SPUBLISH", "orders", "sharded") == len(listeners)
        assert speaker.call("SPUBLISH", "none", "x") == 0
        assert speaker.call("PUBSUB", "NUMSUB", "orders", "none") == counted(len(listeners))
        assert speaker.call("PUBSUB", "SHARDCHANNELS") == [b"orders"] == speaker.call("PUBSUB", "SHARDCHANNELS", "o*")
        assert speaker.call("PUBSUB", "SHARDCHANNELS", "x*") == []
        for listener in listeners:
            heard = []
            while not heard or heard[-1][0] != b"smessage":
                heard.append(listener.receive())
            assert heard[-1] == [b"smessage", b"orders", b"sharded"]
            assert {tuple(message[:2]) for message in heard[:-1]} == {(b"message", b"orders"), (b"pmessage", b"ord*")}
        if protocol == 2:
            assert listeners[0].call("SPUBLISH", "orders", "x").startswith("ERR Can't execute 'spublish'")
        assert listeners[0].call("SUNSUBSCRIBE", "none") == [b"sunsubscribe", b"none", 1]
        assert listeners[0].call("SUNSUBSCRIBE") == [b"sunsubscribe", b"orders", 0]
        assert listeners[0].call("SUNSUBSCRIBE") == [b"sunsubscribe", None, 0]
        listeners[1].close()
        wait_for(lambda: speaker.call("PUBSUB", "SHARDNUMSUB", "orders", "none"), counted(len(listeners) - 2))
        assert speaker.call("SPUBLISH", "orders", "again") == len(listeners) - 2
        for client in (*listeners, speaker):
            client.close()


def counted(count):
    return [b"orders", count, b"none", 0]


def wait_for(ask, expected):
    deadline = time.monotonic() + 10
    while (reply := ask()) != expected:
        assert time.monotonic() < deadline, reply
        time.sleep(0.01)


def test_users_need_the_channel(redis, savanna):
    for server in (redis, savanna):
        client, user = Client(server.port), Client(server.port)
        client.call("ACL", "SETUSER", "listener", "on", "nopass", "+@all", "~*", "resetchannels", "&mine")
        user.call("AUTH", "listener", "x")
        assert user.call("SPUBLISH", "other", "x").startswith("NOPERM") and user.call("SSUBSCRIBE", "other").startswith("NOPERM")
        assert user.call("SPUBLISH", "mine", "x") == 0
        assert user.call("SSUBSCRIBE", "mine") == [b"ssubscribe", b"mine", 1]
        client.call("ACL", "DELUSER", "listener")
        client.close()
